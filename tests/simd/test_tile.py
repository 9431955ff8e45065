"""The targets and tiles that features of CPUs choose, and what these compile to; sums in blocks, against NumPy."""

import ctypes
import re
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from fastattn.simd.arithmetic import BFLOAT16, INT8
from fastattn.simd.emit import I64, Emitter
from fastattn.simd.target import AVX, AVX2, AVX512, GENERIC, NEON, SSE, choose_target, implied_features
from fastattn.simd.tile import emit_sums
from tests.simd.assembly import BASE, TILES, amx_assembly, tile_assembly

X86_64, AARCH64 = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
ALL = {"dotprod", "i8mm", "bf16"}  # of Arm's features


FULL_TILES = [
    (AVX512, X86_64, "znver4", "zmm"),
    (AVX2, X86_64, "haswell", "vfmadd"),
    (AVX, X86_64, "sandybridge", "vmulps"),
    (SSE, X86_64, "x86-64", "mulps"),
    (NEON, AARCH64, "neoverse-n1", "fmla"),
]


def test_tile_compiles_for_every_target_and_keeps_its_sums_in_registers():
    for wanted, triple, cpu, instruction in FULL_TILES:
        assembly = tile_assembly(wanted, triple, cpu, "")
        assert assembly.count(instruction) >= wanted.rows * wanted.vectors
        # no library call for the multiply-add, and no store inside the loop: every store comes after the last multiply
        assert "fmaf" not in assembly
        lines = assembly.splitlines()
        loop = [i for i, line in enumerate(lines) if "vfmadd" in line or "fmla" in line or "mulps" in line]
        inside = lines[loop[0] : loop[-1]]
        assert not [line for line in inside if "(%rsp)" in line and line.split()[0].startswith("mov")]


