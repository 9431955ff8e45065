"""What additive attention's kernels are given (Bahdanau 2015); see ``kernels/attention/additive_tile.py``."""

import numpy as np

from fastattn.simd.constants import LOG2_E

# Where a sentence has queries and keys beyond 35, tanh itself is computed.
FAR = 35.0


def vector_factors(vector_HD: np.ndarray) -> np.ndarray:
    """float32 [H, D + 1] for ``add_keys``, from v of each head; scores are then in base 2, as all the kernels' are."""
    scaled_HD = vector_HD.astype(np.float64) * LOG2_E
    factors_HE = np.empty((len(vector_HD), vector_HD.shape[1] + 1), np.float32)
    factors_HE[:, :-1], factors_HE[:, -1] = -2 * scaled_HD, scaled_HD.sum(axis=1)
    return factors_HE


def far_heads(query_THD: np.ndarray, key_SGD: np.ndarray) -> np.ndarray:
    """[H]: whether a head of a sentence has queries and keys too far from zero for exponentials of both."""
    return _far(query_THD) & np.repeat(_far(key_SGD), query_THD.shape[1] // key_SGD.shape[1])


def _far(x_NHD: np.ndarray) -> np.ndarray:
    """[H]: whether any number of a head is beyond FAR, or NaN."""
    return ~((x_NHD.max(axis=(0, 2), initial=0) <= FAR) & (x_NHD.min(axis=(0, 2), initial=0) >= -FAR))
