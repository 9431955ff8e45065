"""All that fastattn takes of Numba beyond its public interface: how a kernel is compiled, and its code kept.

Numba optimizes every compiled function by itself, translates it, and does both again in each caller that it is linked
into; a ``prange`` adds three such layers. A kernel with its helpers took 2 to 3 times as long that way. Here a helper
stays as it was lowered until its kernel is compiled, which takes in all of them and is optimized in one go; and what
shares the work among threads calls the kernel by its address.

Importing this raises ImportError or AttributeError where Numba is not as in the versions of setup.cfg; ``jit`` then
does with its public interface alone.
"""

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import caching, cgutils, codegen, compiler, dispatcher, environment, funcdesc, typed_passes, typing
from numba.core.base import BaseContext
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python
from numba.extending import intrinsic

from fastattn.lazy import lazy
from fastattn.runtime.loop import cut_loop
from fastattn.runtime.pool import ENTRY, FLAGS, I64, LAUNCH, LAUNCHER, MOST_PARTS, READY, word

__all__ = [
    "HELPER",
    "compile_helper",
    "compile_kernel",
    "from_bytes",
    "global_compiler_lock",
    "keep_code",
    "make_run",
    "to_bytes",
]

# Function -> how many parameters it has, and names of what it must use, of the object's attributes above all.
_CPU, _LIBRARY = codegen.CPUCodegen, codegen.JITCodeLibrary
_KNOWN: dict[Callable, tuple[int, set[str]]] = {
    _LIBRARY._optimize_functions: (2, {"_codegen", "_data_layout", "data_layout"}),
    _LIBRARY._optimize_final_module: (1, {"_final_module", "_module_pass_manager"}),
    _LIBRARY._finalize_final_module: (1, {"_final_module"}),
    _LIBRARY.add_linking_library: (2, {"_linking_libraries", "_ensure_finalized"}),
    _LIBRARY.finalize: (1, {"_linking_libraries", "_get_module_for_linking", "_finalize_final_module", "link_in"}),
    _LIBRARY._get_module_for_linking: (1, {"_final_module"}),
    _LIBRARY.enable_object_caching: (1, set()),
    _LIBRARY.serialize_using_object_code: (1, set()),
    _LIBRARY.get_pointer_to_function: (2, set()),
    _CPU.unserialize_library: (2, set()),
    _CPU.magic_tuple: (1, set()),
    compiler.Compiler.__init__: (8, {"state"}),
    compiler.CompileResult._rebuild.__func__: (11, {"unserialize_library", "codegen", "get_executable"}),
    dispatcher.Dispatcher.__init__: (5, {"_cache"}),
    dispatcher.Dispatcher.get_call_template: (3, {"compile"}),
    caching.Cache.load_overload: (3, set()),
    caching.Cache.save_overload: (3, set()),
    funcdesc.FunctionDescriptor.__init__: (19, {"abi_tags", "uid", "mangled_name"}),
    environment.lookup_environment: (1, set()),
    BaseContext.call_internal_no_propagate: (5, set()),
    cgutils.alloca_once_value: (4, set()),
    typed_passes._reload_parfors: (0, {"_launch_threads"}),
    compiler.Compiler.define_pipelines: (1, {"define_nopython_pipeline"}),
    compiler._make_subtarget: (2, {"subtarget"}),
}


def _check() -> None:
    for function, (parameters, names) in _KNOWN.items():
        code = getattr(function, "__wrapped__", function).__code__
        if code.co_argcount != parameters or not names <= {*code.co_names, *code.co_varnames}:
            raise ImportError(f"{function.__module__}.{function.__qualname__} is another")
    if not isinstance(_nrt_python.c_helpers, dict):
        raise ImportError("numba.core.runtime._nrt_python.c_helpers is another")


_check()


class _Library(codegen.JITCodeLibrary):
    def _optimize_functions(self, module):
        module.data_layout = self._codegen._data_layout  # and nothing else: all is optimized at the end


class _HelperLibrary(_Library):
    """A helper's own code, to be linked into kernels: that of the helpers it calls is not in it."""

    def finalize(self):
        # The engine gets the symbol behind which Numba keeps the helper's environment, but no code to translate.
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        code = self._final_module
        self._final_module = llvm.parse_assembly("\n".join(f"@{name} = common global ptr null" for name in names))
        self._finalize_final_module()
        self._final_module = code

    @lazy
    def unlinked_module(self):
        return super()._get_module_for_linking()

    def _get_module_for_linking(self):
        """For a library of Numba's, which looks no further: with the code of all that it calls."""
        whole = self.unlinked_module.clone()
        for code in _codes_of(self._linking_libraries):
            whole.link_in(code, preserve=True)
        return whole