def test_a_tile_alone_prefetches_each_line_that_it_reads():
    for wanted, cpu, precision in ((AVX512, "icelake-server", "float32"), (AVX2, "haswell", "int8")):
        prefetched = []
        for alone in (False, True):
            lines = tile_assembly(wanted, X86_64, cpu, "", precision, alone).splitlines()
            prefetched.append(re.findall(r"prefetch\w+\s+(-?\d*)", "\n".join(lines)))
        panel_lines = wanted.columns * 4 // 64  # of a step: float32, or four values of int8
        assert len(prefetched[0]) == 1 and len(prefetched[1]) == panel_lines
        assert len({int(offset or 0) // 64 for offset in prefetched[1]}) == panel_lines


WIDE = {"avx512f", "avx512vl", "avx512bw"}


INSTRUCTIONS = [
    (X86_64, "znver4", {*WIDE, "avx512vnni"}, "int8", "vpdpbusd"),
    (X86_64, "znver4", {*WIDE, "avx512bf16"}, "bfloat16", "vdpbf16ps"),
    (X86_64, "sapphirerapids", {*WIDE, "avx512bf16"}, "bfloat16", "vfmadd"),
    (X86_64, "skylake-avx512", WIDE, "int8", "vpmaddwd"),
    (X86_64, "alderlake", {"avx2", "fma", "avxvnni"}, "int8", "{vex}\tvpdpbusd"),
    (X86_64, "haswell", {"avx2", "fma"}, "int8", "vpmaddwd"),
    (X86_64, "haswell", {"avx2", "fma"}, "bfloat16", "vfmadd"),
    (X86_64, "x86-64", set(), "int8", "pmaddwd"),
    (AARCH64, "cortex-a53", set(), "bfloat16", "fmla"),
]


def test_narrow_tiles_compile_to_the_instructions_of_each_cpu():
    for triple, cpu, features, precision, instruction in INSTRUCTIONS:
        wanted = choose_target(triple.split("-")[0], features, cpu)
        assembly = tile_assembly(wanted, triple, cpu, "", precision)
        assert assembly.count(instruction) >= wanted.rows * wanted.vectors
        assert "fmaf" not in assembly and {"int8": INT8, "bfloat16": BFLOAT16}[precision]


LOOPS = [
    ("cortex-a57", set(), "float32", "fmla"),
    ("cortex-a57", set(), "int8", "smlal"),
    ("neoverse-n1", {"dotprod"}, "int8", "sdot"),
    ("neoverse-v1", ALL, "int8", "smmla"),
    ("neoverse-v1", ALL, "bfloat16", "bfmmla"),
]


def test_the_loop_of_a_tile_keeps_its_sums_in_registers():
    for cpu, features, precision, instruction in LOOPS:
        wanted = choose_target("aarch64", features)
        lines = tile_assembly(wanted, AARCH64, cpu, "", precision).splitlines()
        products = [n for n, line in enumerate(lines) if f"\t{instruction}\t" in line]
        assert len(products) == wanted.rows * wanted.vectors
        loop = [line.split()[0] for line in lines[products[0] : products[-1]]]
        assert not {"str", "stp", "mov", "zip1", "zip2", "ext", "dup"} & {*loop}
        # a word in every lane takes a unit that multiplies, unless the product takes it from a lane
        assert instruction == "sdot" or "ld1r" not in loop


def test_four_loads_serve_four_products_and_nothing_is_spilled():
    for precision, product in (("int8", "tdpbusd"), ("bfloat16", "tdpbf16ps")):
        wanted = choose_target("x86_64", BASE | TILES, "sapphirerapids")
        assembly = amx_assembly(wanted, "sapphirerapids", precision)
        loops = [block for block in re.split(r"^\.L\w+:.*$", assembly, flags=re.MULTILINE) if product in block]
        operations = [re.findall(rf"\b(tileload\w+|{product})\b", block) for block in loops]
        expected = [["tileloadd"] * loads + [product] * products for loads, products in ((4, 4), (4, 3), (3, 2))]
        assert sorted(operations) == sorted(expected)
        for block in loops:
            assert not re.search(r"%[re]?[sb]p\b|tilestored|call", block)
            assert len(block.splitlines()) < 30
        assert assembly.count("tilezero") == assembly.count("tilestored") == 4 + 2 + 3
        # LLVM configures nothing by itself
        assert "tilecfg" not in assembly and "tilerelease" not in assembly


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
    emitter = Emitter(builder, NEON)
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


def test_blocks_sum_what_rows_and_columns_do():
    for depth in (0, 8, 24):
        for rows, groups, vectors in ((8, 1, 3), (1, 4, 3), (2, 2, 3), (3, 1, 3), (8, 1, 1)):
            rng = np.random.default_rng(rows * groups * vectors + depth)
            C = 4 * vectors  # columns
            a_RD, weights_GCD = (
                rng.integers(-127, 128, shape).astype(np.int8) for shape in ((rows, depth), (groups, C, depth))
            )
            starts_RC = rng.integers(-1000, 1000, (rows, groups * C)).astype(np.int32)
            # a step has 8 values of each column, side by side
            b_GPN = weights_GCD.reshape(groups, C, -1, 8).swapaxes(1, 2).reshape(groups, depth // 8, C * 8)
            found_RC = _sums(rows, groups, vectors, a_RD, np.ascontiguousarray(b_GPN), starts_RC)
            expected_RC = a_RD.astype(np.int32) @ weights_GCD.reshape(groups * C, depth).astype(np.int32).T + starts_RC
            np.testing.assert_array_equal(found_RC, expected_RC)


NARROW = ("int8", "bfloat16")
VNNI = replace(AVX512, int8="vnni", rounds=True)  # of BASE, whose features round to bfloat16


TARGETS = [
    ("x86_64", {"avx512f", "avx512vl", "avx512bw", "avx2", "fma"}, "", AVX512),
    ("x86_64", {"avx512f", "avx512vl", "avx2", "fma"}, "", AVX2),
    ("x86_64", {"avx2", "fma", "avx"}, "", AVX2),
    ("x86_64", {"avx2", "avx"}, "", AVX),
    ("x86_64", {"sse2"}, "", SSE),
    ("riscv64", set(), "", GENERIC),
    ("x86_64", BASE | TILES, "sapphirerapids", replace(VNNI, bfloat16="tiles", tiles=NARROW)),
    ("x86_64", BASE | TILES | {"amx-fp16"}, "graniterapids", replace(VNNI, bfloat16="tiles", tiles=NARROW)),
    ("x86_64", BASE, "sapphirerapids", VNNI),  # the system keeps the tiles
    ("x86_64", BASE, "cooperlake", VNNI),
    ("x86_64", BASE | {"amx-tile", "amx-int8"}, "sapphirerapids", replace(VNNI, tiles=("int8",))),
    ("x86_64", (BASE | TILES) - {"avx512vnni"}, "", replace(VNNI, int8="pairs", bfloat16="tiles", tiles=("bfloat16",))),
    ("x86_64", BASE, "znver4", replace(VNNI, bfloat16="dot")),
    ("x86_64", BASE, "znver5", replace(VNNI, bfloat16="dot")),
    ("x86_64", {"avx2", "fma"} | TILES, "sapphirerapids", AVX2),  # no tiles without AVX-512
    ("aarch64", {"neon"}, "", NEON),
    ("aarch64", {"neon", "dotprod"}, "", replace(NEON, int8="sdot")),
    ("aarch64", {"neon", "dotprod", "bf16"}, "", replace(NEON, int8="sdot", bfloat16="bfmmla")),
    ("aarch64", {"neon", "dotprod", "i8mm", "bf16"}, "", replace(NEON, int8="smmla", bfloat16="bfmmla")),
    ("aarch64", {"neon", "i8mm"}, "", NEON),  # single rows need the dot product
]


def test_a_target_follows_the_features():
    for architecture, features, name, expected in TARGETS:
        assert choose_target(architecture, features, name) == expected


@pytest.fixture(scope="module", autouse=True)
def _every_backend():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


IMPLIED = [
    ("cortex-a57", "+neon", set()),
    ("neoverse-n1", "+neon", {"dotprod"}),
    ("apple-m1", "", {"dotprod"}),
    ("neoverse-v1", "+neon", ALL),
    ("neoverse-v1", "+neon,-i8mm,-bf16", {"dotprod"}),
    ("generic", "", set()),
    ("generic", "+dotprod,+i8mm,+bf16", ALL),
]


def test_features_that_a_name_implies():
    for cpu, features, expected in IMPLIED:
        assert implied_features(AARCH64, cpu, features) == expected
