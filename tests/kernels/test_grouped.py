"""Weights of 4 and 8 bits in groups: exact sums; weights in panels: the bits of NumPy's product in every form."""

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.kernels.arguments import GROUP, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.simd.arguments import GROUPED_ROWS
from fastattn.spec.quantized import Int4Tensor, QuantizedTensor
from fastattn.spec.rounding import quantize_groups, round_groups
from tests.guard_pages import guarded

SHAPES = [
    (1, 1, 32), (1, NR, 64), (1, GROUP * NR + 1, 96), (2, NR + 1, 32), (3, GROUP * NR, 64), (4, 2 * NR - 1, 96),
    (GROUPED_ROWS - 1, NR - 1, 160), (GROUPED_ROWS, NR + 7, 32), (GROUPED_ROWS + 1, 3 * NR + 5, 64), (97, 5, 32),
    (8, NR, 64), (16, NR + 1, 32),
]  # fmt: skip


def grouped(rng, outputs, inputs, scale=1, minimum=0) -> Int4Tensor:
    """All numbers that there are, with one scale and minimum or random ones."""
    values = rng.integers(0, 256, (outputs, inputs // 2)).astype(np.uint8)
    shape = outputs, inputs // 32
    return Int4Tensor(values, np.full(shape, scale, np.float16), np.full(shape, minimum, np.float16))


def whole_rows(rng, rows, inputs):
    """Rows of integers whose largest magnitude in each group is 127, so that rounding changes nothing."""
    x = rng.integers(-127, 128, (rows, inputs)).astype(np.float32)
    x[:, ::32] = rng.choice([-127, 127], x[:, ::32].shape)
    return x


@pytest.mark.parametrize("precision", ["int4", "int8_groups"])
def test_sums_of_integers_are_exact(precision):
    for rows, outputs, inputs in SHAPES:
        for threads in (1, 2):
            rng = np.random.default_rng(rows * outputs + inputs)
            tensor, x = grouped(rng, outputs, inputs, 2, -7), whole_rows(rng, rows, inputs)
            tensor.values_FE[0], x[0] = 255, np.copysign(127, x[0])  # the greatest sums
            weight = tensor.float32()
            if precision == "int8_groups":
                weight = 2 * whole_rows(rng, outputs, inputs)
                weight[0] = 254
            with operations.use_threads(threads):
                found = operations.linear(
                    x, operations.pack_linear(tensor if precision == "int4" else weight, None, precision)
                )
            np.testing.assert_array_equal(found, x @ weight.T)


@pytest.mark.parametrize("precision", ["int4", "int8_groups"])
def test_a_row_has_the_same_bits_in_any_company(precision):
    """By tiles of every height, of one group and of several."""
    for groups in (1, 2, 3, 4, 9):
        rng = np.random.default_rng(groups)
        weight, x = (rng.standard_normal((count, 32 * groups), np.float32) for count in (NR + 19, 49))
        packed, bias = operations.pack_linear(weight, x[0, :1].repeat(NR + 19), precision), x[:, :1] * weight[:, 0]
        alone = np.concatenate([operations.linear(x[n : n + 1], packed, "none", bias[n : n + 1]) for n in range(49)])
        for first, last in ((0, 15), (0, 16), (0, 31), (3, 35), (1, 49), (20, 45)):
            found = operations.linear(x[first:last], packed, "none", bias[first:last])
            np.testing.assert_array_equal(found, alone[first:last])


def before_a_wall(array):
    """A copy that ends where memory begins that nobody may read."""
    copy = guarded(array.nbytes)[-array.nbytes :].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.skipif(os.name == "nt", reason="mprotect")
@pytest.mark.parametrize("precision", ["int4", "int8_groups"])
def test_products_read_nothing_behind_their_operands(precision):
    """A fault ends the process."""
    for rows, groups in itertools.product((1, 8, 15, 16, 17, 33), (1, 2, 3, 4)):
        rng = np.random.default_rng(rows)
        shapes = (NR, 32 * groups), (rows, 32 * groups), (rows, NR)
        weight, x, residual = (rng.standard_normal(shape, np.float32) for shape in shapes)
        packed = operations.pack_linear(weight, None, precision)
        walled = replace(packed, panels_PSN=before_a_wall(packed.panels_PSN), bias=before_a_wall(packed.bias))
        found = operations.linear(before_a_wall(x), walled, "none", before_a_wall(residual))
        np.testing.assert_array_equal(found, operations.linear(x, packed, "none", residual))


def test_a_projection_and_an_embedding_of_8_bits():
    for rows in (1, 5, GROUPED_ROWS):
        rng = np.random.default_rng(rows)
        x, weight = (rng.standard_normal((count, 64), np.float32) for count in (rows, 3 * NR - 5))
        packed, oracle = (ops.pack_linear(weight, None, "int8_groups") for ops in (operations, reference))
        targets = np.arange(rows, dtype=np.int32)
        found, expected = (ops.log_probs(x, one, targets) for ops, one in ((operations, packed), (reference, oracle)))
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)
        ids = np.array([0, -1, NR, len(weight) - 1], np.int32)
        np.testing.assert_array_equal(operations.embed(ids, packed), oracle.weight_FD[ids] * (ids >= 0)[:, None])


def test_groups_of_8_bits_are_found_again_and_no_faults_are_kept():
    rng = np.random.default_rng(2)
    scales = np.repeat(rng.choice([0, 1e-6, 0.0123, 3], (7, 3)).astype(np.float16), 32, axis=1).astype(np.float32)
    weight = whole_rows(rng, 7, 96) * scales
    values, found = round_groups(weight, "w")
    np.testing.assert_array_equal(values * np.repeat(found.astype(np.float32), 32, axis=1), weight)
    for fault in (np.nan, np.inf, 1e9):
        weight[3, 40] = fault
        with pytest.raises(CheckpointError, match="w has values that are not finite, or too great"):
            round_groups(weight, "w")


def test_a_group_is_rounded_by_its_own_greatest_magnitude_wherever_that_is():
    ones = grouped(np.random.default_rng(0), 1, 64, 0, 1)
    x = np.full((64, 64), 0.3, np.float32)
    x[range(64), range(64)] = -127
    found = operations.linear(x, operations.pack_linear(ones, None, "int4"))
    np.testing.assert_allclose(found[:, 0], -127 + 32 * 0.3, rtol=1e-5)  # beside -127, 0.3 is 0


def test_other_precisions_take_what_the_numbers_stand_for():
    rng = np.random.default_rng(4)
    x, groups = rng.standard_normal((3, 64), np.float32), quantize_groups(rng.standard_normal((50, 64), np.float32), "")
    for precision, tensor in itertools.product(("float32", "bfloat16", "int8"), (groups, quantized(50, 64))):
        wide = tensor.float32()
        for ops in (operations, reference) if precision != "int8" or tensor is groups else ():
            one, other = (ops.linear(x, ops.pack_linear(w, None, precision)) for w in (tensor, wide))
            np.testing.assert_array_equal(one, other)


def quantized(rows: int, columns: int) -> QuantizedTensor:
    rng = np.random.default_rng(rows * 7919 + columns)
    values_FD = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
    return QuantizedTensor(values_FD, np.exp(rng.normal(-5, 3, rows)).astype(np.float32))


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
