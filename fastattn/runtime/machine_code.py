"""Machine code of kernels in this process, which Python calls as functions of C, without Numba.

A compiled kernel is an object file that exports a *wrapper*, which Python calls like a built-in function. The wrapper
unpacks its arguments into a structure in memory, releases the GIL, and has the kernel's tasks done. It finds functions
and objects of Python and NumPy in a table of addresses, which is its ``self``: so the object file suits every process.
"""

import ctypes
import functools
import struct
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from fastattn.runtime.code_cache import Code
from fastattn.runtime.object_file import is_placeable, place

# A wrapper's table holds the addresses of these functions of Python's C interface, then those of these objects, then
# those of the classes in the kernel's signature.
FUNCTIONS = (
    "PyLong_AsLongLong PyLong_FromLongLong PyFloat_AsDouble PyErr_Occurred PyErr_Clear PyNumber_AsSsize_t "
    "PyObject_IsTrue PyTuple_Size PyTuple_GetItem PyType_IsSubtype PyObject_GetAttrString Py_DecRef "
    "PyEval_SaveThread PyEval_RestoreThread"
).split()
OBJECTS = (int, bool, float, tuple, np.ndarray, np.float32, np.bool_, None, OverflowError)
# Offsets of the contents of a bytes object, such as the table; of what follows an object's head; of the head's type.
TABLE = bytes.__basicsize__ - 1
HEAD = object.__basicsize__
TYPE = HEAD - 8
# Offsets in an array and in its dtype: NumPy's C interface, the same in versions 1 and 2.
DATA, NDIM, SHAPE, STRIDES, DTYPE, ARRAY_FLAGS = HEAD, HEAD + 8, HEAD + 16, HEAD + 24, HEAD + 40, HEAD + 48
BYTE_ORDER, TYPE_NUMBER = HEAD + 10, HEAD + 12
C_CONTIGUOUS, ALIGNED = 0x1, 0x100

MISMATCH = -1  # the result of a wrapper for arguments of other types
_METH_FASTCALL = 0x80


class _MethodDefinition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]  # fmt: skip


_definitions: list[_MethodDefinition] = []  # kept, since functions refer to them


@functools.cache
def _common_table() -> bytes:
    """The part that all wrappers' tables begin with; ImportError where objects lie in memory in another way."""
    check_layout()
    functions = (getattr(ctypes.pythonapi, name) for name in FUNCTIONS)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    return struct.pack(f"{len(FUNCTIONS) + len(OBJECTS)}q", *addresses, *map(id, OBJECTS))


class _Linker:
    """LLVM's linker: for the systems, CPUs and object files that ``place`` does not take."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm  # it takes 60 ms

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._llvm, self._engine = llvm, llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        # The engine is never deleted: threads of the pool may run its code until the process has ended.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))
        self._object_files: list[bytes] = []  # kept, since the engine may read them later

    def link(self, code: Code) -> dict[str, int]:
        """Link compiled code into this process: symbol -> address. OSError where a symbol is missing."""
        missing = [name for name in code.needs if not self._llvm.address_of_symbol(name)]
        if missing:
            raise OSError(f"no {', '.join(missing)} in this process")
        self._object_files.append(code.object_file)
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(code.object_file))
        self._engine.finalize_object()
        return {symbol: self._engine.get_function_address(symbol) for symbol in code.exports.values()}


_linker = functools.cache(_Linker)


def check_layout() -> None:
    """ImportError where the layout of objects in memory is not what wrappers expect."""
    array = np.zeros((2, 3), np.float32)[:, 1:]

    def word(address: int, kind: Any = ctypes.c_int64) -> int:
        return kind.from_address(address).value

    layout = (
        word(id(array) + TYPE),
        word(id(array) + DATA),
        word(id(array) + NDIM, ctypes.c_int32),
        [word(word(id(array) + SHAPE) + 8 * n) for n in range(2)],
        [word(word(id(array) + STRIDES) + 8 * n) for n in range(2)],
        word(word(id(array) + DTYPE) + TYPE_NUMBER, ctypes.c_int32),
        word(word(id(array) + DTYPE) + BYTE_ORDER, ctypes.c_char),
        word(id(array) + ARRAY_FLAGS, ctypes.c_int32) & (C_CONTIGUOUS | ALIGNED),
        ctypes.string_at(id(b"table") + TABLE, 5),
    )
    expected = (id(np.ndarray), array.ctypes.data, 2, [2, 2], [12, 4], array.dtype.num, b"=", ALIGNED, b"table")
    if sys.maxsize != 2**63 - 1 or layout != expected:
        raise ImportError(f"arrays of NumPy {np.__version__} lie in memory in another way")


def load(code: Code, classes: list[type]) -> tuple[Any, dict[str, int]]:
    """Load compiled code into this process: (wrapper, role -> address). OSError where a symbol is missing.

    classes  the classes that the signature names
    Only one thread at a time may call ``load``.
    """
    table = _common_table() + struct.pack(f"{len(classes)}q", *map(id, classes))
    symbols: dict[str, int] = {}
    if is_placeable(code.object_file):
        with suppress(OSError):  # what LLVM's linker may know
            symbols = place(code.object_file)
    symbols = symbols or _linker().link(code)
    addresses = {role: symbols.get(symbol, 0) for role, symbol in code.exports.items()}
    if not all(addresses.values()):
        raise OSError("the object file lacks what it should define")
    return _python_function(code.exports["wrapper"], addresses["wrapper"], table), addresses


def _python_function(name: str, address: int, table: bytes) -> Any:
    """The C function (self, arguments, their number) at an address as a built-in function, whose self is ``table``."""
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    _definitions.append(definition)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object
    return make(ctypes.addressof(definition), table, None)


def signature_of(arguments: tuple, classes: list[type]) -> str:
    """The types of a call's arguments as text, the key of a variant; TypeError for a type that no kernel takes.

        f2C          an array: the character of its dtype, its number of axes, "C" if it is C-contiguous, else "A"; a
                     small letter if it is not aligned
        I B D F Z    an integer, a truth value, a float64, a float32, None
        (I,f2C)      a tuple;  module:Name(...)  a named tuple
        <name>       an object with a ``_numba_type_`` of that name, and an ``address``

    Read-only and writable arrays have the same key, and so have integers of Python and of NumPy.

    classes  a list, to which the classes in the key are added, in order: of named tuples, of objects with a Numba type
    """
    return ",".join([_type_text(argument, classes) for argument in arguments])


def _type_text(value: Any, classes: list[type]) -> str:
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "A"
        return f"{value.dtype.char}{value.ndim}{layout if value.flags.aligned else layout.lower()}"
    if isinstance(value, tuple):
        if type(value) is not tuple:
            classes.append(type(value))
            return f"{type(value).__module__}:{type(value).__qualname__}({signature_of(value, classes)})"
        return f"({signature_of(value, classes)})"
    if value is None:
        return "Z"
    if isinstance(value, bool | np.bool_):
        return "B"
    if isinstance(value, int | np.integer):
        return "I"
    if isinstance(value, np.float32):
        return "F"
    if isinstance(value, float):
        return "D"
    if hasattr(value, "_numba_type_"):
        classes.append(type(value))
        return f"<{value._numba_type_.name}>"
    raise TypeError(f"no kernel takes a {type(value).__name__}")
