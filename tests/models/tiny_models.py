"""Random little translation models, their passes and steps, and their naive decoding."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fastattn.arguments.steps import NO_EDITS
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import EncoderDecoder
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.ops.reference.matmul import ACTIVATIONS, ReferenceLinear
from fastattn.ops.reference.project import log_softmax
from fastattn.spec import architecture as arch
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.recurrent import READOUTS, MemoryAttention, Readout, RecurrentSpec
from fastattn.spec.tensors import tensor_shapes
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.native import VERSION_1_NAMES

PARTS = {
    "attention": arch.AttentionSpec,
    "feed_forward": arch.FeedForwardSpec,
    "norms": arch.NormSpec,
    "positions": arch.PositionSpec,
    "recurrence": arch.RecurrenceSpec,
    "alignment": arch.AlignmentSpec,
}
# Keyword -> (the part, its field): what they were called when a stack was flat, and what has come since.
KEYWORDS = VERSION_1_NAMES | {
    **{name: ("attention", name) for name in ("head_norms", "norms_after_positions", "norms_of_all_heads", "softcap")},
    "input_norms": ("norms", "input"), "first_norm": ("norms", "first"), "output_norms": ("norms", "output"),
    "layers_without": ("positions", "layers_without"), "learned_positions": ("positions", "learned"),
    "each": ("positions", "of_each_layer"), "disentangled": ("positions", "disentangled"),
    "recurrence": ("recurrence", "kind"),
}  # fmt: skip


def stack_spec(**keywords: Any) -> arch.StackSpec:
    parts: dict[str, dict[str, Any]] = {}
    for keyword in [keyword for keyword in keywords if keyword in KEYWORDS]:
        part, field = KEYWORDS[keyword]
        parts.setdefault(part, {})[field] = keywords.pop(keyword)
    return arch.StackSpec(**{part: PARTS[part](**fields) for part, fields in parts.items()}, **keywords)


UNK, START, END = 0, 1, 2
LETTERS = tuple("abcdefghijklmnop")  # words enough for a vocabulary of BASE's size

BASE = {"layers": 2, "width": 16, "heads": 4, "key_heads": 4, "head_width": 4, "inner_width": 24, "vocabulary": 19}

RELATIVE = {"positions": "relative"}
# Every scheme of positions and every place where architectures differ.
VARIETIES: dict[str, dict] = {
    "pre-norm": {},
    "post-norm": {"pre_norm": False, "final_norm": False, "activation": "swish", "embedding_scale": 4.0},
    "table": {"positions": "table", "max_positions": 40, "embedding_norm": True},
    "rotary": {"positions": "rotary", "rotary": arch.Rotary(4, interleaved=False), "norm": "rms", "gated": True},
    "alibi": {"positions": "alibi", "alibi": arch.Alibi(), "biases": False},
    "relative": RELATIVE | {"relative_buckets": 8, "relative_max_distance": 12, "query_scale": 1.0},
    "relative, each layer's": RELATIVE | {"relative_buckets": 7, "relative_max_distance": 9, "each": True},
    "fewer key heads": {"key_heads": 2, "head_width": 3, "projection_bias": True},
    "zero start": {"start_from_zero_embedding": True, "output_scale": 0.25, "positions": "none"},
    "recurrent": {"recurrence": "ssru", "pre_norm": False, "final_norm": False, "sinusoid_start": 0},
    "recurrent pre-norm": {"recurrence": "ssru", "width": 24, "start_from_zero_embedding": True},
    "average": {"recurrence": "average-attention", "average_inner_width": 40, "pre_norm": False},
    "average pre-norm": {"recurrence": "average-attention", "average_inner_width": 7},
    "plain average": {"recurrence": "average-attention", "average_gates": False},
    "local": {"local": arch.LocalSpec((1,), before=4, after=0), "positions": "alibi", "alibi": arch.Alibi()},
    "all local": {"local": arch.LocalSpec((0, 1), before=2, after=0), "positions": "rotary", "key_heads": 2},
    "capped scores": {"softcap": 0.7, "query_scale": 1.5},
    "capped logits": {"output_cap": 4.0},
    "norms of heads": {"head_norms": True, "positions": "rotary", "key_heads": 2, "layers_without": (1,)},
    "norms after positions": {"head_norms": True, "norms_after_positions": True, "positions": "rotary"},
    "norms of all heads": {"head_norms": True, "norms_of_all_heads": True, "positions": "rotary", "key_heads": 2},
}


def recurrent(decoder: dict, **encoder: Any) -> tuple[RecurrentSpec, RecurrentSpec]:
    """An encoder's spec of these fields, and that of a decoder behind it."""
    first = RecurrentSpec(**{"cell": "gru", "layers": 1, "units": 6, "vocabulary": 19, "embedding_width": 5} | encoder)
    fields = {"cell": first.cell, "layers": 1, "units": first.hidden, "vocabulary": 19, "embedding_width": 7}
    return first, RecurrentSpec(**fields | {"memory": first.width, "memory_states": first.states} | decoder)


