"""All that fastattn uses of Numba beyond the public interface: how a kernel becomes machine code.

Numba optimizes and translates every compiled function by itself, and again in each caller that links it; a ``prange``
adds three such layers. To compile a kernel with its helpers took 2 to 3 times as long that way. Here a helper stays as
Numba lowered it until its kernel is compiled. The kernel's module takes in all helpers, is optimized once, and becomes
an object file, which needs neither Numba nor Numba's runtime when it is loaded.

``jit`` imports this module for one version of Numba; of other versions it uses the public interface alone.
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
        module.data_layout = self._codegen._data_layout  # optimizes nothing: ``object_file`` does


class _HelperLibrary(_Library):
    """A helper's own code, which kernels link, without the code of the helpers that the helper calls."""

    def finalize(self):
        # Numba's engine gets the symbols of the helper's environments, but no code to translate.
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        code = self._final_module
        self._final_module = llvm.parse_assembly("\n".join(f"@{name} = common global ptr null" for name in names))
        self._finalize_final_module()
        self._final_module = code

    @lazy
    def unlinked_module(self):
        return super()._get_module_for_linking()

    def _get_module_for_linking(self):
        """The module with the code of all helpers that it calls, for a library of Numba, which links no others."""
        module = self.unlinked_module.clone()
        for code in _codes_of(self._linking_libraries):
            module.link_in(code, preserve=True)
        return module


def _codes_of(libraries):
    """Yield the code of the libraries and of all helpers that they call, directly or indirectly, each once."""
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
def _size_of(llvm_type):
    """Bytes of a value of the type. Numba asks for each variable, and llvmlite would parse a module for each answer."""
    return llvm_type.get_abi_size(cpu_target.target_context.target_data)


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


# "_nrt": without Numba's runtime, helpers do not count references to arrays, which takes an atomic instruction each.
HELPER_OPTIONS = {
    "pipeline_class": _HelperCompiler,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    **FLAGS,
}


def compile_helper(function: Callable) -> Callable:
    """Decorator of functions that kernels call: LLVM inlines them, and Python never calls them."""
    helper = numba.njit(**HELPER_OPTIONS)(function)
    resolve = helper.get_call_template

    def resolve_any(args, kws):
        """Type a literal number like any other number, so that there is no variant for each literal."""
        return resolve(tuple(map(types.unliteral, args)), {name: types.unliteral(kind) for name, kind in kws.items()})

    helper.get_call_template = resolve_any
    return helper


def reads_settings(environment: dict[str, str]) -> bool:
    """Whether Numba's SETTINGS are those that Numba reads from this environment.

    A program may have changed them in ``numba.config``, or a file that Numba reads may have.
    """
    spec = importlib.util.find_spec(config.__name__)
    assert spec is not None and spec.loader is not None
    expected = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(expected)
    del expected.NUMBA_NUM_THREADS  # Numba refuses another number once it has threads
    expected._env_reloader.process_environ(environment)
    names = [{"NUMBA_DEBUGINFO": "DEBUGINFO_DEFAULT"}.get(name, name.removeprefix("NUMBA_")) for name in SETTINGS]
    return all(repr(getattr(expected, name, None)) == repr(getattr(config, name, None)) for name in names)


def target_context() -> Any:
    """Numba's target context, which lowers to LLVM's IR for this CPU."""
    return cpu_target.target_context


def empty_module(name: str) -> Any:
    return target_context().codegen()._create_empty_module(name)


def call_compiled(builder: Any, result: Any, values: list, return_type: Any) -> Any:
    """Emit a call of the compiled helper with this CompileResult; the value is cast to ``return_type``."""
    context = target_context()
    _, value = context.call_internal_no_propagate(builder, result.fndesc, result.signature, values)
    if result.signature.return_type == types.none:
        return context.get_constant(return_type, 0)
    return context.cast(builder, value, result.signature.return_type, return_type)


def object_file(module: Any, libraries: list, exports: list[str]) -> tuple[bytes, list[str]]:
    """(object file, the symbols that it needs) of a module, and of the helpers' code in ``libraries``.

    exports  the functions of the module that stay visible
    """
    cpu = target_context().codegen()
    code = llvm.parse_assembly(str(module))
    code.data_layout = cpu._data_layout
    for helper_code in _codes_of(libraries):
        code.link_in(helper_code, preserve=True)
    for function in code.functions:
        if not function.is_declaration and function.name not in exports:
            # No other module calls the function, so only inlined copies stay. No other module may find its symbol
            # either, since LLVM changes the parameters: it would find an internal symbol.
            function.linkage = "private"
    for variable in code.global_variables:
        if variable.linkage == llvm.Linkage.common:  # an environment of Numba, which this code does not use
            variable.linkage = "internal"
    # -O2 takes 15% less time, but then products of few rows in bfloat16 take up to 1.13 x the time, convolutions 1.06,
    # attention 1.08. Less than 4% of the time goes: without loop vectorization; with SROA of every helper before it is
    # linked; with the signatures of operators kept while types are inferred.
    passes, builder = cpu._module_pass_manager()
    passes.run(code, builder)
    code.verify()
    needs = [f.name for f in code.functions if f.is_declaration and not f.name.startswith("llvm.")]
    return cpu._tm.emit_object(code), needs
