"""The vectors, tiles and instructions that a CPU's features choose, and those that names of Arm CPUs imply."""

from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from fastattn.simd.target import AVX, AVX2, AVX512, GENERIC, NEON, SSE, choose_target, implied_features
from tests.simd.assembly import BASE, TILES

NARROW = ("int8", "bfloat16")
VNNI = replace(AVX512, int8="vnni")


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
    (
        "x86_64",
        (BASE | TILES) - {"avx512vnni"},
        "sapphirerapids",
        replace(AVX512, bfloat16="tiles", tiles=("bfloat16",)),
    ),
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


TRIPLE = "aarch64-unknown-linux-gnu"
ALL = {"dotprod", "i8mm", "bf16"}


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
        assert implied_features(TRIPLE, cpu, features) == expected
