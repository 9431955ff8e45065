"""Tile registers where the CPU has none: what their instructions do, in NumPy, and kernels that call it instead.

Imported before any kernel, as a plugin of pytest (``-p tests.simd.amx_model``), with a cache of its own
(FASTATTN_CACHE). It follows the operation sections of LDTILECFG, TILELOADD, TDPBUSD, TDPBSUD and TDPBF16PS in the Intel
64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import llvmlite.binding as llvm
import numpy as np
import pytest

from fastattn.simd import target

assert target.TARGET.name == "avx512", "tiles stand beside AVX-512"
target.TARGET = replace(target.TARGET, int8="vnni", bfloat16="tiles", tiles=("int8", "bfloat16"))

from fastattn.simd import amx  # noqa: E402  who imports more would have the target as it was
from tests.simd.amx_sums import block_sums, widened  # noqa: E402


class Registers:
    """One thread's."""

    def __init__(self, configuration: np.ndarray):
        assert configuration[0] == 1 and not configuration[1:16].any() and not configuration[32:48].any()
        assert not configuration[56:].any()
        self.bytes, self.rows = configuration[16:32].view(np.uint16).tolist(), configuration[48:56].tolist()
        assert all(
            (size, rows) == (0, 0) or 0 < size <= 64 and 0 < rows <= 16 for size, rows in zip(self.bytes, self.rows)
        )
        self.values = np.zeros((8, 16, 64), np.uint8)

    def words(self, register: int, dtype: type) -> np.ndarray:
        return self.values[register, : self.rows[register], : self.bytes[register]].view(dtype)

    def put(self, register: int, values: np.ndarray) -> None:
        self.values[register] = 0
        self.words(register, np.uint8)[:] = values.view(np.uint8)

    def check(self, sums: int, a: int, b: int) -> None:
        """What raises an invalid-opcode exception."""
        assert all(self.rows[register] for register in (sums, a, b))
        assert len({sums, a, b}) == 3 and self.rows[sums] == self.rows[a]
        assert self.bytes[a] == 4 * self.rows[b] and self.bytes[sums] == self.bytes[b]


registers: dict[int, Registers] = {}  # by the thread's number
counts = dict.fromkeys(amx.INSTRUCTIONS, 0)


def memory(address: int, distance: int, rows: int, size: int) -> np.ndarray:
    """[rows, size] bytes."""
    span = np.ctypeslib.as_array((ctypes.c_uint8 * (distance * (rows - 1) + size)).from_address(address))
    return np.lib.stride_tricks.as_strided(span, (rows, size), (distance, 1))


def configure(address: int) -> None:
    assert threading.get_ident() not in registers, "configured and not released"
    registers[threading.get_ident()] = Registers(memory(address, 64, 1, 64)[0].copy())


def release() -> None:
    del registers[threading.get_ident()]


def zero(register: int) -> None:
    registers[threading.get_ident()].values[register] = 0


def load(register: int, address: int, distance: int) -> None:
    mine = registers[threading.get_ident()]
    mine.put(register, memory(address, distance, mine.rows[register], mine.bytes[register]))


def store(register: int, address: int, distance: int) -> None:
    mine = registers[threading.get_ident()]
    values = mine.words(register, np.uint8)
    memory(address, distance, *values.shape)[:] = values


def multiply_bytes(sums: int, a: int, b: int, types: tuple[type, type] = (np.uint8, np.int8)) -> None:
    mine = registers[threading.get_ident()]
    mine.check(sums, a, b)
    a_MK, b_KN4 = (mine.words(register, dtype).astype(np.int32) for register, dtype in zip((a, b), types))
    b_KN = b_KN4.reshape(len(b_KN4), -1, 4).swapaxes(1, 2).reshape(a_MK.shape[1], -1)
    mine.put(sums, mine.words(sums, np.int32) + a_MK @ b_KN)


def multiply_halves(sums: int, a: int, b: int) -> None:
    mine = registers[threading.get_ident()]
    mine.check(sums, a, b)
    a_MK, b_KN2 = widened(mine.words(a, np.uint16)), widened(mine.words(b, np.uint16))
    b_KN = b_KN2.reshape(len(b_KN2), -1, 2).swapaxes(1, 2).reshape(a_MK.shape[1], -1)
    mine.put(sums, block_sums(a_MK, b_KN, mine.words(sums, np.float32)))


_REGISTER, _PLACE = ctypes.c_uint8, (ctypes.c_uint8, ctypes.c_size_t, ctypes.c_ssize_t)
_OPERATIONS: dict[str, tuple[Callable, tuple]] = {
    "configure": (configure, (ctypes.c_size_t,)),
    "release": (release, ()),
    "zero": (zero, (_REGISTER,)),
    "load": (load, _PLACE),
    "store": (store, _PLACE),
    "int8": (multiply_bytes, (_REGISTER,) * 3),
    "signed rows": (partial(multiply_bytes, types=(np.int8, np.uint8)), (_REGISTER,) * 3),
    "bfloat16": (multiply_halves, (_REGISTER,) * 3),
}
_kept = []


def _install() -> None:
    for name, (operation, parameters) in _OPERATIONS.items():

        def counted(*arguments, name=name, operation=operation):
            counts[name] += 1
            operation(*arguments)

        function = ctypes.CFUNCTYPE(None, *parameters)(counted)
        _kept.append(function)
        symbol = amx.INSTRUCTIONS[name] = f"fastattn_model_{name}"
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        llvm.add_symbol(symbol, address)


_install()


@pytest.fixture(autouse=True)
def _nothing_is_left_configured() -> Iterator[None]:
    yield
    assert not registers


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not all(counts.values()):
        session.config.get_terminal_writer().line(f"not all instructions are used: {counts}")
        session.exitstatus = 1
