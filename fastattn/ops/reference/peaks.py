"""A layer's outputs, of which each sentence keeps the largest alone."""

import numpy as np

from fastattn.ops.reference.matmul import linear
from fastattn.ops.reference.packing import ReferenceLinear


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: ReferenceLinear, least: float = 0.0) -> np.ndarray:
    """The largest of each sentence's x W' + b, no less than ``least``: [B, outputs]."""
    outputs_NF = linear(x_ND, packed)
    spans = [outputs_NF[first:end] for first, end in zip(starts_B1, starts_B1[1:])]
    peaks = [rows_TF.max(axis=0, initial=least) for rows_TF in spans]
    return np.array(peaks, x_ND.dtype).reshape(len(spans), packed.outputs)
