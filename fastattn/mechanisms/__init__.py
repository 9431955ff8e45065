"""The field's attention mechanisms, of interchangeable parts (``attend``): a score, the keys seen, a normalizer.

    from fastattn.mechanisms import Additive, Padded, attend

    out = attend(query, key, value, score=Additive(W, U, v), seen=Padded(lengths))

docs/attention.md shows each mechanism with its source. The package also has positions, a Neural Turing Machine's
addressing, and attention over graphs.
"""

from typing import TYPE_CHECKING

# isort: off
from fastattn.mechanisms.addressing import address as address, content_weights as content_weights
from fastattn.mechanisms.addressing import interpolate as interpolate, sharpen as sharpen, shift as shift
from fastattn.mechanisms.attend import Hard as Hard, Pointer as Pointer, Saliency as Saliency, Soft as Soft
from fastattn.mechanisms.attend import attend as attend
from fastattn.mechanisms.graph import graph_attention as graph_attention
from fastattn.mechanisms.graph import heterogeneous_attention as heterogeneous_attention
from fastattn.mechanisms.graph import semantic_attention as semantic_attention
from fastattn.mechanisms.positions import add_positions as add_positions, alibi_bias as alibi_bias
from fastattn.mechanisms.positions import alibi_slopes as alibi_slopes, concatenate_positions as concatenate_positions
from fastattn.mechanisms.positions import learned as learned, rotary as rotary, sinusoids as sinusoids
from fastattn.mechanisms.positions import t5_bias as t5_bias
from fastattn.mechanisms.scores import Additive as Additive, Content as Content, Dot as Dot, General as General
from fastattn.mechanisms.scores import Graph as Graph, Location as Location, ScaledDot as ScaledDot
from fastattn.mechanisms.seen import Causal as Causal, Everything as Everything, LocalMonotonic as LocalMonotonic
from fastattn.mechanisms.seen import LocalPredictive as LocalPredictive, Mask as Mask, Neighbours as Neighbours
from fastattn.mechanisms.seen import Padded as Padded, Restricted as Restricted, Sentences as Sentences
# isort: on

if not TYPE_CHECKING:  # ``X as X`` above tells type checkers that a name is public
    __all__ = sorted(
        name for name, value in globals().items() if getattr(value, "__module__", "").startswith("fastattn.mechanisms.")
    )
