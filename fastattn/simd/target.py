"""The CPU that Numba compiles for, and the vector and tile sizes that fit its registers.

The features are those of the compilation (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES), not of the host: an instruction
that the compilation's target lacks would abort the process. This module reads them as Numba does, without importing it.

Linux lends Intel's tile registers (AMX) on request. A process asks once, before it compiles code for a CPU that has
them. From then on the state that Linux saves of a thread grows by the registers' 8 KiB while they hold something.
"""

import errno
import functools
import os
import sys
from dataclasses import replace

from fastattn.simd.host import host
from fastattn.system.records import dataclass

AMX = frozenset({"amx-tile", "amx-int8", "amx-bf16"})  # LLVM's names of the features that need Linux's permission
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # Linux's numbers: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)


@functools.cache
def refusal() -> str:
    """The reason why this process cannot use tile registers, for a user to read; "" if it can."""
    if os.environ.get("FASTATTN_AMX", "").strip().lower() in ("0", "no", "off", "false"):
        return "FASTATTN_AMX switches them off"
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "only Linux on x86-64 is known to lend them"
    fault = _request()
    if fault == errno.ENOSPC:
        return "a signal stack of this process is too small for Linux to lend them"
    return f"Linux does not lend them: {os.strerror(fault)}" if fault else ""


def _request() -> int:
    """Request the tile registers; returns Linux's error number, or 0."""
    import ctypes  # it takes a millisecond, and only CPUs with tiles need it

    library = ctypes.CDLL(None, use_errno=True)
    numbers = (ctypes.c_long(number) for number in (_ARCH_PRCTL, _REQUEST, _TILE_DATA))
    return 0 if library.syscall(*numbers) == 0 else ctypes.get_errno()


# LLVM's list of an Arm host's features leaves out those of integer and bfloat16 products (as of LLVM 22), though LLVM
# uses them in code for the CPU's name. So this module compiles _PROBES and looks for the instructions.
# By feature: the instruction to which the function of that name compiles only if the CPU has the feature.
_PROBED_INSTRUCTIONS = {"dotprod": "sdot", "i8mm": "usdot", "bf16": "bfcvtn"}
_PROBES = """
declare <4 x i32> @llvm.vector.partial.reduce.add.v4i32.v16i32(<4 x i32>, <16 x i32>)
define <4 x i32> @dotprod(<4 x i32> %sums, <16 x i8> %a, <16 x i8> %b) {
  %left = sext <16 x i8> %a to <16 x i32>
  %right = sext <16 x i8> %b to <16 x i32>
  %products = mul <16 x i32> %left, %right
  %new = call <4 x i32> @llvm.vector.partial.reduce.add.v4i32.v16i32(<4 x i32> %sums, <16 x i32> %products)
  ret <4 x i32> %new
}
define <4 x i32> @i8mm(<4 x i32> %sums, <16 x i8> %a, <16 x i8> %b) {
  %left = zext <16 x i8> %a to <16 x i32>
  %right = sext <16 x i8> %b to <16 x i32>
  %products = mul <16 x i32> %left, %right
  %new = call <4 x i32> @llvm.vector.partial.reduce.add.v4i32.v16i32(<4 x i32> %sums, <16 x i32> %products)
  ret <4 x i32> %new
}
define <4 x bfloat> @bf16(<4 x float> %a) {
  %narrow = fptrunc <4 x float> %a to <4 x bfloat>
  ret <4 x bfloat> %narrow
}
"""


