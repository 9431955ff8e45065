"""Attention of a graph's nodes to their neighbours, listed one node after another (CSR); Velickovic 2018."""

import numpy as np

from fastattn.kernels.arguments import NodeDots, NodeTerms
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads

_attend = kernel_named("graph", "_attend")

SMALL = 1 << 14  # products that one thread finishes before another would have started: 5 to 10 us
_NONE_2, _NONE_3 = np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.float32)


def graph_attention(
    value_MHV: np.ndarray,
    starts_N1: np.ndarray,
    indices_E: np.ndarray,
    *,
    terms: tuple[np.ndarray, np.ndarray] | None = None,
    dots: tuple[np.ndarray, np.ndarray] | None = None,
    factor: float,
    weights_EH: np.ndarray | None = None,
) -> np.ndarray:
    """out_NHV: node n's softmax over its neighbours indices[starts[n]:starts[n + 1]], and their weighted values.

    terms   (target_NH, source_MH): scores LeakyReLU(target[n] + source[m]), ``factor`` is the slope below zero
    dots    (query_NHK, key_MHK): scores factor query[n] . key[m]
    weights_EH  written if given: each neighbour's weight
    A node without neighbours yields zeros. Arrays are float32, starts and indices int64, all C-contiguous; nothing is
    checked here.
    """
    N, (_, H, V) = len(starts_N1) - 1, value_MHV.shape
    out_NHV = np.empty((N, H, V), np.float32)
    degree = int(np.diff(starts_N1).max(initial=0))
    parts = 1 if len(indices_E) * H * V <= SMALL else current_threads()
    # as much to do in each part as its nodes have neighbours, and each node a little
    costs_N1 = starts_N1 + np.arange(N + 1)
    bounds_P1 = np.searchsorted(costs_N1, costs_N1[-1] * np.arange(parts + 1) // parts)
    scratch_PN = np.empty((parts, degree * H if weights_EH is None else 0), np.float32)
    terms, dots = NodeTerms(*terms or (_NONE_2, _NONE_2)), NodeDots(*dots or (_NONE_3, _NONE_3))
    kept = _NONE_2 if weights_EH is None else weights_EH
    _attend(bounds_P1, starts_N1, indices_E, terms, dots, value_MHV, np.float32(factor), kept, scratch_PN, out_NHV)
    return out_NHV
