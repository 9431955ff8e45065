"""Products in tile registers, bit for bit: on a CPU that has them, or by their model (test_amx runs both)."""

import numpy as np
import pytest

from fastattn.kernels.arguments import GROUP, NR
from fastattn.kernels.matmul import LEAST_AMX_ROWS
from fastattn.ops import cpu as operations
from fastattn.ops.cpu.matmul import ROW_BLOCK, packed_layout
from fastattn.simd.arguments import LINE, TILE_STEPS
from fastattn.simd.target import TARGET, tiles_refusal
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.rounding import bfloat16_bits
from tests.kernels.cases import fill_new_memory
from tests.simd.amx_sums import block_sums, widened

pytestmark = pytest.mark.skipif(
    not TARGET.tiles, reason=f"no tile registers: {tiles_refusal() or 'not compiled for AMX'}"
)
# Around the rows and columns of registers, tiles, panels and tasks, and the steps of a block.
SHAPES = [
    (1, 1, 1), (1, GROUP * NR, 33), (3, NR + 1, 31), (7, 2 * NR, 64), (LEAST_AMX_ROWS, NR, 32), (15, 16, 63),
    (16, NR - 1, 65), (17, 17, 128), (31, NR + 16, 5), (32, NR, 129), (33, 33, 70), (ROW_BLOCK + 9, NR + 5, 40),
]  # fmt: skip


def drawn(*shapes):
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def sums_of_bfloat16(x_ND, weight_FD):
    a_ND, b_FD = (widened(bfloat16_bits(array)) for array in (x_ND, weight_FD))
    a_ND, b_FD = (np.pad(array, ((0, 0), (0, -array.shape[1] % 32))) for array in (a_ND, b_FD))
    sums_NF = np.zeros((len(a_ND), len(b_FD)), np.float32)
    for k in range(0, a_ND.shape[1], 32):
        sums_NF = block_sums(a_ND[:, k : k + 32], b_FD[:, k : k + 32].T, sums_NF)
    return sums_NF


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_bfloat16_have_the_order_of_the_instruction(shape, threads):
    rows, outputs, inputs = shape
    x, weight, bias, residual = drawn((rows, inputs), (outputs, inputs), (outputs,), (rows, outputs))
    packed = operations.pack_linear(weight, bias, "bfloat16")
    expected = sums_of_bfloat16(x, weight) + bias
    with operations.use_threads(threads):
        np.testing.assert_array_equal(operations.linear(x, packed), expected)
        np.testing.assert_array_equal(operations.linear(x, packed, "none", residual), expected + residual)
        found = operations.linear(x, packed, "relu", residual, residual)
    np.testing.assert_array_equal(found, np.maximum(expected, 0) * residual + residual)


def test_bfloat16_flushes_what_is_too_small_and_keeps_what_is_no_number():
    x, weight = drawn((20, 50), (NR, 50))
    x[1], x[2, 7], x[3, 8], x[4, 9] = 1e-39, np.nan, np.inf, 3e38
    weight[5] *= np.float32(1e-38)
    found = operations.linear(x, operations.pack_linear(weight, None, "bfloat16"))
    np.testing.assert_array_equal(found, sums_of_bfloat16(x, weight))
    assert not found[1].any() and np.isnan(found[2]).all() and not np.isnan(np.delete(found, (2, 3), 0)).any()


def test_int8_has_the_bits_of_vectors_with_a_given_scale_and_balanced_inputs():
    values, x = np.random.default_rng(1).integers(-127, 128, (NR + 3, 70)).astype(np.int8), drawn((21, 70))[0]
    multipliers, factors = np.full(len(values), 1e-3, np.float32), np.linspace(0.5, 2, 70, dtype=np.float32)
    given = QuantizedTensor(values, multipliers, 20.0), QuantizedTensor(values, multipliers, None, factors)
    for packed in (operations.pack_linear(tensor, None, "int8") for tensor in given):
        step = LEAST_AMX_ROWS - 1  # fewer than tiles take
        few = [operations.linear(x[r : r + step], packed) for r in range(0, len(x), step)]
        np.testing.assert_array_equal(operations.linear(x, packed), np.concatenate(few))


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_what_is_made_of_products_has_their_bits(precision):
    x, weight, gate = drawn((40, 45), (GROUP * NR + 20, 45), (GROUP * NR + 20, 45))
    packed, gate = (operations.pack_linear(array, None, precision) for array in (weight, gate))
    logits, starts = operations.linear(x, packed), np.array([0, 3, 3, 25, 40])
    expected = operations.linear(x, packed, "swish", None, operations.linear(x, gate))
    np.testing.assert_array_equal(operations.gated(x, packed, gate, "swish"), expected)
    expected = [logits[first:last].max(axis=0, initial=0) for first, last in zip(starts, starts[1:])]
    np.testing.assert_array_equal(operations.project_peaks(x, starts, packed), expected)
    _, ids = operations.project_top_k(x, packed, 4)
    np.testing.assert_array_equal(ids, np.argsort(-logits, axis=1, kind="stable")[:, :4])
    assert packed.panels_PSN.shape[1] % TILE_STEPS == packed.panels_PSN.ctypes.data % LINE == 0
    assert packed_layout(precision).endswith(f"-{TILE_STEPS}") and not packed_layout("float32").endswith("-16")


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_what_lies_behind_the_rows_changes_nothing(precision, monkeypatch):
    """Registers read whole blocks of rows and steps: what memory held before, not a number above all."""
    x, weight = drawn((19, 37), (50, 37))
    packed = operations.pack_linear(weight, None, precision)
    expected = operations.linear(x, packed)
    fill_new_memory(monkeypatch)
    np.testing.assert_array_equal(operations.linear(x, packed), expected)
    np.testing.assert_array_equal(operations.linear(x, operations.pack_linear(weight, None, precision)), expected)
