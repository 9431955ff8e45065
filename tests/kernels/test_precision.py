"""Products in int8 and bfloat16: exact sums, the oracle's rounding, the same on CPUs with fewer instructions."""

import itertools
import json

import llvmlite.binding as llvm
import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.kernels.arguments import GROUP, MR, NR
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.simd import target
from fastattn.spec.quantized import QuantizedTensor
from tests.children import run_child
from tests.kernels.promises import products_follow_the_oracle
from tests.kernels.test_grouped import SHAPES as SHAPES_OF_GROUPS

SHAPES = [
    (1, 1, 1), (1, NR, 4), (2, NR + 1, 5), (3, GROUP * NR, 64), (4, GROUP * NR + 7, 63), (MR - 1, NR - 1, 17),
    (MR, 2 * NR, 2), (MR + 1, 3 * NR + 5, 33), (49, NR, 129), (97, 5, 3), (5, 2 * GROUP * NR + 1, 30),
]  # fmt: skip


PRECISIONS = "int8", "bfloat16", "int4", "int8_groups"
precisions = pytest.mark.parametrize("precision", PRECISIONS)


@precisions
def test_bias_activation_factor_and_residual_follow_the_oracle(precision):
    groups = precision.startswith(("int4", "int8_"))
    products_follow_the_oracle(operations, precision, SHAPES_OF_GROUPS if groups else SHAPES)


