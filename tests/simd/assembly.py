"""Assembly of tiles for any CPU, to be read, not run."""

from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from fastattn.simd.amx import emit_amx_linear_tile
from fastattn.simd.arguments import LinearTile
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.emit import I64, Emitter, grouped_values
from fastattn.simd.target import Target
from fastattn.simd.tile import LINEAR_TILE, emit_linear_tile

BASE = {"avx512f", "avx512vl", "avx512bw", "avx512vnni", "avx512bf16"}  # features
TILES = {"amx-tile", "amx-int8", "amx-bf16"}


def tile_assembly(
    target: Target, triple: str, cpu: str, features: str, precision: str = "float32", alone: bool = False
) -> str:
    """Assembly of the full tile for any CPU."""

    def emit(emitter, *values):
        tile, arithmetic = LinearTile(*values), arithmetic_for(precision, target)
        emit_linear_tile(emitter, arithmetic, target.rows, 1, target.vectors, alone, tile)

    return _assembly(emit, LINEAR_TILE, target, triple, cpu, features)


def amx_assembly(target: Target, cpu: str, precision: str) -> str:
    """Assembly of the tile for any x86-64 CPU that has it."""

    def emit(emitter, left, *values):
        emit_amx_linear_tile(emitter, arithmetic_for(precision, target), target.vectors, left, LinearTile(*values))

    return _assembly(emit, (None, *LINEAR_TILE), target, "x86_64-unknown-linux-gnu", cpu, "")


def _assembly(emit: Callable, forms: Sequence, target: Target, triple: str, cpu: str, features: str) -> str:
    """Assembly of a function whose body ``emit(emitter, *values)`` writes, of i64 and tuples of them (``forms``)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    module.triple = triple
    kind = ir.FunctionType(ir.VoidType(), [I64] * sum(len(form._fields) if form else 1 for form in forms))
    function = ir.Function(module, kind, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(Emitter(builder, target), *grouped_values(function.args, forms))
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))