def _codes_of(libraries):
    """The code of libraries, of the helpers that they call, of those that these call, and so on: each once."""
    waiting, seen = list(libraries), set()
    while waiting:
        library = waiting.pop()
        if library in seen:
            continue
        seen.add(library)
        if isinstance(library, _HelperLibrary):
            waiting += library._linking_libraries
            yield library.unlinked_module
        else:
            yield library._get_module_for_linking()


class _KernelLibrary(_Library):
    """A kernel's code with that of its helpers."""

    def finalize(self):
        for code in _codes_of(self._linking_libraries):
            self._final_module.link_in(code, preserve=True)
        self._linking_libraries = []  # which Numba would link
        super().finalize()

    def _optimize_final_module(self):
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                # No other module calls it, so none is kept beside its inlined copies; and none may take it for its own
                # of that name, since LLVM changes what arguments it takes. A symbol that is internal would be found.
                function.linkage = "private"
        # -O2 would take 10% less in all, and attention 2 to 8% longer
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


# Passes for what kernels have none of: contexts, closures, literally and literal_unroll, Numba's own inlining, raises,
# expressions of whole arrays. After most of them Numba computes the lifetimes of all variables anew.
_NEEDLESS = {
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
    """Bytes of a value of an LLVM type, which Numba asks for with each variable, and llvmlite parses a module for."""
    return kind.get_abi_size(cpu_target.target_context.target_data)


def _make_compiler(library_class):
    class LibraryCompiler(compiler.Compiler):
        def __init__(self, typing_context, target_context, library, *rest):
            if library is None:
                library = library_class(target_context.codegen(), library_class.__name__)
                library.enable_object_caching()
            super().__init__(typing_context, target_context, library, *rest)
            self.state.targetctx = self.state.targetctx.subtarget(get_abi_sizeof=_size_of)

        def define_pipelines(self):
            (manager,) = super().define_pipelines()
            manager.passes = [one for one in manager.passes if one[0]._name not in _NEEDLESS]
            manager.finalize()
            return [manager]

    return LibraryCompiler


_HelperCompiler, _KernelCompiler = _make_compiler(_HelperLibrary), _make_compiler(_KernelLibrary)


# Without Numba's runtime helpers count no references, each an atomic instruction, to the arrays that they are given.
HELPER = {
    "pipeline_class": _HelperCompiler,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    **FLAGS,
}


def compile_helper(function: Callable) -> Callable:
    """What kernels call, inlined by LLVM into them; never called from Python."""
    helper = numba.njit(**HELPER)(function)
    resolve = helper.get_call_template

    def resolve_any(args, kws):
        """Called with a number that is written out, it is the same helper: no form of its own."""
        return resolve(tuple(map(types.unliteral, args)), {name: types.unliteral(kind) for name, kind in kws.items()})

    helper.get_call_template = resolve_any
    return helper


def compile_kernel(function: Callable) -> Callable:
    """What is called from Python, and calls helpers."""
    return numba.njit(pipeline_class=_KernelCompiler, no_cfunc_wrapper=True, **FLAGS)(function)


def keep_code(compiled: Any, cache: Any) -> None:
    """Have a compiled function's code come from a cache with ``load_overload`` and ``save_overload``."""
    compiled._cache = cache


def make_run(function: Callable) -> Callable:
    """The function to compile of a kernel: ``run(pool, threads, *arguments)``.

    function  a kernel's; it must not raise.
    pool      the address of a Pool; where more helpers are wanted than it has, nothing is done, and their number
              returned, else 0. Not used for one thread, which does all tasks here.
    """

    @functools.cache
    def helper() -> Any:
        return compile_helper(cut_loop(function))

    @intrinsic
    def share_tasks(typing_context, pool, threads, arguments):
        kinds = (types.intp, types.intp, *arguments.types)
        helper().compile(kinds)

        def generate(context, builder, kind, values):
            pool, threads, arguments = values
            entry = _emit_entry(context, builder.module, helper().overloads[kinds], arguments.type)
            place = builder.ptrtoint(cgutils.alloca_once_value(builder, arguments), I64)
            return _emit_shares(builder, entry, place, pool, threads)

        return types.int64(types.intp, types.intp, arguments), generate

    def run(pool, threads, *arguments):
        return share_tasks(pool, threads, arguments)

    # symbols are named after it
    run.__module__, run.__qualname__ = function.__module__, f"{function.__qualname__}.run"
    return run


def _emit_shares(builder, entry, place, pool, threads):
    """Have all tasks done, shared among at most so many threads; what ``run`` returns."""
    lacking = cgutils.alloca_once_value(builder, I64(0))
    with builder.if_else(builder.icmp_signed("<=", threads, I64(1))) as (one, several):
        with one:
            builder.call(entry, [place, I64(0), I64(1 << 62)])
        with several:
            tasks = builder.call(entry, [place, I64(0), I64(0)])
            parts = _emit_least(builder, tasks, threads, I64(MOST_PARTS))
            with builder.if_else(builder.icmp_signed("<=", parts, I64(1))) as (few, many):
                with few:
                    builder.call(entry, [place, I64(0), tasks])
                with many:
                    helpers = builder.sub(parts, I64(1))
                    ready = builder.load_atomic(word(builder, builder.add(pool, I64(READY))), "seq_cst", 8)
                    with builder.if_else(builder.icmp_signed(">", helpers, ready)) as (lack, enough):
                        with lack:
                            builder.store(helpers, lacking)
                        with enough:
                            launcher = builder.load(word(builder, builder.add(pool, I64(LAUNCHER))))
                            launch = builder.inttoptr(launcher, LAUNCH.as_pointer())
                            builder.call(launch, [pool, builder.ptrtoint(entry, I64), place, tasks, parts])
    return builder.load(lacking)


def _emit_least(builder, first, *others):
    for other in others:
        first = builder.select(builder.icmp_signed("<", first, other), first, other)
    return first


def _emit_entry(context, module, compiled, arguments_type):
    """The helper as a function of one type for all kernels, with its arguments as a structure in memory."""
    context.active_code_library.add_linking_library(compiled.library)
    entry = ir.Function(module, ENTRY, f"{compiled.fndesc.mangled_name}.entry")
    entry.linkage = "private"
    entry.attributes.add("noinline")  # it is called in four places
    builder = ir.IRBuilder(entry.append_basic_block())
    place, first, end = entry.args
    stored = builder.load(builder.inttoptr(place, arguments_type.as_pointer()))
    arguments = [builder.extract_value(stored, i) for i in range(len(compiled.signature.args) - 2)]
    _, tasks = context.call_internal_no_propagate(
        builder, compiled.fndesc, compiled.signature, [first, end, *arguments]
    )
    builder.ret(context.cast(builder, tasks, compiled.signature.return_type, types.int64))
    return entry


_RETURNED = {str(kind): kind for kind in (types.none, types.int64)}
_SYMBOL = re.compile(r"[\w.$]+", re.ASCII)


def to_bytes(result: Any) -> bytes:
    """What a file keeps of Numba's CompileResult: machine code, and of its bitcode only the names that it defines.

    The bitcode would take 6 ms a kernel to read, and is for other functions, which call no kernel.
    """
    library, kind, (machine_code, bitcode) = result.library.serialize_using_object_code()
    description, returned = result.fndesc, str(result.signature.return_type)
    parallel = bool(result.reload_init)  # Numba's parallel form, whose threads must be there when it is loaded
    if kind != "object" or returned not in _RETURNED or result.environment.consts:
        raise ValueError(f"{description.qualname} is no function that this cache can keep")
    symbols = [function.name for function in llvm.parse_bitcode(bitcode).functions if not function.is_declaration]
    kept = {
        "library": library,
        "symbols": symbols,
        "module": description.modname,
        "function": description.qualname,
        "arguments": list(description.args),
        "returned": returned,
        "parallel": parallel,
        "tags": list(description.abi_tags),
        "uid": description.uid,
        "mangled": description.mangled_name,
    }
    text = json.dumps(kept).encode()
    return len(text).to_bytes(4, "little") + text + machine_code


def from_bytes(data: bytes, argument_types: tuple, namespace: dict, target_context: Any) -> Any:
    """The CompileResult of ``to_bytes`` for these arguments; ``namespace`` is the globals of the function."""
    _name_runtime()  # which Numba would compile: 0.3 s and 30 MB for what compiled code does not use
    length = int.from_bytes(data[:4], "little")
    kept, machine_code = json.loads(data[4 : 4 + length]), data[4 + length :]
    if not all(map(_SYMBOL.fullmatch, kept["symbols"])):
        raise ValueError("a symbol's name")
    returned = _RETURNED[kept["returned"]]
    description = funcdesc.PythonFunctionDescriptor(
        native=True,
        modname=kept["module"],
        qualname=kept["function"],
        unique_name=f"{kept['function']}${kept['uid']}",
        doc="",
        typemap=None,
        restype=returned,
        calltypes=None,
        args=tuple(kept["arguments"]),
        kws=(),
        argtypes=argument_types,
        abi_tags=kept["tags"],
        uid=kept["uid"],
    )
    if description.mangled_name != kept["mangled"]:
        raise ValueError("another function's code")
    own = environment.lookup_environment(description.env_name) or environment.Environment(namespace)
    own.env_name = description.env_name
    environment.Environment._memo[own.env_name] = own
    names = llvm.parse_assembly("".join(f'define void @"{name}"() {{ ret void }}\n' for name in kept["symbols"]))
    library = kept["library"], "object", (machine_code, names.as_bitcode())
    signature = typing.signature(returned, *argument_types)
    reload = (typed_passes._reload_parfors,) if kept["parallel"] else ()
    # Numba's own way back from the parts of a CompileResult.
    return compiler.CompileResult._rebuild(
        target_context, library, description, own, signature, False, (), "", reload, (own,)
    )


@functools.cache
def _name_runtime() -> None:
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
