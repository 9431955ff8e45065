"""Weights of 4 and 8 bits in groups: exact sums, the oracle's rounding, bits of the row alone, other CPUs."""

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.kernels.arguments import GROUP, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.simd import target
from fastattn.simd.arguments import GROUPED_ROWS
from fastattn.spec.quantized import Int4Tensor
from fastattn.spec.rounding import quantize_groups, round_groups
from tests.kernels.test_precision import LIMITS, products

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


PRECISIONS = pytest.mark.parametrize("precision", ["int4", "int8_groups"])


@PRECISIONS
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), SHAPES)
def test_sums_of_integers_are_exact(precision, rows, outputs, inputs, threads):
    rng = np.random.default_rng(rows * outputs + inputs)
    tensor, x = grouped(rng, outputs, inputs, 2, -7), whole_rows(rng, rows, inputs)
    tensor.values_FE[0], x[0] = 255, np.copysign(127, x[0])  # the greatest sums
    weight = tensor.float32()
    if precision == "int8_groups":
        weight = 2 * whole_rows(rng, outputs, inputs)
        weight[0] = 254
    with operations.use_threads(threads):
        found = operations.linear(x, operations.pack_linear(tensor if precision == "int4" else weight, None, precision))
    np.testing.assert_array_equal(found, x @ weight.T)


@pytest.mark.parametrize("rows", [1, 5, GROUPED_ROWS])
def test_a_projection_and_an_embedding_of_8_bits(rows):
    """Panels in groups once ran over their end there."""
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


@PRECISIONS
@pytest.mark.parametrize(("rows", "outputs", "inputs"), SHAPES)
def test_bias_activation_factor_and_residual_follow_the_oracle(precision, rows, outputs, inputs):
    rng = np.random.default_rng(rows + outputs + inputs)
    x, weight, bias, factor, residual = (
        rng.standard_normal(shape, np.float32)
        for shape in ((rows, inputs), (outputs, inputs), outputs, (rows, outputs), (rows, outputs))
    )
    packed, oracle = (ops.pack_linear(weight, bias, precision) for ops in (operations, reference))
    for arguments in (("none",), ("gelu",), ("none", residual), ("swish", residual, factor)):
        found = operations.linear(x, packed, *arguments)
        expected = reference.linear(x.astype(np.float64), oracle, *arguments)
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)


@PRECISIONS
def test_a_row_does_not_depend_on_its_neighbours_or_the_threads(precision):
    rng = np.random.default_rng(9)
    packed = operations.pack_linear(rng.standard_normal((4 * GROUP * NR + 9, 96), np.float32), None, precision)
    x, residual = rng.standard_normal((101, 96), np.float32), rng.standard_normal((101, packed.outputs), np.float32)
    whole = operations.linear(x, packed, "none", residual)
    for first, last in ((0, 1), (1, 3), (3, 7), (7, 15), (15, 28), (28, 44), (44, 101)):
        with operations.use_threads(1 + first % 2):
            part = operations.linear(x[first:last].copy(), packed, "none", residual[first:last].copy())
        np.testing.assert_array_equal(part, whole[first:last])


def test_a_group_is_rounded_by_its_own_greatest_magnitude_wherever_that_is():
    """Once the lanes' maximum was right at even places alone."""
    ones = grouped(np.random.default_rng(0), 1, 64, 0, 1)
    x = np.full((64, 64), 0.3, np.float32)
    x[range(64), range(64)] = -127
    found = operations.linear(x, operations.pack_linear(ones, None, "int4"))
    np.testing.assert_allclose(found[:, 0], -127 + 32 * 0.3, rtol=1e-5)  # beside -127, 0.3 is 0


@pytest.mark.parametrize("fault", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 63])
def test_what_is_not_a_number_stays_none(fault, place):
    x = np.ones((3, 64), np.float32)
    x[1, place] = fault
    found = operations.linear(x, operations.pack_linear(np.ones((5, 64), np.float32), None, "int4"))
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


def test_rows_of_zeros_of_tiny_and_of_huge_numbers():
    x = np.zeros((3, 64), np.float32)
    x[1], x[2] = 1e-38, 1e36
    found = operations.linear(x, operations.pack_linear(np.ones((3, 64), np.float32), None, "int4"))
    assert (found[0] == 0).all() and (np.abs(found[1]) < 1e-30).all()
    np.testing.assert_allclose(found[2], 6.4e37, rtol=1e-5)


def test_other_precisions_take_what_the_numbers_stand_for():
    rng = np.random.default_rng(4)
    tensor = quantize_groups(rng.standard_normal((50, 64), np.float32), "")
    x = rng.standard_normal((3, 64), np.float32)
    for precision in ("float32", "bfloat16", "int8"):
        for ops in (operations, reference):
            one, other = (ops.linear(x, ops.pack_linear(w, None, precision)) for w in (tensor, tensor.float32()))
            np.testing.assert_array_equal(one, other)


@PRECISIONS
def test_packed_arrays_have_the_shapes_that_files_are_checked_against(precision):
    rng = np.random.default_rng(3)
    for outputs, inputs in ((1, 32), (NR + 1, 96)):
        packed = operations.pack_linear(rng.standard_normal((outputs, inputs), np.float32), None, precision)
        arrays = packed.arrays()
        shapes = {name: array.shape for name, array in arrays.items()}
        assert shapes == operations.packed_shapes(outputs, inputs, precision, False)
        x = rng.standard_normal((2, inputs), np.float32)
        again = operations.packed_of(outputs, inputs, arrays)
        np.testing.assert_array_equal(operations.linear(x, again), operations.linear(x, packed))


CHILD = """
import json, sys, numpy as np
from fastattn.ops import cpu as operations
from fastattn.simd.target import TARGET
rng = np.random.default_rng(0)
x, weight = rng.standard_normal((31, 160), np.float32), rng.standard_normal((150, 160), np.float32)
packed = [operations.pack_linear(weight, None, precision) for precision in ("int4", "int8_groups")]
found = [operations.linear(x[:n], one).tolist() for one in packed for n in (31, 1)]
name = TARGET.name + " with vnni" * (TARGET.name == "avx2" and TARGET.int8 == "vnni")
print(json.dumps([name, *found]))
"""


@pytest.mark.skipif(not target.TARGET.name.startswith(("avx", "sse")), reason="limits of x86-64")
@pytest.mark.parametrize("name", LIMITS)
def test_fewer_instructions_give_the_same_sums(name):
    cpu, features = LIMITS[name]
    limited, native = products(CHILD, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features), products(CHILD)
    assert limited[0] == name and limited[1][:1] == limited[2] and limited[3][:1] == limited[4]
    for found, expected in zip(limited[1:], native[1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