BOTH = {"readout": Readout(("context", "hidden"), 9, "tanh")}
LSTM, FROM_ENCODER, TWO_WAYS = {"cell": "lstm", "layers": 2}, {"initial": "encoder"}, {"bidirectional": True}


def _attends(score: str, after: int, **more: Any) -> dict[str, Any]:
    return {"attention": MemoryAttention(score, after, **more)}


# Of recurrent stacks, which are whole specs: what the encoder and the decoder have.
RECURRENT: dict[str, tuple[dict, dict]] = {
    "gru alone": ({"backward": True}, FROM_ENCODER),
    "lstm, additive": (
        LSTM | TWO_WAYS,
        {"initial": "bridge", "initial_activation": "tanh"} | _attends("additive", 0, width=10),
    ),
    "lstm, general, fed": (
        LSTM | TWO_WAYS, {"layers": 2, "feeds": True} | FROM_ENCODER | BOTH | _attends("general", 2),
    ),
    "gru, heads between": (
        TWO_WAYS | {"readout": Readout(width=8, activation="tanh")},
        {"layers": 2} | _attends("multi-head", 1, width=8, heads=4),
    ),
    "lstm that forgets": ({"cell": "lstm"}, FROM_ENCODER | {"carries": False} | _attends("dot", 0)),
    "windows": ({"cell": "gru_reset_before"} | TWO_WAYS, BOTH | _attends("dot", 1, window=2)),
    # whose embeddings are folded with the first layers' weights
    "few words": (
        {"embedding_width": 23} | TWO_WAYS,
        {"embedding_width": 20, "layers": 2, "feeds": True} | BOTH | _attends("general", 0),
    ),
    "few words, alone": ({"embedding_width": 23, "backward": True}, {"embedding_width": 20} | FROM_ENCODER),
    "predicted windows": ({}, BOTH | _attends("general", 1, window=2, predictive=3)),
    "hard": (TWO_WAYS, {"readout": Readout(READOUTS)} | _attends("additive", 1, width=4, hard=True)),
}  # fmt: skip
VARIETIES |= {name: {"stacks": recurrent(decoder, **encoder)} for name, (encoder, decoder) in RECURRENT.items()}

# What only a decoder has.
DECODERS = ("projection_bias", "start_from_zero_embedding", "output_scale", "alignment_layer", "alignment_heads")
DECODERS += ("recurrence", "average_inner_width", "average_activation", "average_gates", "output_cap")


def _rows_apart(x_ND, packed, activation="none", residual_NF=None, multiply_NF=None):
    """A matrix product whose rows do not depend on how many there are, which BLAS does not promise."""
    rows = [reference.linear(x_ND[n : n + 1], packed) for n in range(len(x_ND))]
    y_NF = ACTIVATIONS[activation](np.concatenate(rows) if rows else reference.linear(x_ND, packed))
    y_NF = y_NF if multiply_NF is None else y_NF * multiply_NF
    return y_NF if residual_NF is None else y_NF + residual_NF


def _gated_apart(x_ND, packed, gate, activation="none"):
    return _rows_apart(x_ND, packed, activation, multiply_NF=_rows_apart(x_ND, gate))


def _top_k_apart(x_RD, outputs, k, edits=NO_EDITS, normalized=True):
    rows = [reference.project_top_k(row, own, k, mine, normalized) for row, own, mine in _apart(x_RD, outputs, edits)]
    return tuple(map(np.concatenate, zip(*rows)))


def _all_apart(x_RD, outputs, edits=NO_EDITS):
    return np.concatenate([reference.project_all(row, own, mine) for row, own, mine in _apart(x_RD, outputs, edits)])


def _apart(x_RD, outputs, edits):
    """Each row with what it chooses from and its own edits."""
    for r in range(len(x_RD)):
        own = outputs if isinstance(outputs, ReferenceLinear) else outputs[r : r + 1]
        yield x_RD[r : r + 1], own, edits.of(np.array([r]))


# The reference operations with the engine's promise: a row's bits do not depend on the other rows.
_APART = {"linear": _rows_apart, "gated": _gated_apart, "project_top_k": _top_k_apart, "project_all": _all_apart}
steady_ops = SimpleNamespace(**vars(reference) | _APART)


