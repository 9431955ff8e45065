"""Weights in panels, from float32 and from int8: the same bits as NumPy's product, in every form of the kernel."""

import numpy as np

from fastattn.kernels.arguments import NR
from fastattn.kernels.arguments import PACKED_COLUMNS as COLUMNS
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.quantized import QuantizedTensor

# (outputs, inputs) around the widths of panels, vectors and blocks; nothing at all.
SIZES = [(1, 1), (NR - 1, 7), (NR, 8), (NR + 1, 9), (3, 0), (0, 3)]
SIZES += [(2 * NR, COLUMNS - 1), (2 * NR + 3, COLUMNS), (37, COLUMNS + 1), (50, 3 * COLUMNS + 13)]


def quantized(rows: int, columns: int) -> QuantizedTensor:
    rng = np.random.default_rng(rows * 7919 + columns)
    values_FD = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
    return QuantizedTensor(values_FD, np.exp(rng.normal(-5, 3, rows)).astype(np.float32))


def panels(weight_FD: np.ndarray) -> np.ndarray:
    """The layout in plain NumPy."""
    outputs, inputs = weight_FD.shape
    padded = np.zeros((-(-outputs // NR), NR, inputs), np.float32)
    padded.reshape(padded.shape[0] * NR, inputs)[:outputs] = weight_FD
    return padded.swapaxes(1, 2)


def test_both_types_give_the_panels_of_their_float32() -> None:
    for size in SIZES:
        for threads in (1, 2):
            tensor = quantized(*size)
            expected = panels(tensor.float32())
            with operations.use_threads(threads):
                for weight in (tensor, tensor.float32(), np.asfortranarray(tensor.float32())):
                    packed = operations.pack_linear(weight, np.arange(size[0], dtype=np.float32))
                    np.testing.assert_array_equal(packed.panels_PSN, expected)
                    assert (packed.outputs, packed.inputs) == size
                    np.testing.assert_array_equal(packed.bias[: size[0]], np.arange(size[0]))
                    assert np.isneginf(packed.bias[size[0] :]).all()


def test_float32_keeps_every_bit() -> None:
    weight = np.array([[-0.0, np.inf, -np.inf, 1e-45, 3.4e38, np.nan]], np.float32)
    packed = operations.pack_linear(weight).panels_PSN[0, :, 0]
    np.testing.assert_array_equal(packed, weight[0])
    assert np.signbit(packed[0])


def test_rows_of_an_int8_table_have_the_bits_of_the_float32_table() -> None:
    for scale in (1.0, 22.627417):
        for size in ((1, 1), (5, 8), (11, 13), (20, 129)):
            table, rng = quantized(*size), np.random.default_rng(1)
            ids_N = rng.integers(-1, size[0], 30).astype(np.int32)
            positions_N = rng.integers(0, 9, 30).astype(np.int32)
            position_table_PD = rng.standard_normal((9, size[1])).astype(np.float32)
            for ops in (operations, reference):
                for places in ((), (positions_N, position_table_PD)):
                    for stored in (table, ops.pack_linear(table, None, "int8")):
                        got_ND = ops.embed(ids_N, stored, scale, *places)
                        np.testing.assert_array_equal(got_ND, ops.embed(ids_N, table.float32(), scale, *places))
                        assert got_ND.dtype == np.float32


def test_the_reference_computes_with_what_an_int8_weight_stands_for() -> None:
    tensor, x_ND = quantized(5, 7), np.ones((2, 7), np.float32)
    np.testing.assert_array_equal(
        reference.linear(x_ND, reference.pack_linear(tensor)),
        x_ND @ (tensor.values_FD * tensor.multipliers_F[:, None]).T,
    )
