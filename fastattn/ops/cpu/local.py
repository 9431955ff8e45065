"""Attention to a few keys around a place of each query's own: Luong 2015, local-p, equations 7 to 10."""

import numpy as np

from fastattn.kernels.constants import WINDOW_ROWS
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.simd.target import LANES

_attend = kernel_named("local", "_attend")

_NONE = np.empty((0, 0, 0, 0), np.float32)


def local_attention(
    query_BTHK: np.ndarray,
    key_BSGK: np.ndarray,
    value_BSGV: np.ndarray,
    centre_BTH: np.ndarray,
    windows_BTH2: np.ndarray,
    *,
    scale: float,
    spread: float,
    weights_BHTS: np.ndarray | None = None,
) -> np.ndarray:
    """out_BTHV: the softmax of scale q k over a window of keys, times exp(-(s - centre)**2 spread), times the values.

    windows_BTH2  int64: the first key and the stop of each query's window, from 0 to S
    spread        1 / (2 sigma**2); 0: no Gaussian
    weights_BHTS  written if given: the weights, 0 outside the window
    A query with an empty window yields zeros. Arrays are float32 and C-contiguous; nothing is checked here.
    """
    B, T, H, _ = query_BTHK.shape
    out_BTHV = np.empty((B, T, H, value_BSGV.shape[3]), np.float32)
    widest = int((windows_BTH2[..., 1] - windows_BTH2[..., 0]).max(initial=0))
    scratch_PN = make_scratch_parts(max(B * -(-T // WINDOW_ROWS), 1), max(widest, 1) + LANES, dtype=np.float32)
    if weights_BHTS is not None:
        weights_BHTS.fill(0)
    _attend(
        query_BTHK, key_BSGK, value_BSGV, windows_BTH2, centre_BTH, np.float32(scale), np.float32(spread),
        _NONE if weights_BHTS is None else weights_BHTS, scratch_PN, out_BTHV,
    )  # fmt: skip
    return out_BTHV
