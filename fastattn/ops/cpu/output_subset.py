"""The projection onto subsets of the vocabulary, one for each sentence; see ``kernels/output_subset.py``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastattn.kernels.constants import SUBSET_ROWS
from fastattn.ops.cpu.logits import NO_TARGETS, empty_lists, prepared
from fastattn.ops.cpu.packing import PackedLinear, as_float32, as_int8
from fastattn.ops.cpu.staging import scratch_bytes
from fastattn.ops.edits import Edits
from fastattn.ops.step_rows import SubsetRows
from fastattn.runtime.arena import empty, make_scratch_parts
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.recording import unrecordable
from fastattn.simd.formats import format_for
from fastattn.simd.target import LANES
from fastattn.spec.quantized import Tensor
from fastattn.spec.rounding import bfloat16_bits

_choose = kernel_named("output_subset", "_choose")
_MINUS_INFINITY = np.float32(-np.inf).view(np.int32)


@dataclass(frozen=True, eq=False)
class RowLinear:
    """Weights of a linear layer by rows, the same numbers as in ``packed``, which has bias and scales.

    rows_FD  float32, uint16 (the bits of bfloat16) or int8; padded with zeros to whole vectors
    """

    packed: PackedLinear
    rows_FD: np.ndarray


@dataclass(frozen=True, eq=False)
class OutputSubset:
    """Some outputs of a linear layer, from which a row chooses.

    ids      int32, ascending
    words    int32 [2 or 4, columns], padded to whole vectors: ids, bits of their biases (-inf in the padding); int8
             only: bits of their factors, corrections
    place    for the kernel: address of the words, number of columns, number of ids
    """

    linear: RowLinear
    ids: np.ndarray
    words: np.ndarray
    place: tuple[int, int, int]


def pack_rows(weight_FD: Tensor, packed: PackedLinear) -> RowLinear:
    """The weights of ``packed`` by rows; not copied if they are stored so and the width is of whole vectors."""
    precision = {"f": "float32", "H": "bfloat16", "b": "int8"}[packed.panels_PSN.dtype.char]
    rows_FD = _ROWS[precision](weight_FD)
    missing = -rows_FD.shape[1] % (LANES * format_for(precision).group)
    if missing:
        rows_FD = np.pad(rows_FD, ((0, 0), (0, missing)))
    return RowLinear(packed, np.require(rows_FD, requirements=("C", "W")))


_ROWS = {
    "float32": as_float32,
    "bfloat16": lambda weight_FD: bfloat16_bits(as_float32(weight_FD)),
    "int8": lambda weight_FD: as_int8(weight_FD).values_FD,
}


def select_outputs(linear: RowLinear, ids: np.ndarray) -> OutputSubset:
    """The outputs ``ids``: int32, ascending, at least one, all in range."""
    packed = linear.packed
    count, columns = len(ids), -(-len(ids) // LANES) * LANES
    parts = [packed.bias.view(np.int32)]
    if len(packed.factors):
        parts += [packed.factors.view(np.int32), packed.corrections]
    words = np.empty((1 + len(parts), columns), np.int32)
    words[0, :count] = ids
    assert 0 <= words[0, 0] <= words[0, count - 1] < packed.outputs
    words[0, count:] = words[0, 0]
    places = words[0].astype(np.intp)
    for n, part in enumerate(parts):
        part.take(places, out=words[n + 1], mode="clip")  # other modes copy the result once more
    words[1, count:] = _MINUS_INFINITY
    return OutputSubset(linear, ids, words, (words.ctypes.data, columns, count))


def choose_from_subsets(
    x_RD: np.ndarray,
    subsets_R: Sequence[OutputSubset] | SubsetRows,
    k: int,
    edits: Edits,
    targets_R: np.ndarray,
    summed: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``choose_from_all``, each row from its own subset of the outputs; rows of one sentence share an OutputSubset."""
    lists, log_sums_R = empty_lists(len(x_RD), k), empty(len(x_RD))
    given = prepared(edits, len(x_RD), targets_R)
    _run(x_RD, subsets_R, given, lists, log_sums_R, summed)
    return *lists, given.logits_R, log_sums_R


def logits_of_subsets(x_RD: np.ndarray, subsets_R: Sequence[OutputSubset], edits: Edits) -> np.ndarray:
    """A line of logits a row, those of ``subsets_R[r].ids`` in the first columns."""
    given = prepared(edits, len(x_RD), NO_TARGETS)
    return _run(x_RD, subsets_R, given, empty_lists(len(x_RD), 0), np.empty(0, np.float32), False)


def _run(x_RD, subsets_R, edits, lists, log_sums_R, summed):
    """The kernel; the lines of logits."""
    R = len(x_RD)
    if isinstance(subsets_R, SubsetRows):
        linear, runs_G4, columns = subsets_R
    else:
        linear = subsets_R[0].linear
        starts = [r for r in range(R) if r == 0 or r % SUBSET_ROWS == 0 or subsets_R[r] is not subsets_R[r - 1]]
        runs_G4 = np.array([(r, *subsets_R[r].place) for r in starts], np.int64)
        columns = int(np.max(runs_G4[:, 2]))
    missing = linear.rows_FD.shape[1] - x_RD.shape[1]
    if missing:
        unrecordable()
        x_RD = np.pad(x_RD, ((0, 0), (0, missing)))
    scratch_PB = make_scratch_parts(len(runs_G4), scratch_bytes(linear.rows_FD, x_RD.shape[1], SUBSET_ROWS))
    lines_LC = empty((len(scratch_PB) * SUBSET_ROWS if len(log_sums_R) else R, columns))
    arrays = linear.packed.kernel_arrays
    _choose(x_RD, linear.rows_FD, arrays, runs_G4, edits, lists, log_sums_R, summed, scratch_PB, lines_LC)
    return lines_LC
