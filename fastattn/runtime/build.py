"""How kernels are compiled: each function once, in a form that ``pool`` can call.

Numba optimises every compiled function by itself, translates it, and does both again in each caller that it is linked
into; a ``prange`` adds three such layers. A kernel with its helpers took 2 to 3 times as long that way. Here a helper
stays as it was lowered until its kernel is compiled, which takes in all of them and is optimised in one go; and what
shares the work among threads calls the kernel by its address.
"""

from collections.abc import Callable

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.extending import intrinsic

from fastattn.runtime.pool import ENTRY, I64

LAUNCH = ir.FunctionType(ir.VoidType(), [I64] * 5)  # addresses of pool, entry and arguments; tasks, parts


class _Library(JITCodeLibrary):
    def _optimize_functions(self, module):
        module.data_layout = self._codegen._data_layout  # and nothing else: all is optimised at the end


class _HelperLibrary(_Library):
    """A helper's code, to be linked into kernels."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        # The engine gets the symbols behind which Numba keeps the helper's environment, but no code to translate.
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        code = self._final_module
        self._final_module = llvm.parse_assembly("\n".join(f"@{name} = common global ptr null" for name in names))
        super()._finalize_final_module()
        self._final_module = code


class _KernelLibrary(_Library):
    """A kernel's code with that of its helpers."""

    def _optimize_final_module(self):
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = "internal"  # no other module calls it, so none is kept beside its inlined copies
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


def _make_compiler(library_class):
    class LibraryCompiler(Compiler):
        def __init__(self, typing_context, target_context, library, *rest):
            if library is None:
                library = library_class(target_context.codegen(), library_class.__name__)
                library.enable_object_caching()
            super().__init__(typing_context, target_context, library, *rest)

    return LibraryCompiler


HelperCompiler, KernelCompiler = _make_compiler(_HelperLibrary), _make_compiler(_KernelLibrary)


def make_run(helper) -> Callable:
    """The function to compile of a kernel: ``run(launcher, pool, parts, tasks, *arguments)``.

    helper          a compiled ``function(first, end, *arguments)``; it must not raise.
    launcher, pool  the addresses of ``pool.launch`` as a C function and of a Pool; not used for one part, which is
                    called here.
    """

    @intrinsic
    def call_parts(typing_context, launcher, pool, parts, tasks, arguments):
        kinds = (types.intp, types.intp, *arguments.types)
        helper.compile(kinds)

        def generate(context, builder, kind, values):
            launcher, pool, parts, tasks, arguments = values
            entry = _emit_entry(context, builder.module, helper.overloads[kinds], arguments.type)
            place = builder.ptrtoint(cgutils.alloca_once_value(builder, arguments), I64)
            with builder.if_else(builder.icmp_signed(">", parts, I64(1))) as (several, one):
                with several:
                    launch = builder.inttoptr(launcher, LAUNCH.as_pointer())
                    builder.call(launch, [pool, builder.ptrtoint(entry, I64), place, tasks, parts])
                with one:
                    builder.call(entry, [place, I64(0), tasks])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4, arguments), generate

    def run(launcher, pool, parts, tasks, *arguments):
        call_parts(launcher, pool, parts, tasks, arguments)

    # symbols are named after it
    run.__module__, run.__qualname__ = helper.__module__, f"{helper.__qualname__}.run"
    return run


def _emit_entry(context, module, compiled, arguments_type):
    """The helper as a function of one type for all kernels, with its arguments as a structure in memory."""
    context.active_code_library.add_linking_library(compiled.library)
    entry = ir.Function(module, ENTRY, f"{compiled.fndesc.mangled_name}.entry")
    entry.linkage = "internal"
    builder = ir.IRBuilder(entry.append_basic_block())
    place, first, end = entry.args
    stored = builder.load(builder.inttoptr(place, arguments_type.as_pointer()))
    arguments = [builder.extract_value(stored, i) for i in range(len(compiled.signature.args) - 2)]
    context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, [first, end, *arguments])
    builder.ret_void()
    return entry
