"""What Arm CPUs have, and tiles of matrix instructions, on any CPU: sums in blocks, against NumPy."""

import ctypes
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from fastattn.simd import target
from fastattn.simd.arithmetic import INT8
from fastattn.simd.arm import implied_features
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.tile import emit_sums
from tests.simd.assembly import tile_assembly

TRIPLE = "aarch64-unknown-linux-gnu"
ALL = {"dotprod", "i8mm", "bf16"}


@pytest.fixture(scope="module", autouse=True)
def _every_backend():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize(
    ("cpu", "features", "expected"),
    [
        ("cortex-a57", "+neon", set()),
        ("neoverse-n1", "+neon", {"dotprod"}),
        ("apple-m1", "", {"dotprod"}),
        ("neoverse-v1", "+neon", ALL),
        ("neoverse-v1", "+neon,-i8mm,-bf16", {"dotprod"}),
        ("generic", "", set()),
        ("generic", "+dotprod,+i8mm,+bf16", ALL),
    ],
)
def test_features_that_a_name_implies(cpu, features, expected):
    assert implied_features(TRIPLE, cpu, features) == expected


@pytest.mark.parametrize(
    ("features", "int8", "bfloat16"),
    [
        (set(), "smlal", "widened"),
        ({"dotprod"}, "sdot", "widened"),
        ({"dotprod", "bf16"}, "sdot", "bfmmla"),
        (ALL, "smmla", "bfmmla"),
        ({"i8mm"}, "smlal", "widened"),  # single rows need the dot product
    ],
)
def test_arithmetic_follows_the_features(features, int8, bfloat16):
    chosen = target.choose_target("aarch64", {"neon", *features})
    assert (chosen.name, chosen.int8, chosen.bfloat16) == ("neon", int8, bfloat16)


@pytest.mark.parametrize(
    ("cpu", "features", "precision", "instruction"),
    [
        ("cortex-a57", set(), "float32", "fmla"),
        ("cortex-a57", set(), "int8", "smlal"),
        ("neoverse-n1", {"dotprod"}, "int8", "sdot"),
        ("neoverse-v1", ALL, "int8", "smmla"),
        ("neoverse-v1", ALL, "bfloat16", "bfmmla"),
    ],
)
def test_the_loop_of_a_tile_keeps_its_sums_in_registers(cpu, features, precision, instruction):
    wanted = target.choose_target("aarch64", features)
    lines = tile_assembly(wanted, TRIPLE, cpu, "", precision).splitlines()
    products = [n for n, line in enumerate(lines) if f"\t{instruction}\t" in line]
    assert len(products) == wanted.rows * wanted.vectors
    loop = [line.split()[0] for line in lines[products[0] : products[-1]]]
    assert not {"str", "stp", "mov", "zip1", "zip2", "ext", "dup"} & {*loop}
    # a word in every lane takes a unit that multiplies, unless the product takes it from a lane
    assert instruction == "sdot" or "ld1r" not in loop


def _add_blocks(emitter: Emitter, spread, operand, total):
    """smmla in plain vector IR: sums [2, 2] of rows [2, 8] and columns [2, 8], for lanes of four."""
    builder, kind, wide = emitter.builder, ir.VectorType(ir.IntType(8), 16), ir.VectorType(ir.IntType(32), 32)
    factors = []
    for value, halves in ((spread, (0, 0, 1, 1)), (operand, (0, 1, 0, 1))):
        order = ir.Constant(wide, [8 * half + k for half in halves for k in range(8)])
        whole = builder.bitcast(value, kind)
        factors.append(builder.sext(builder.shuffle_vector(whole, whole, order), wide))
    products = builder.mul(*factors)
    for k in range(8):
        order = ir.Constant(emitter.integers, list(range(k, 32, 8)))
        total = builder.add(total, builder.shuffle_vector(products, products, order))
    return total


def _sums(rows, groups, vectors, a_RD, b_GPN, starts_RC):
    """``emit_sums`` of one tile, compiled and run here."""
    emulated = replace(INT8["smmla"], add=_add_blocks)
    module = ir.Module("tile")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 3), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    emitter = Emitter(builder, target.NEON)
    a, b, c = function.args
    places = [builder.add(c, I64(16 * n)) for n in range(rows * groups * vectors)]
    rows_at = [builder.add(a, I64(r * a_RD.shape[1])) for r in range(rows)]
    groups_at = [builder.add(b, I64(g * b_GPN[0].nbytes)) for g in range(groups)]
    starts = [emitter.load_integers(place) for place in places]
    steps, step = I64(b_GPN.shape[1]), I64(b_GPN.shape[2])
    for value, place in zip(
        emit_sums(emitter, emulated, rows_at, groups_at, step, steps, starts, vectors), places, strict=True
    ):
        emitter.store(builder.bitcast(value, emitter.vector), place)
    builder.ret_void()
    parsed = llvm.parse_assembly(str(module))
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    out_RC = starts_RC.copy()
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(engine.get_function_address("tile"))
    call(a_RD.ctypes.data, b_GPN.ctypes.data, out_RC.ctypes.data)
    return out_RC


@pytest.mark.parametrize(("rows", "groups", "vectors"), [(8, 1, 3), (1, 4, 3), (2, 2, 3), (3, 1, 3), (8, 1, 1)])
@pytest.mark.parametrize("depth", [0, 8, 24])
def test_blocks_sum_what_rows_and_columns_do(rows, groups, vectors, depth):
    rng = np.random.default_rng(rows * groups * vectors + depth)
    columns = 4 * vectors
    a_RD = rng.integers(-127, 128, (rows, depth)).astype(np.int8)
    weights_GND = rng.integers(-127, 128, (groups, columns, depth)).astype(np.int8)
    starts_RC = rng.integers(-1000, 1000, (rows, groups * columns)).astype(np.int32)
    # a step has 8 values of each column, side by side
    b_GPN = weights_GND.reshape(groups, columns, -1, 8).transpose(0, 2, 1, 3).reshape(groups, depth // 8, columns * 8)
    found_RC = _sums(rows, groups, vectors, a_RD, np.ascontiguousarray(b_GPN), starts_RC)
    expected_RC = a_RD.astype(np.int32) @ weights_GND.reshape(groups * columns, depth).astype(np.int32).T + starts_RC
    np.testing.assert_array_equal(found_RC, expected_RC)
