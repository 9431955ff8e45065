"""All that fastattn takes of Numba beyond its public interface: how a kernel becomes machine code.

Numba optimizes and translates every compiled function by itself, and again in each caller that it is linked into; a
``prange`` adds three such layers. A kernel with its helpers took 2 to 3 times as long that way. Here a helper stays as
it was lowered until its kernel is compiled. The kernel's module takes in all helpers, is optimized once and translated
to an object file, which needs neither Numba nor its runtime when it is loaded.

``jit`` imports this module for the version of Numba that it knows; other versions use their public interface alone.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import codegen, compiler, config
from numba.core.registry import cpu_target

from fastattn.runtime.code_cache import SETTINGS
from fastattn.runtime.loop import FLAGS
from fastattn.system.records import lazy


class _Library(codegen.JITCodeLibrary):
    def _optimize_functions(self, module):
        module.data_layout = self._codegen._data_layout  # nothing else: ``object_file`` optimizes


class _HelperLibrary(_Library):
    """A helper's own code, to be linked into kernels, without the code of the helpers that it calls."""

    def finalize(self):
        # The engine gets the symbol of the helper's environment in Numba, but no code to translate.
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        code = self._final_module
        self._final_module = llvm.parse_assembly("\n".join(f"@{name} = common global ptr null" for name in names))
        self._finalize_final_module()
        self._final_module = code

    @lazy
    def unlinked_module(self):
        return super()._get_module_for_linking()

    def _get_module_for_linking(self):
        """The module with the code of all that it calls, for a library of Numba, which links nothing further."""
        whole = self.unlinked_module.clone()
        for code in _codes_of(self._linking_libraries):
            whole.link_in(code, preserve=True)
        return whole


def _codes_of(libraries):
    """Yield the code of libraries and of all helpers that they call, directly or not, each once."""
    stack, visited = list(libraries), set()
    while stack:
        library = stack.pop()
        if library in visited:
            continue
        visited.add(library)
        if isinstance(library, _HelperLibrary):
            stack += library._linking_libraries
            yield library.unlinked_module
        else:
            yield library._get_module_for_linking()


# Passes for constructs that kernels do not have: contexts, closures, literally and literal_unroll, Numba's own
# inlining, raises, expressions of whole arrays. After most of them Numba computes the lifetimes of all variables anew.
_UNUSED_PASSES = {
    "with_lifting",
    "inline_closure_likes",
    "rewrite_semantic_constants",
    "Rewrite dynamic raises",
    "make_function_op_code_to_jit_function",
    "inline_inlinables",
    "find_literally",
    "literal_unroll",
    "LiteralPropagation",
    "inline_overloads",
    "nopython_rewrites",
}


@functools.cache
def _size_of(kind):
    """Bytes of a value of an LLVM type. Numba needs them for each variable; each time llvmlite would parse a module."""
    return kind.get_abi_size(cpu_target.target_context.target_data)


class _HelperCompiler(compiler.Compiler):
    def __init__(self, typing_context, target_context, library, *arguments):
        if library is None:
            library = _HelperLibrary(target_context.codegen(), _HelperLibrary.__name__)
        super().__init__(typing_context, target_context, library, *arguments)
        self.state.targetctx = self.state.targetctx.subtarget(get_abi_sizeof=_size_of)

    def define_pipelines(self):
        (manager,) = super().define_pipelines()
        manager.passes = [step for step in manager.passes if step[0]._name not in _UNUSED_PASSES]
        manager.finalize()
        return [manager]


# Without Numba's runtime helpers do not count references to their arrays, each an atomic instruction.
HELPER = {
    "pipeline_class": _HelperCompiler,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    **FLAGS,
}


def compile_helper(function: Callable) -> Callable:
    """Decorator of functions that kernels call: LLVM inlines them, and Python never calls them."""
    helper = numba.njit(**HELPER)(function)
    resolve = helper.get_call_template

    def resolve_any(args, kws):
        """A literal number is typed like any other number, so that it makes no variant of its own."""
        return resolve(tuple(map(types.unliteral, args)), {name: types.unliteral(kind) for name, kind in kws.items()})

    helper.get_call_template = resolve_any
    return helper


def reads_settings(environment: dict[str, str]) -> bool:
    """Whether Numba's settings are those of this environment.

    A program may have set others later, in ``numba.config``, or in a file that Numba reads.
    """
    spec = importlib.util.find_spec(config.__name__)
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    del fresh.NUMBA_NUM_THREADS  # Numba refuses another number once it has threads
    fresh._env_reloader.process_environ(environment)
    names = [{"NUMBA_DEBUGINFO": "DEBUGINFO_DEFAULT"}.get(name, name.removeprefix("NUMBA_")) for name in SETTINGS]
    return all(repr(getattr(fresh, name, None)) == repr(getattr(config, name, None)) for name in names)


def target_context() -> Any:
    """Numba's target context, which lowers to LLVM's IR for this CPU."""
    return cpu_target.target_context


def empty_module(name: str) -> Any:
    return target_context().codegen()._create_empty_module(name)


def call_compiled(builder: Any, result: Any, values: list, returned: Any) -> Any:
    """Emit a call of the compiled helper with this CompileResult; its value is cast to the type ``returned``."""
    context = target_context()
    _, value = context.call_internal_no_propagate(builder, result.fndesc, result.signature, values)
    if result.signature.return_type == types.none:
        return context.get_constant(returned, 0)
    return context.cast(builder, value, result.signature.return_type, returned)


def object_file(module: Any, libraries: list, exports: list[str]) -> tuple[bytes, list[str]]:
    """(object file, the symbols that it needs) of a module with the code of all helpers that it calls.

    exports  the functions of the module that stay visible
    """
    cpu = target_context().codegen()
    code = llvm.parse_assembly(str(module))
    code.data_layout = cpu._data_layout
    for helper_code in _codes_of(libraries):
        code.link_in(helper_code, preserve=True)
    for function in code.functions:
        if not function.is_declaration and function.name not in exports:
            # No other module calls it, so only its inlined copies stay. No other module may find a function of this
            # name either, since LLVM changes its parameters: an internal symbol would be found.
            function.linkage = "private"
    for variable in code.global_variables:
        if variable.linkage == llvm.Linkage.common:  # an environment of Numba, which this code does not use
            variable.linkage = "internal"
    # -O2 would compile in 10% less time, but attention would take 2 to 8% longer.
    passes, builder = cpu._module_pass_manager()
    passes.run(code, builder)
    code.verify()
    needs = [f.name for f in code.functions if f.is_declaration and not f.name.startswith("llvm.")]
    return cpu._tm.emit_object(code), needs
