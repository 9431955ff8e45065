"""The cache of compiled code: Numba's own keys a function on its file's mtime and misses a change in a file that it
inlines; ours is a folder named after a hash of every source that kernels are made of and of the CPU.

A file is a line that names the format, the SHA-256 of the rest, the length of a JSON object, that object, and machine
code. Nothing in it is unpickled: what Numba wants to know beside the code follows from the types, or is text. It is
believed only if nobody but this user or root may have written it.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import llvmlite.binding as llvm
from numba.core import caching, compiler, environment, funcdesc, types, typing
from numba.core.runtime import _nrt_python

from fastattn.kept import is_own, make_folder, sweep, write_whole
from fastattn.warned import warn

MAGIC = b"fastattn machine code 1\n"
DIGEST = 32
SYMBOL = re.compile(r"[\w.$]+", re.ASCII)


class CodeFolder:
    """Where one kind of machine's code is kept; ``path`` is asked for when it is first needed."""

    def __init__(self, path: Callable[[], Path]):
        self._path = path
        self._told: set[str] = set()

    @property
    def path(self) -> Path:
        return self._path()

    def load(self, name: str) -> bytes | None:
        """The contents of a file, None where there is none, or none that is to be believed: a warning tells once."""
        file = self.path / name
        try:
            if not (is_own(file) and is_own(self.path)):
                self._tell(f"compiled kernels in {self.path} are not used: others may have written them")
                return None
            data = file.read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest():
            self._tell(f"a compiled kernel in {self.path} is damaged; what is damaged there is compiled anew")
            return None
        return data[start:]

    def save(self, name: str, data: bytes) -> None:
        """Raises OSError where it cannot be kept."""
        make_folder(self.path)
        sweep(self.path)

        def write(stream: BinaryIO) -> None:
            stream.writelines([MAGIC, hashlib.sha256(data).digest(), data])

        write_whole(self.path / name, write)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warn(message)


def to_bytes(result: Any) -> bytes:
    """What a file keeps of Numba's CompileResult: machine code, and of its bitcode only the names that it defines.

    The bitcode would take 6 ms a kernel to read, and is for other functions, which call no kernel.
    """
    library, kind, (machine_code, bitcode) = result.library.serialize_using_object_code()
    description = result.fndesc
    if (
        kind != "object"
        or result.signature.return_type != types.none
        or result.environment.consts
        or result.reload_init
    ):
        raise ValueError(f"{description.qualname} is no function that this cache can keep")
    symbols = [function.name for function in llvm.parse_bitcode(bitcode).functions if not function.is_declaration]
    kept = {
        "library": library,
        "symbols": symbols,
        "module": description.modname,
        "function": description.qualname,
        "arguments": list(description.args),
        "tags": list(description.abi_tags),
        "uid": description.uid,
        "mangled": description.mangled_name,
    }
    text = json.dumps(kept).encode()
    return len(text).to_bytes(4, "little") + text + machine_code


def from_bytes(data: bytes, argument_types: tuple, namespace: dict, target_context: Any) -> Any:
    """The CompileResult of ``to_bytes`` for these arguments; ``namespace`` is the globals of the function."""
    length = int.from_bytes(data[:4], "little")
    kept, machine_code = json.loads(data[4 : 4 + length]), data[4 + length :]
    if not all(map(SYMBOL.fullmatch, kept["symbols"])):
        raise ValueError("a symbol's name")
    description = funcdesc.PythonFunctionDescriptor(
        native=True,
        modname=kept["module"],
        qualname=kept["function"],
        unique_name=f"{kept['function']}${kept['uid']}",
        doc="",
        typemap=None,
        restype=types.none,
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
    signature = typing.signature(types.none, *argument_types)
    # Numba's own way back from the parts of a CompileResult.
    return compiler.CompileResult._rebuild(
        target_context, library, description, own, signature, False, (), "", [], (own,)
    )


@functools.cache
def _name_runtime() -> None:
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class CodeCache(caching._Cache):
    """What a dispatcher of Numba's asks for compiled code. A cache that cannot be read or written only costs time.

    form        tells kernels from other functions of the same name
    on_compile  called with the function's name before it is compiled from scratch
    on_fault    called with the OSError that kept code from being written
    """

    def __init__(
        self,
        function: Callable,
        form: str,
        folder: CodeFolder,
        on_compile: Callable[[str], None],
        on_fault: Callable[[OSError], None],
    ):
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._function, self._form, self._folder = function, form, folder
        self._on_compile, self._on_fault = on_compile, on_fault

    @property
    def cache_path(self) -> str:
        return str(self._folder.path)

    def load_overload(self, sig, target_context):
        argument_types = tuple(getattr(sig, "args", sig))
        try:
            _name_runtime()  # which Numba would compile: 0.3 s and 30 MB for what compiled code does not use
            data = self._folder.load(self._file(argument_types, target_context))
            loaded = data and from_bytes(data, argument_types, self._function.__globals__, target_context)
        except Exception:  # noqa: BLE001  a foreign file may fail in any way; compiling replaces it
            loaded = None
        if not loaded:
            self._on_compile(self._name)
        return loaded or None

    def save_overload(self, sig, data) -> None:
        argument_types = tuple(data.signature.args)
        try:
            self._folder.save(self._file(argument_types, data.target_context), to_bytes(data))
        except OSError as error:
            self._on_fault(error)

    def enable(self) -> None:
        """It always is."""

    def disable(self) -> None:
        """It never is."""

    def flush(self) -> None:
        """Files go by ``fastattn cache clear``."""

    def _file(self, argument_types: tuple, target_context: Any) -> str:
        """A file a compiled form, named by its key: two processes that write at once write the same."""
        key = repr((argument_types, target_context.codegen().magic_tuple()))
        return f"{self._name}-{self._form}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
