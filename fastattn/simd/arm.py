"""What LLVM's model of an Arm CPU has beyond NEON.

LLVM's list of the host's features leaves out those of integer and bfloat16 products (as of LLVM 22), though the CPU's
name implies them in all that is compiled; so it is asked what it makes of operations that these instructions do.
"""

import llvmlite.binding as llvm

# Feature -> the instruction that a function of _PROBES compiles to only if the CPU has it.
_SIGNS = {"dotprod": "sdot", "i8mm": "usdot", "bf16": "bfcvtn"}
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
    """Which of "dotprod", "i8mm" and "bf16" LLVM has for a CPU's name with these features; 2 to 7 ms."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(_PROBES))
    instructions = {words[0] for line in assembly.splitlines() if (words := line.split())}
    return {feature for feature, sign in _SIGNS.items() if sign in instructions}
