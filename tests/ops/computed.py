"""What computes on a device, by name: attention, mechanisms, search and models, each called with ``device``."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fastattn
from fastattn import mechanisms as m
from fastattn.array_attention.attention import additive_attention
from tests.encoders.classifiers import LABELS, TOKENS, write_classifier, write_masked, write_sparse, write_today
from tests.weights.ctranslate2.writer import write_tiny


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(got: Any, expected: Any) -> None:
    """Arrays, also within tuples and objects, within 1e-4; all else is equal."""
    assert type(got) is type(expected)
    if isinstance(expected, tuple | list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            agree(one, other)
    elif isinstance(expected, np.ndarray | float):
        np.testing.assert_allclose(got, expected, rtol=1e-3 if np.asarray(got).itemsize == 2 else 1e-5, atol=1e-4)
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys()
        agree(list(got.values()), list(expected.values()))
    elif hasattr(expected, "__fields__"):
        agree(vars(got), vars(expected))
    else:
        assert got == expected


def above(b, h, t, s):
    return s <= t + 1


def halved(score, b, h, t, s):
    return score / 2


B, T, S, H, G, K = 2, 5, 7, 4, 2, 8
QUERY, KEY, VALUE = normal(0, B, T, H, K), normal(1, B, S, G, K), normal(2, B, S, G, K)
WEIGHTS = fastattn.ProjectionWeights(*(normal(n, size, 12) for n, size in enumerate((32, 16, 16))), normal(3, 12, 32))
RING = m.Neighbours.from_edges([(n, (n + 1) % S) for n in range(S)], S)
BLOCKS = np.arange(T)[:, None] >= np.arange(S) - 1


def attention(**options: Any) -> Callable[..., Any]:
    return partial(fastattn.attention, QUERY, KEY, VALUE, **options)


def step(device: str) -> Any:
    cache = fastattn.KVCache(B, G, K, dtype="float16", device=device)
    cache.append(KEY, VALUE, lengths=[S, 4])
    cache.append(KEY[:, :2], VALUE[:, :2])
    return cache.fork().attend(QUERY[:, :2], return_weights=True)


ATTENTION: dict[str, Callable[..., Any]] = {
    "plain": attention(causal=True, offset="end", return_weights=True),
    "options": attention(lengths=[3, 7], window=(2, None), sinks=1, softcap=2.0, bias=normal(4, T, S)),
    "logits": attention(sinks=normal(5, H), return_logsumexp=True),
    "float16": lambda **o: fastattn.attention(*(x.astype(np.float16) for x in (QUERY, KEY, VALUE)), **o),
    "additive": partial(
        additive_attention, QUERY, KEY, VALUE, normal(10, H, K), lengths=[3, 7], softcap=2.0, return_weights=True
    ),
    "extreme": attention(scale=1e32),
    "blocks": lambda **o: attention(block_mask=fastattn.BlockMask.from_mask(BLOCKS, (2, 3)))(**o),
    "ragged": partial(fastattn.attention_ragged, QUERY[0], KEY[0], VALUE[0], [0, 2, 5], [0, 4, 7]),
    "multi-head": partial(fastattn.multi_head_attention, normal(6, B, T, 12), weights=WEIGHTS, heads=H),
    "step": step,
    "search": partial(fastattn.semantic_search, normal(7, 3, 9), normal(8, 40, 9), 5),
    "bits": partial(
        fastattn.semantic_search, normal(7, 3, 9).astype(np.int8), normal(8, 40, 9).astype(np.int8), 5, "hamming"
    ),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {  # each compiles a kernel
    "functions": attention(score_mod=halved, mask_mod=above),
    "function's blocks": lambda **o: fastattn.BlockMask.from_function(above, B, H, T, S, (2, 3), **o).states_BHTS,
}


def attend(**parts: Any) -> Callable[..., Any]:
    return partial(m.attend, QUERY, KEY, VALUE, **parts, return_weights=True)


NODES = normal(9, 1, S, G, K)
ADDITIVE = m.Additive(normal(10, 6, K), normal(11, 6, K), normal(12, 6))
LOCAL = m.LocalPredictive(normal(13, 6, K), normal(14, 6), 2.0)
SEMANTIC = normal(15, 6, 8), normal(16, 6), normal(17, 6)
GRAPH = normal(18, S, 5), normal(19, 2, 4, 5)
MECHANISMS: dict[str, Callable[..., Any]] = {
    "causal": attend(seen=(m.Causal(1), m.Padded([4, 7]))),
    "additive score": attend(score=ADDITIVE, seen=m.Causal()),
    "content": attend(score=m.Content(2.0)),
    "general": attend(score=m.General(normal(20, K, K)), normalizer=m.Pointer()),
    "hard": attend(normalizer=m.Hard()),
    "hard, additive": attend(score=ADDITIVE, normalizer=m.Hard(), seen=m.Causal()),
    "local": attend(seen=LOCAL),
    "local, additive": attend(score=ADDITIVE, seen=LOCAL),
    "neighbours": partial(m.attend, NODES, NODES, NODES, seen=RING, return_weights=True),
    "graph": partial(m.attend, NODES, NODES, NODES, score=m.Graph(normal(21, 2 * K)), seen=RING),
    "sentences": partial(m.attend, QUERY[:1], KEY[:1], VALUE[:1], seen=m.Sentences([0, 2, 5], [0, 4, 7])),
    "graph_attention": partial(m.graph_attention, *GRAPH, normal(22, 2, 8), RING),
    "heterogeneous_attention": partial(m.heterogeneous_attention, *GRAPH, normal(23, 1, 2, 8), [RING], *SEMANTIC),
    "address": partial(
        m.address, normal(24, B, 2, K), normal(25, B, S, K), np.full((B, 2, S), 1 / S, np.float32),
        strength=np.ones((B, 2), np.float32), gate=np.full((B, 2), 0.5, np.float32),
        shifts=np.full((B, 2, 3), 1 / 3, np.float32), exponent=np.full((B, 2), 2, np.float32),
    ),
    "rotary": partial(m.rotary, QUERY),
}  # fmt: skip
COMPUTED = ATTENTION | MECHANISMS


TEXTS = ["w5 w9 w7", "w8"]
MODELS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "Translator": (write_tiny, lambda made: made.translate(["▁w3 ▁w4", "▁w5"], beam_size=2)),
    "Encoder": (write_classifier, lambda made: made.encode(TEXTS)),
    "CrossEncoder": (write_classifier, lambda made: made.predict([("w5", "w7"), ("w9", "w8")])),
    "TextClassifier": (lambda path: write_classifier(path, LABELS), lambda made: made.classify(TEXTS)),
    "TokenClassifier": (lambda path: write_classifier(path, TOKENS), lambda made: made.classify(TEXTS)),
    "MaskedLanguageModel": (write_masked, lambda made: made.fill("w5 [MASK] w7")),
    "SparseEncoder": (write_sparse, lambda made: made.encode(TEXTS).to_dense()),
    "MultiVectorEncoder": (write_today, lambda made: made.encode(TEXTS)),
}
