"""Vector arithmetic against NumPy in float64, and what the register tile compiles to on other CPUs."""

import math

import numpy as np
import pytest
from numba import njit

from fastattn.simd import target, vector
from tests.simd.assembly import tile_assembly

LANES = target.LANES
exp, erf, tanh, load, store = vector.exp, vector.erf, vector.tanh, vector.load, vector.store
load_first, store_first, splat = vector.load_first, vector.store_first, vector.splat
sum_lanes, max_lanes = vector.sum_lanes, vector.max_lanes
SPECIAL = [-np.inf, np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38]


@njit(error_model="numpy")
def apply_all(x, exps, erfs, tanhs):
    for i in range(0, x.size, LANES):
        value = load(x.ctypes.data + i * 4)
        store(exp(value), exps.ctypes.data + i * 4)
        store(erf(value), erfs.ctypes.data + i * 4)
        store(tanh(value), tanhs.ctypes.data + i * 4)


@pytest.fixture(scope="module")
def computed():
    x = np.concatenate([np.linspace(-110, 95, 200_001), np.linspace(-6, 6, 100_003), SPECIAL])
    x = np.pad(x, (0, -len(x) % LANES)).astype(np.float32)
    results = np.empty((3, len(x)), np.float32)
    apply_all(x, *results)
    return x.astype(np.float64), *results


def test_exp(computed):
    x, value, _, _ = computed
    with np.errstate(over="ignore"):
        expected = np.exp(x)
    normal = (x > -87) & (x < 88.7)
    assert np.max(np.abs(value[normal] / expected[normal] - 1)) < 2.5e-7
    assert (value[x < -104] == 0).all() and (value[x > 88.73] == np.inf).all()
    assert np.isnan(value[np.isnan(x)]).all()


def test_erf_and_tanh(computed):
    x, _, erfs, tanhs = computed
    known = ~np.isnan(x)
    away = known & (np.abs(x) > 1e-30)
    for values, function in ((erfs, math.erf), (tanhs, math.tanh)):
        expected = np.array([function(v) for v in x[away]])
        assert np.max(np.abs(values[away] / expected - 1)) < 4e-7
        assert np.max(np.abs(values[known & ~away])) < 1e-30
    assert np.isnan(erfs[~known]).all() and np.isnan(tanhs[~known]).all()


@njit(error_model="numpy")
def copy_first(source, destination, count):
    value = load_first(source.ctypes.data, count, splat(np.float32(7)))
    store_first(value, destination.ctypes.data, count)
    return sum_lanes(value), max_lanes(value)


@pytest.mark.parametrize("count", range(LANES + 1))
def test_partial_vectors_touch_nothing_else(count: int):
    source = np.arange(1, LANES + 1, dtype=np.float32)
    destination = np.full(LANES, -1, np.float32)
    total, largest = copy_first(source, destination, count)
    assert destination.tolist() == [*range(1, count + 1), *[-1] * (LANES - count)]
    assert total == sum(range(1, count + 1)) + 7 * (LANES - count)
    assert largest == max([*source[:count], *[7] * (LANES - count)])


@pytest.mark.parametrize(
    ("architecture", "features", "expected"),
    [
        ("x86_64", {"avx512f", "avx512vl", "avx512bw", "avx2", "fma"}, target.AVX512),
        ("x86_64", {"avx512f", "avx512vl", "avx2", "fma"}, target.AVX2),
        ("x86_64", {"avx2", "fma", "avx"}, target.AVX2),
        ("x86_64", {"avx2", "avx"}, target.AVX),
        ("x86_64", {"sse2"}, target.SSE),
        ("aarch64", {"neon"}, target.NEON),
        ("riscv64", set(), target.GENERIC),
    ],
)
def test_target_follows_the_features(architecture, features, expected):
    assert target.choose_target(architecture, features) == expected


@pytest.mark.parametrize(
    ("wanted", "triple", "cpu", "instruction"),
    [
        (target.AVX512, "x86_64-unknown-linux-gnu", "znver4", "zmm"),
        (target.AVX2, "x86_64-unknown-linux-gnu", "haswell", "vfmadd"),
        (target.AVX, "x86_64-unknown-linux-gnu", "sandybridge", "vmulps"),
        (target.SSE, "x86_64-unknown-linux-gnu", "x86-64", "mulps"),
        (target.NEON, "aarch64-unknown-linux-gnu", "neoverse-n1", "fmla"),
    ],
)
def test_tile_compiles_for_every_target_and_keeps_its_sums_in_registers(wanted, triple, cpu, instruction):
    assembly = tile_assembly(wanted, triple, cpu, "")
    assert assembly.count(instruction) >= wanted.rows * wanted.vectors
    # no library call for the multiply-add, and no store inside the loop: every store comes after the last multiply
    assert "fmaf" not in assembly
    lines = assembly.splitlines()
    last = max(i for i, line in enumerate(lines) if instruction in line and ("zmm" != instruction or "vfmadd" in line))
    loop = [i for i, line in enumerate(lines) if "vfmadd" in line or "fmla" in line or "mulps" in line]
    spills = [line for line in lines[loop[0] : last] if "(%rsp)" in line and line.split()[0].startswith("mov")]
    assert not spills
