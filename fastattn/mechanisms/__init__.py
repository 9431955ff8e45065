"""The field's attention mechanisms, of interchangeable parts (``attend``): a score, the keys seen, a normalizer.

    from fastattn.mechanisms import Additive, Padded, attend

    out = attend(query, key, value, score=Additive(W, U, v), seen=Padded(lengths))

docs/attention.md shows each with its source. There are also positions, a Neural Turing Machine's addressing, and
attention over graphs.
"""

from fastattn.mechanisms.addressing import address, content_weights, interpolate, sharpen, shift
from fastattn.mechanisms.attend import Hard, Pointer, Saliency, Soft, attend
from fastattn.mechanisms.graph import graph_attention, heterogeneous_attention, semantic_attention
from fastattn.mechanisms.positions import (
    add_positions,
    alibi_bias,
    alibi_slopes,
    concatenate_positions,
    learned,
    rotary,
    sinusoids,
    t5_bias,
)
from fastattn.mechanisms.scores import Additive, Content, Dot, General, Graph, Location, ScaledDot
from fastattn.mechanisms.seen import (
    Causal,
    Everything,
    LocalMonotonic,
    LocalPredictive,
    Mask,
    Neighbours,
    Padded,
    Restricted,
    Sentences,
)

__all__ = [
    "Additive",
    "Causal",
    "Content",
    "Dot",
    "Everything",
    "General",
    "Graph",
    "Hard",
    "LocalMonotonic",
    "LocalPredictive",
    "Location",
    "Mask",
    "Neighbours",
    "Padded",
    "Pointer",
    "Restricted",
    "Saliency",
    "ScaledDot",
    "Sentences",
    "Soft",
    "add_positions",
    "address",
    "alibi_bias",
    "alibi_slopes",
    "attend",
    "concatenate_positions",
    "content_weights",
    "graph_attention",
    "heterogeneous_attention",
    "interpolate",
    "learned",
    "rotary",
    "semantic_attention",
    "sharpen",
    "shift",
    "sinusoids",
    "t5_bias",
]
