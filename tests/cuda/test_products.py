"""Products and projections beyond the table of cases: narrow precisions, subsets, edits, NaN, pieces, company."""

import subprocess
import sys

import numpy as np
import pytest

from bench import cuda_on_host as on_host
from fastattn.kernels.arguments import NR
from fastattn.ops import cpu, cuda, reference
from fastattn.ops.cuda.card import TILE, download, upload
from fastattn.ops.cuda.matmul import FEW_ROWS, SLAB
from fastattn.ops.cuda.project import MOST_PIECES
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.rounding import as_floats, bfloat16_bits, quantize
from tests import ROOT
from tests.kernels.promises import PROMISES, SubsetRows, choices_agree_with_the_oracle, products_follow_the_oracle

PRECISIONS = ["float32", "bfloat16", "int8"]
V = 2 * MOST_PIECES * TILE + TILE + 3  # pieces of more than a tile, the last of them not whole
SHAPES = [
    (1, 1, 1),
    (FEW_ROWS, TILE - 1, 2 * SLAB),
    (FEW_ROWS + 1, TILE + 1, 4 * SLAB + 3),
    (2 * TILE + 1, 2 * TILE, SLAB + 1),
]


def linear(x_ND, packed, *arguments):
    return download(cuda.linear(upload(x_ND), packed, *(upload(one) for one in arguments)))


def normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def test_int8_has_the_bits_of_the_cpu():
    """Steps of a half and values far beyond 127 among the inputs."""
    for scale in (None, 0.37, 1e4):
        for rows, outputs, inputs in SHAPES:
            rng = np.random.default_rng(rows * outputs + inputs)
            x_ND = (rng.integers(-600, 601, (rows, inputs)) / 2 / (scale or 1)).astype(np.float32)
            values_FD, (multipliers_F, bias_F) = (
                rng.integers(-127, 128, (outputs, inputs)).astype(np.int8),
                normal(1, *[outputs] * 2),
            )
            weight = QuantizedTensor(values_FD, abs(multipliers_F), scale)
            expected = cpu.linear(x_ND, cpu.pack_linear(weight, bias_F, "int8"))
            np.testing.assert_allclose(
                linear(x_ND, cuda.pack_linear(weight, bias_F, "int8")), expected, rtol=2e-7, atol=1e-6
            )


