"""A layer's outputs, of which each sentence keeps the largest alone."""

import numpy as np

from fastattn.kernels.constants import GROUP, NR, VOCABULARY_ROWS
from fastattn.ops.cpu.packing import PackedLinear
from fastattn.ops.cpu.staging import scratch_bytes
from fastattn.runtime.arena import make_scratch_parts
from fastattn.runtime.handle import kernel_named

_project_peaks = kernel_named("peaks", "_project_peaks")


def project_peaks(x_ND: np.ndarray, starts_B1: np.ndarray, packed: PackedLinear, least: float = 0.0) -> np.ndarray:
    """The largest of each sentence's x W' + b, no less than ``least``: float32 [B, outputs].

    starts_B1  where each sentence's rows start; the last one's end at N
    """
    panels, lengths_B = len(packed.panels_PSN), np.diff(starts_B1)
    peaks_BF = np.full((len(lengths_B), panels * NR), least, np.float32)
    if len(x_ND):
        owners_N = np.repeat(np.arange(len(lengths_B)), lengths_B)
        size = scratch_bytes(packed.panels_PSN, packed.inputs, min(len(x_ND), VOCABULARY_ROWS))
        scratch_PB = make_scratch_parts(-(-panels // GROUP), size)
        _project_peaks(x_ND, owners_N, packed.panels_PSN, packed.kernel_arrays, scratch_PB, peaks_BF)
    return peaks_BF[:, : packed.outputs]