def implied_features(triple: str, cpu: str, features: str) -> set[str]:
    """The features among "dotprod", "i8mm" and "bf16" that LLVM uses for a CPU's name and features; 2 to 7 ms."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(_PROBES))
    instructions = {words[0] for line in assembly.splitlines() if (words := line.split())}
    return {feature for feature, name in _PROBED_INSTRUCTIONS.items() if name in instructions}


@dataclass(frozen=True)
class Target:
    """Vector width and register tile of one instruction set.

    lanes    float32 values in a vector.
    rows     of a register tile.
    vectors  across a register tile; rows * vectors accumulators and vectors + 1 operands must fit the registers.
    fma      whether a fused multiply-add is one instruction (else it would be a library call).
    int8, bfloat16  how the CPU multiplies them: names of fastattn.simd.arithmetic.
    float16  whether an instruction converts float16 (else it would be a library call).
    rounds   whether an instruction rounds float32 to bfloat16 (likewise).
    tiles    precisions whose products run in the CPU's own tile registers: see fastattn.simd.amx.
    by_lane  whether a multiply-add takes one lane of an operand for all lanes.
    """

    name: str
    lanes: int
    rows: int
    vectors: int
    fma: bool
    int8: str = "widened"
    bfloat16: str = "widened"
    float16: bool = False
    rounds: bool = False
    tiles: tuple[str, ...] = ()
    by_lane: bool = False

    @property
    def registers(self) -> int:
        """The number of vector registers."""
        return 32 if self.rows * self.vectors > 16 else 16

    @property
    def columns(self) -> int:
        """The columns of a register tile, and of a panel of packed weights."""
        return self.lanes * self.vectors


# 8x48 keeps 24 of 32 registers as accumulators; 6x16 keeps 12 of 16 (8x48 spills there: 69 GFLOP/s against 117).
AVX512 = Target("avx512", 16, 8, 3, True, "pairs", float16=True)
AVX2 = Target("avx2", 8, 6, 2, True, "pairs")
AVX = Target("avx", 8, 4, 2, False)
SSE = Target("sse", 4, 4, 2, False, "pairs")
NEON = Target("neon", 4, 8, 3, True, "smlal", float16=True, by_lane=True)
GENERIC = Target("generic", 4, 4, 2, False)
X86_TARGETS = "avx512", "avx2", "avx", "sse"  # names

# fastattn does not use Arm's SVE: the length of its vectors is unknown when a kernel is written.
ARM = ("aarch64", "arm64")
# The features that a precision needs for tiles; AVX-512's stage the rows, and multiply few rows of int8.
_TILES = {"int8": {"amx-tile", "amx-int8", "avx512vnni"}, "bfloat16": {"amx-tile", "amx-bf16"}}


def choose_target(architecture: str, features: set[str], name: str = "") -> Target:
    """The tile sizes for an LLVM architecture name (``x86_64``, ``aarch64``), its enabled features and the CPU's name.

    AMD's CPUs multiply bfloat16 by vdpbf16ps. Intel's vdpbf16ps takes twice as long as the two multiply-adds of float32
    that it stands for, so Intel's CPUs widen the operands, unless their products run in tiles.
    """
    if architecture in ARM:
        dot = ("smmla" if "i8mm" in features else "sdot") if "dotprod" in features else NEON.int8
        return replace(NEON, int8=dot, bfloat16="bfmmla" if "bf16" in features else "widened")
    if not architecture.startswith(("x86", "i386", "i686", "amd64")):
        return GENERIC
    if {"avx512f", "avx512vl", "avx512bw"} <= features:
        int8 = "vnni" if "avx512vnni" in features else "pairs"
        tiles = tuple(precision for precision, needed in _TILES.items() if needed <= features)
        rounds = "avx512bf16" in features
        bfloat16 = "tiles" if "bfloat16" in tiles else "dot" if rounds and name.startswith("znver") else "widened"
        return replace(AVX512, int8=int8, bfloat16=bfloat16, rounds=rounds, tiles=tiles)
    if "avx2" in features and "fma" in features:
        int8 = "vnni" if "avxvnni" in features else "pairs"
        return replace(AVX2, int8=int8, float16="f16c" in features)
    return AVX if "avx" in features else SSE


def compiled_features() -> set[str]:
    """Names of the CPU features that Numba compiles for, without AMX's where this process cannot use its tiles."""
    named = _named_features()
    return named - AMX if tiles_refusal() else named


def tiles_refusal() -> str:
    """Why this process cannot use the tile registers that Numba would compile for; "" if it can, or there are none."""
    return refusal() if _named_features() & AMX else ""


def _named_features() -> set[str]:
    generic = os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic"
    listed = os.environ.get("NUMBA_CPU_FEATURES", "" if generic else None)
    text = host().features if listed is None else listed
    named = {f[1:] for f in text.split(",") if f.startswith("+")}
    return named | implied_features(TRIPLE, compiled_name(), text) if TRIPLE.split("-")[0] in ARM else named


def compiled_name() -> str:
    """LLVM's name of the CPU that Numba compiles for."""
    return os.environ.get("NUMBA_CPU_NAME") or host().name


TRIPLE = host().triple
TARGET = choose_target(TRIPLE.split("-")[0], compiled_features(), compiled_name())
LANES = TARGET.lanes
# AMD's cores foresee by themselves what a stream of weights reads next.
PREFETCHES_STREAMS = TRIPLE.startswith("x86_64") and not compiled_name().startswith("znver")