def test_rows_are_rounded_as_numpy_rounds_them():
    """With weights of one input each, outputs are the rows as they were rounded."""
    for balanced in (False, True):
        (x_ND, factors_D) = normal(2, (5, 37), 37)
        factors_D = np.abs(factors_D) + np.float32(0.1) if balanced else None
        weight = QuantizedTensor(np.eye(37, dtype=np.int8), np.ones(37, np.float32), None, factors_D)
        oracle = reference.pack_linear(weight, None, "int8")
        expected = oracle.stage(x_ND) * (1 if factors_D is None else factors_D)
        np.testing.assert_allclose(linear(x_ND, cuda.pack_linear(weight, None, "int8")), expected, rtol=3e-7)
        one = np.eye(37, dtype=np.float32)
        ties_D = np.array([1.00390625, 1.01171875, -1.00390625, 1e-45, 3.3e38, 0.1, -0.0, 7.5, np.pi], np.float32)
        row_D = np.resize(ties_D, 37)
        found = linear(np.diag(row_D), cuda.pack_linear(np.ones((3, 37), np.float32), None, "bfloat16"))
        np.testing.assert_array_equal(found[:, 0], as_floats(bfloat16_bits(row_D)))
        assert (linear(one, cuda.pack_linear(one, None, "bfloat16")) == one).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bias_activation_factor_and_residual_follow_the_oracle(precision):
    products_follow_the_oracle(on_host, precision, SHAPES)
    for rows, outputs, inputs in SHAPES:
        x, weight, bias = normal(3, (rows, inputs), (outputs, inputs), outputs)
        packed, oracle = (ops.pack_linear(weight, bias, precision) for ops in (cuda, reference))
        gate, oracle_gate = (ops.pack_linear(weight[::-1].copy(), None, precision) for ops in (cuda, reference))
        expected = reference.gated(x.astype(np.float64), oracle, oracle_gate, "relu")
        np.testing.assert_allclose(
            download(cuda.gated(upload(x), packed, gate, "relu")), expected, rtol=3e-5, atol=3e-5
        )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours(precision):
    x, weight, residual = normal(4, (2 * TILE + 3, 5), (V, 5), (2 * TILE + 3, V))
    packed = cuda.pack_linear(weight[: TILE + 3], weight[: TILE + 3, 0], precision)
    residual = residual[:, : TILE + 3].copy()
    whole = linear(x, packed, "swish", residual)
    wide = cuda.pack_linear(weight, weight[:, 1], precision)
    picked = [cuda.select_outputs(cuda.pack_rows(weight, wide), np.arange(b, V, b + 2, dtype=np.int32)) for b in (0, 7)]
    best = cuda.project_top_k(x[:9], wide, 3)
    few = cuda.project_top_k(x[:9], [picked[r > 1] for r in range(9)], 3)
    for first, last in ((0, 1), (1, FEW_ROWS + 1), (3, 2 * TILE + 3)):
        part = linear(x[first:last].copy(), packed, "swish", residual[first:last].copy())
        np.testing.assert_array_equal(part, whole[first:last])
    for first, last in ((0, 1), (1, 4), (3, 9)):
        for found, expected in zip(cuda.project_top_k(x[first:last].copy(), wide, 3), best, strict=True):
            np.testing.assert_array_equal(found, expected[first:last])
        subsets = [picked[r > 1] for r in range(first, last)]
        for found, expected in zip(cuda.project_top_k(x[first:last].copy(), subsets, 3), few, strict=True):
            np.testing.assert_array_equal(found, expected[first:last])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("fault", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_a_number_stays_in_its_row(precision, scale, fault):
    x, outputs = np.ones((3, 9), np.float32), NR  # a whole panel of the CPU's, whose padding would be a NaN too
    weight = QuantizedTensor(np.ones((outputs, 9), np.int8), np.ones(outputs, np.float32), scale)
    x[1, 8] = fault

    def results(ops):
        packed = ops.pack_linear(weight, None, precision)
        yield ops.linear(x, packed) if ops is cpu else linear(x, packed)
        yield from ops.project_top_k(x, packed, 2)
        yield from ops.project_top_k(x, packed, 2, normalized=False)
        yield ops.log_probs(x, packed, np.zeros(3, np.int32))
        yield ops.project_all(x, packed)

    found, *others = results(cuda)
    assert not np.isfinite(found[1]).any() and np.isfinite(found[[0, 2]]).all()
    for one, expected in zip((found, *others), results(cpu), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-6)
    peaks = cuda.project_peaks(x, np.array([0, 2, 3]), cuda.pack_linear(weight, None, precision), -np.inf)
    np.testing.assert_array_equal(peaks, [np.maximum(found[0], found[1]), found[2]])  # of which NaN is the greatest


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of -inf times the zeros where a tile has no row, too
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promises(promise):
    promise(on_host)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_choices_agree_with_the_oracle(precision):
    (weight,), counts = normal(9, (V, 11)), [1, FEW_ROWS + 2, 3, 1, 1] if precision == "float32" else [1, 2, 0, 1, 1]
    layer = SubsetRows(on_host, precision, weight, [1, TILE, TILE + 1, 3 * TILE, V], counts)
    for whole in (False, True):
        choices_agree_with_the_oracle(layer, 3e-5, whole)


def test_ties_go_to_the_lower_id_in_lists_of_any_length():
    for k in (1, TILE, V, V + 2):
        weight = (np.arange(V) % 3).astype(np.float32)[:, None]
        values, ids = cuda.project_top_k(np.ones((2, 1), np.float32), cuda.pack_linear(weight), k, normalized=False)
        order = np.argsort(-weight[:, 0], kind="stable")
        expected = np.r_[order, [-1, -1]][:k]
        assert ids.tolist() == [expected.tolist()] * 2
        np.testing.assert_array_equal(values[0], np.r_[weight[order, 0], [-np.inf, -np.inf]][:k])


def test_peaks_of_sentences():
    for precision in PRECISIONS:
        x, weight, bias = normal(12, (TILE + FEW_ROWS + 4, 13), (TILE + 2, 13), TILE + 2)
        starts = np.array([0, 2, 2, 3 + TILE, len(x)])
        packed, oracle = (ops.pack_linear(weight, bias, precision) for ops in (cuda, reference))
        for least in (0.0, -np.inf):
            expected = reference.project_peaks(x.astype(np.float64), starts, oracle, least)
            np.testing.assert_allclose(cuda.project_peaks(x, starts, packed, least), expected, rtol=1e-5, atol=1e-5)


def test_stored_rows_are_the_weights():
    for inputs in (8, 11):
        for precision in PRECISIONS:
            (weight,) = normal(13, (6, inputs))
            packed = cuda.pack_linear(weight, None, precision)
            table, multipliers = download(packed.stored_FE), download(packed.weights.factors_F)
            rows = as_floats(table[:, :inputs]) * (multipliers[:, None] if len(multipliers) else 1)
            quantized = quantize(weight, "").float32()
            expected = {"float32": weight, "bfloat16": as_floats(bfloat16_bits(weight)), "int8": quantized}[precision]
            np.testing.assert_array_equal(rows, expected)
            assert not table[:, inputs:].any()


def test_blocks_as_large_as_a_cards():
    subprocess.run([sys.executable, "-m", "tests.cuda.full_size"], check=True, cwd=ROOT)
