"""Pictures of masks, which show where the weights are not 0, and of graphs."""

from typing import Any

import numpy as np

from bench.gallery.drawing import even, graph_picture, normal, seen_picture, weights_picture
from bench.gallery.weights import weights_of
from bench.svg import Panel, plot
from fastattn import and_masks, attention
from fastattn import mechanisms as m
from fastattn.mechanisms import attend

N = 10  # positions
EDGES = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5), (5, 6), (6, 7), (7, 4)]
NODES = 8


def seen_weights(seen: m.seen.Seen | tuple[m.seen.Seen, ...], T: int = N, S: int = N) -> np.ndarray:
    return weights_of(*even(T, S), seen=seen)


def alone(seen: m.seen.Seen, size: int = N) -> str:
    return seen_picture([("", seen_weights(seen, size, size))])


def padded() -> str:
    query, key = (np.concatenate([x, x]) for x in even(6, 8))
    _, weights = attend(query, key, key, seen=m.Padded([8, 5]), return_weights=True)
    return seen_picture([("length 8", weights[0]), ("length 5", weights[1])])


def causal() -> str:
    return seen_picture([(f"offset {n}", seen_weights(m.Causal(offset=n), 6, 6 + n)) for n in (0, 4)])


def sentences() -> str:
    starts = m.Sentences([0, 3, 7, 12])
    panels = {"sentences": starts, "and causal": (starts, m.Causal())}
    return seen_picture([(name, seen_weights(seen, 12, 12)) for name, seen in panels.items()])


def local_predictive() -> str:
    """Queries whose windows' middles go from the first keys to the last."""
    query, key = np.linspace(-1.2, 1.2, N, dtype=np.float32).reshape(1, N, 1), np.zeros((1, 20, 1), np.float32)
    seen = m.LocalPredictive(np.float32([[1]]), np.float32([3]), distance=4)
    return weights_picture(weights_of(query, key, seen=seen), list(range(N)), list(range(20)))


def any_mask() -> str:
    t, s = np.mgrid[:N, :N]
    return alone(m.Mask((t // 2 + s // 2) % 2 == 0))


def graph_network() -> str:
    """Node 0's weights of its neighbours in each head."""
    near = m.Neighbours.from_edges(EDGES, NODES)
    features, weight, vector = normal(13, NODES, 6), normal(14, 3, 4, 6) / 2, normal(15, 3, 8) / 2
    _, weights_EH = m.graph_attention(features, weight, vector, near, return_weights=True)
    first = slice(*near.starts[:2])
    panels = [
        (f"head {h}", EDGES, dict(zip(near.indices[first].tolist(), weights_EH[first, h].tolist()))) for h in range(3)
    ]
    return graph_picture(panels, [str(n) for n in range(NODES)])


def heterogeneous() -> str:
    """Node 0's weights along each of two meta-paths, and the weights of the paths."""
    kinds = [EDGES, [(0, 4), (0, 6), (2, 5), (1, 7), (3, 6)]]
    paths = [m.Neighbours.from_edges(edges, NODES) for edges in kinds]
    features, weight, vectors = normal(13, NODES, 6), normal(16, 1, 4, 6) / 2, normal(17, 2, 1, 8) / 2
    semantic = normal(18, 5, 4), np.zeros(5, np.float32), normal(19, 5)
    _, worth = m.heterogeneous_attention(features, weight, vectors, paths, *semantic)
    panels = []
    for p, (edges, near, vector) in enumerate(zip(kinds, paths, vectors)):
        _, weights_EH = m.graph_attention(features, weight, vector, near, return_weights=True)
        first = slice(*near.starts[:2])
        own = dict(zip(near.indices[first].tolist(), weights_EH[first, 0].tolist()))
        panels.append((f"meta-path {p}: weight {worth[p]:.2f}", edges, own))
    return graph_picture(panels, [str(n) for n in range(NODES)])


def complexity() -> str:
    """The formulas of the table: layers of width 512, 64 positions around, kernels of 3."""
    d, r, k = 512, 64, 3
    n = [float(2**power) for power in range(6, 16)]
    operations = {
        "self-attention": [(x, x * x * d / 1e9) for x in n],
        "restricted": [(x, r * x * d / 1e9) for x in n],
        "recurrent": [(x, x * d * d / 1e9) for x in n],
        "convolution": [(x, k * x * d * d / 1e9) for x in n],
    }
    paths = {
        "self-attention": [(x, 1.0) for x in n],
        "restricted": [(x, max(x / r, 1.0)) for x in n],
        "recurrent": [(x, x) for x in n],
        "convolution": [(x, float(np.log(x) / np.log(k))) for x in n],
    }
    left = Panel(f"d = {d}, r = {r}, k = {k}", "n", "billions of operations", operations, log_y=True)
    return plot([left, Panel("", "n", "longest path", paths, log_y=True)])


def functions() -> str:
    """Masks as functions of positions, and a window with sinks, in ``fastattn.attention`` itself."""
    query, key = (x[:, :, None] for x in even(12, 12))

    def weights(**options: Any) -> np.ndarray:
        return attention(query, key, key, return_weights=True, **options)[1][0, 0]

    def shown(document: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        def same_document(b, h, t, s):
            return document[t] == document[s]

        def prefix_first(b, h, t, s):
            return s < prefix[b] or s <= t

        return weights(mask_mod=and_masks(same_document, prefix_first))

    panels = [
        ("documents", shown(np.repeat([0, 1, 2], [4, 3, 5]), np.array([0]))),
        ("prefix", shown(np.zeros(12, int), np.array([4]))),
        ("window, 2 sinks", weights(causal=True, window=(2, 0), sinks=2)),
    ]
    return seen_picture(panels)


PICTURES = {
    "global": lambda: alone(m.Everything()),
    "padded": padded,
    "causal": causal,
    "restricted": lambda: alone(m.Restricted(3)),
    "local-m": lambda: alone(m.LocalMonotonic(2)),
    "local-p": local_predictive,
    "sentences": sentences,
    "neighbours": lambda: alone(m.Neighbours.from_edges(EDGES, NODES), NODES),
    "any-mask": any_mask,
    "functions": functions,
    "gat": graph_network,
    "han": heterogeneous,
    "complexity": complexity,
}