def vocabulary(size: int) -> tuple[str, ...]:
    return ("<unk>", "<s>", "</s>", *(f"▁w{i}" for i in range(size - 3)))


def random_checkpoint(seed: int = 0, dtype=np.float32, sharpness: float = 3.0, **changes) -> Checkpoint:
    """A two-layer encoder-decoder; ``sharpness`` spreads its probabilities, ``changes`` go to both stacks."""
    rng = np.random.default_rng(seed)
    if "stacks" in changes:
        spec = arch.ModelSpec("encoder-decoder", *changes["stacks"])
    else:
        encoder = {name: value for name, value in (BASE | changes).items() if name not in DECODERS}
        decoder = stack_spec(**BASE | changes, cross_attention=True)
        spec = arch.ModelSpec("encoder-decoder", stack_spec(**encoder), decoder)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = rng.normal(0, 0.1 if len(shape) == 1 else shape[-1] ** -0.5, shape) + ("norm.weight" in name)
        tensors[name] = drawn.astype(dtype)
    tensors["decoder.projection.weight"] *= sharpness
    words = vocabulary((BASE | changes)["vocabulary"])
    return Checkpoint(spec, tensors, TranslationText(words, words))


def random_model(seed: int = 0, ops=reference, precision: str = "float32", **changes) -> EncoderDecoder:
    return build_model(random_checkpoint(seed, **changes), ops, precision)


def random_sources(count: int, seed: int = 0, shortest: int = 1, longest: int = 9, size: int = 19) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, count)
    return [rng.integers(3, size, length).astype(np.int32) for length in lengths]


def next_log_probs(
    model: EncoderDecoder, source: np.ndarray, tokens: list[int], suppressed=(), penalized=(), penalty=1.0
) -> np.ndarray:
    """log_probs_V of the token after ``tokens`` (start token included), with nothing cached."""
    starts_B1 = np.array([0, len(tokens)], np.int64)
    hidden_ND, _ = model.prefill(np.array(tokens, np.int32), starts_B1, model.encode([source]))
    logits_1V = reference.linear(hidden_ND[-1:], model.output.projection)
    if model.output.cap:
        logits_1V = model.output.cap * np.tanh(logits_1V / model.output.cap)
    for token in penalized:
        logits_1V[0, token] *= penalty if logits_1V[0, token] < 0 else 1 / penalty
    logits_1V[:, list(suppressed)] = -np.inf
    return log_softmax(logits_1V)[0]


def full_pass(model, sources, targets, attention=False):
    starts_B1, memory = starts_of(targets), model.encode(sources)
    return *model.prefill(np.concatenate(targets), starts_B1, memory, attention=attention), starts_B1


def starts_of(targets):
    return np.cumsum([0, *map(len, targets)], dtype=np.int64)


def cached(model, sources, attention=False):
    """A cache that holds the sources' memory, the slot of each, and that memory."""
    cache = KeyValueCache(model.ops, model.sizes, 3, 3)
    memory = model.encode(sources)
    memory_slots_B, rows_N = cache.add_memory_slots(memory.starts_B1)
    model.keep_memory(cache, rows_N, memory)
    # Others between, and not in order, so that slots, places and rows are told apart.
    slots = {int(place): cache.add_slots(int(place), 2)[0] for place in memory_slots_B[::-1]}
    return cache, np.array([slots[int(place)] for place in memory_slots_B]), memory


def stepped(model, sources, targets, prefill=0, attention=False, apart=0):
    """The same, one step at a time after a pass over the first ``prefill`` tokens; sentences of any length at once.

    apart  steps from a sentence's first to the next one's
    """
    cache, slots_B, memory = cached(model, sources, attention)
    hidden = [[] for _ in sources]
    if prefill:
        begun = [target[:prefill] for target in targets]
        hidden_ND, _ = model.prefill(np.concatenate(begun), starts_of(begun), memory, cache=cache, slots_B=slots_B)
        hidden = list(map(list, np.split(hidden_ND, len(sources))))
    seen = [[] for _ in sources]
    for t in range(prefill, max(len(target) + b * apart for b, target in enumerate(targets))):
        active = [b for b in range(len(sources)) if prefill <= t - b * apart < len(targets[b])]
        slots_R = slots_B[active]
        positions_R = np.array([t - b * apart for b in active], np.int32)
        tokens_R = np.array([targets[b][t - b * apart] for b in active], np.int32)
        hidden_RD, attention_RS = model.step(cache, slots_R, tokens_R, positions_R, attention)
        for r, b in enumerate(active):
            hidden[b].append(hidden_RD[r])
            if attention:
                seen[b].append(attention_RS[r, : len(sources[b])])
    return [np.array(rows) for rows in hidden], seen