@precisions
def test_the_fused_projection_chooses_what_the_oracle_chooses(precision):
    rng = np.random.default_rng(3)
    weight, bias = rng.standard_normal((2000, 64), np.float32), rng.standard_normal(2000, np.float32)
    x = rng.standard_normal((9, 64), np.float32)
    packed, oracle = (ops.pack_linear(weight, bias, precision) for ops in (operations, reference))
    values, ids = operations.project_top_k(x, packed, 5)
    expected_values, expected_ids = reference.project_top_k(x.astype(np.float64), oracle, 5)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(values, expected_values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
def test_a_row_does_not_depend_on_its_neighbours_or_the_threads(precision):
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((4 * GROUP * NR + 9, 96), np.float32)
    packed = operations.pack_linear(weight, rng.standard_normal(len(weight), np.float32), precision)
    x, residual = rng.standard_normal((101, 96), np.float32), rng.standard_normal((101, len(weight)), np.float32)
    whole = operations.linear(x, packed, "none", residual)
    for first, last in ((0, 1), (1, 3), (3, 7), (7, 15), (15, 28), (28, 44), (44, 101)):
        with operations.use_threads(1 + first % 2):
            part = operations.linear(x[first:last].copy(), packed, "none", residual[first:last].copy())
        np.testing.assert_array_equal(part, whole[first:last])
    best = operations.project_top_k(x, packed, 5)
    for rows in (1, 2, 3, 4, 5, 13, 97):
        for found, expected in zip(operations.project_top_k(x[:rows], packed, 5), best, strict=True):
            np.testing.assert_array_equal(found, expected[:rows])


@precisions
def test_numbers_of_any_size_and_what_is_none(precision):
    packed, x = operations.pack_linear(np.ones((5, 64), np.float32), None, precision), np.zeros((4, 64), np.float32)
    x[1], x[2] = 1e-38, 1e36
    found = operations.linear(x, packed)
    assert (found[[0, 3]] == 0).all() and (np.abs(found[1]) < 1e-30).all()
    np.testing.assert_allclose(found[2], 6.4e37, rtol={"bfloat16": 1e-2, "int8_groups": 1e-4}.get(precision, 1e-5))
    given = operations.pack_linear(
        QuantizedTensor(np.ones((5, 64), np.int8), np.ones(5, np.float32), 3.0), None, "int8"
    )
    for one in (packed, given) if precision == "int8" else (packed,):
        for fault, place in itertools.product((np.nan, np.inf, -np.inf), (0, 63)):
            x = np.ones((3, 64), np.float32)
            x[1, place] = fault
            found = operations.linear(x, one)
            assert not np.isfinite(found[1]).any() and np.isfinite(found[[0, 2]]).all()
            assert np.isnan(found[1]).all() or precision == "bfloat16"


@precisions
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


def test_a_given_input_scale_rounds_to_even_and_cuts_as_numpy_does():
    """Steps of a half and values far beyond 127 among the inputs; every sum is below 2**24, so that it is exact."""
    for scale in (0.37, 12.5, 1e4):
        for rows, outputs, inputs in SHAPES:
            rng = np.random.default_rng(rows * outputs + inputs)
            steps = rng.integers(-40, 41, (rows, inputs)) / 2
            steps[rng.random(steps.shape) < 0.1] *= 1000
            x = (steps / np.float64(scale)).astype(np.float32)
            weight = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
            packed = operations.pack_linear(QuantizedTensor(weight, np.ones(outputs, np.float32), scale), None, "int8")
            staged = np.clip(np.rint(x * np.float32(scale)), -127, 127).astype(np.int64)
            expected = (staged @ weight.T.astype(np.int64)).astype(np.float32) * (np.float32(1) / np.float32(scale))
            np.testing.assert_array_equal(operations.linear(x, packed), expected)
            oracle = reference.pack_linear(QuantizedTensor(weight, np.ones(outputs, np.float32), scale), None, "int8")
            np.testing.assert_allclose(reference.linear(x.astype(np.float64), oracle), expected, rtol=1e-6)


def test_a_given_input_scale_holds_in_the_projection_and_for_no_other_precision():
    rng = np.random.default_rng(6)
    values, x = rng.integers(-127, 128, (500, 40)).astype(np.int8), rng.standard_normal((7, 40), np.float32)
    plain, given = (QuantizedTensor(values, np.full(500, 1e-3, np.float32), scale) for scale in (None, 20.0))
    staged = np.clip(np.rint(x * np.float32(20)), -127, 127) / 20
    expected = reference.project_all(staged, reference.pack_linear(given))
    for found in (
        operations.project_all(x, operations.pack_linear(given, None, "int8")),
        reference.project_all(x, reference.pack_linear(given, None, "int8")),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    best, ids = operations.project_top_k(x, operations.pack_linear(given, None, "int8"), 3)
    np.testing.assert_allclose(best, np.take_along_axis(expected, ids.astype(np.int64), axis=1), atol=1e-5)
    for precision in ("float32", "bfloat16"):
        one, other = (
            operations.linear(x, operations.pack_linear(weight, None, precision)) for weight in (plain, given)
        )
        np.testing.assert_array_equal(one, other)


def test_scales_that_no_row_can_have():
    for scale in (0.0, -1.0, float("nan"), float("inf"), 1e-40):
        with pytest.raises(CheckpointError, match="an input scale should be a number from 1e-30 to 1e30"):
            QuantizedTensor(np.ones((1, 1), np.int8), np.ones(1, np.float32), scale)


LIMITS = {
    "avx2": ("haswell", "+avx2,+fma,+avx,+f16c,+bmi,+bmi2,+popcnt,+sse4.2,+movbe,+sse2"),
    "sse": ("x86-64", "+sse,+sse2,+cx8,+mmx,+fxsr,+64bit"),
}
if llvm.get_host_cpu_features().get("avxvnni"):
    LIMITS["avx2 with vnni"] = ("alderlake", LIMITS["avx2"][1] + ",+avxvnni")
LIMITED = """
import json, sys
from fastattn.simd.target import TARGET
from tests.kernels.test_precision import narrow_products
name = TARGET.name + " with vnni" * (TARGET.name == "avx2" and TARGET.int8 == "vnni")
print(json.dumps([name, *(found.tolist() for found in narrow_products(*sys.argv[1:]))]))
"""


def narrow_products(*precisions: str) -> list[np.ndarray]:
    """Rows of products in each precision, and of projections onto a subset; what every CPU promises is asserted."""
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((31, 160), np.float32), rng.standard_normal((150, 160), np.float32)
    ids, found = np.arange(0, 150, 4, dtype=np.int32), []
    for precision in precisions:
        packed = operations.pack_linear(weight, None, precision)
        found.append(operations.linear(x, packed))
        np.testing.assert_array_equal(operations.linear(x[:1], packed), found[-1][:1])
        if precision in ("int8", "bfloat16"):
            subset = [operations.select_outputs(operations.pack_rows(weight, packed), ids)] * len(x)
            found.append(operations.project_all(x, subset)[:, ids])
    whole = rng.integers(-127, 128, (7, 301)), rng.integers(-127, 128, (150, 301))
    whole[0][:, 0] = 127
    exact = QuantizedTensor(whole[1].astype(np.int8), np.ones(150, np.float32))
    found.append(operations.linear(whole[0].astype(np.float32), operations.pack_linear(exact, None, "int8")))
    np.testing.assert_array_equal(found[-1], whole[0] @ whole[1].T)
    return found


@pytest.mark.skipif(not target.TARGET.name.startswith(("avx", "sse")), reason="limits of x86-64")
@pytest.mark.parametrize(
    ("name", "precisions"),
    [("avx2", ("int8", "int4")), *(pytest.param(name, PRECISIONS, marks=pytest.mark.slow) for name in LIMITS)],
)  # each kernel is compiled for that CPU
def test_fewer_instructions_give_the_same_sums(name, precisions):
    cpu, features = LIMITS[name]
    told, *limited = json.loads(run_child(LIMITED, *precisions, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features))
    assert told == name
    for found, expected in zip(map(np.array, limited), narrow_products(*precisions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
