"""The CPU that Numba compiles for, and the vector and tile sizes that fit its registers.

The features are those of the compilation (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES), not of the host: an instruction
that the limited target lacks would abort the process. They are read as Numba reads them, without importing it.
"""

import os
from dataclasses import dataclass, replace

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """Vector width and register tile of one instruction set.

    lanes    float32 values in a vector.
    rows     rows of a register tile.
    vectors  vectors across a register tile; rows * vectors accumulators, vectors + 1 operands must fit the registers.
    fma      whether a fused multiply-add is one instruction (else it would be a library call).
    int8, bfloat16  how they are multiplied: names of fastattn.simd.arithmetic.
    float16  whether an instruction converts it (else it would be a library call).
    """

    name: str
    lanes: int
    rows: int
    vectors: int
    fma: bool
    int8: str = "widened"
    bfloat16: str = "widened"
    float16: bool = False

    @property
    def registers(self) -> int:
        """The number of vector registers."""
        return 32 if self.rows * self.vectors > 16 else 16

    @property
    def columns(self) -> int:
        """Columns of a register tile and of a panel of packed weights."""
        return self.lanes * self.vectors


# 8x48 keeps 24 of 32 registers as accumulators; 6x16 keeps 12 of 16 (8x48 spills there: 69 GFLOP/s against 117).
AVX512 = Target("avx512", 16, 8, 3, True, "pairs", float16=True)
AVX2 = Target("avx2", 8, 6, 2, True, "pairs")
AVX = Target("avx", 8, 4, 2, False)
SSE = Target("sse", 4, 4, 2, False, "pairs")
NEON = Target("neon", 4, 8, 3, True, float16=True)
GENERIC = Target("generic", 4, 4, 2, False)


def choose_target(architecture: str, features: set[str]) -> Target:
    """The tile sizes for an LLVM architecture name (``x86_64``, ``aarch64``) and its enabled features."""
    if architecture in ("aarch64", "arm64"):
        return replace(NEON, int8="sdot") if "dotprod" in features else NEON
    if not architecture.startswith(("x86", "i386", "i686", "amd64")):
        return GENERIC
    if {"avx512f", "avx512vl", "avx512bw"} <= features:
        int8 = "vnni" if "avx512vnni" in features else "pairs"
        return replace(AVX512, int8=int8, bfloat16="dot" if "avx512bf16" in features else "widened")
    if "avx2" in features and "fma" in features:
        int8 = "vnni" if "avxvnni" in features else "pairs"
        return replace(AVX2, int8=int8, float16="f16c" in features)
    return AVX if "avx" in features else SSE


def compiled_features() -> set[str]:
    """Names of the CPU features that Numba compiles for."""
    generic = os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic"
    listed = os.environ.get("NUMBA_CPU_FEATURES", "" if generic else None)
    if listed is not None:
        return {f[1:] for f in listed.split(",") if f.startswith("+")}
    return {name for name, present in llvm.get_host_cpu_features().items() if present}


def compiled_name() -> str:
    """LLVM's name of the CPU that Numba compiles for."""
    return os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()


TARGET = choose_target(llvm.get_default_triple().split("-")[0], compiled_features())
LANES = TARGET.lanes
