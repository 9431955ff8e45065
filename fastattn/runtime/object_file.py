"""Object files of kernels, placed in this process's memory without LLVM: on Linux on x86-64.

To load LLVM for its linker alone takes 0.1 s of a start, and 45 MB. Numba compiles for LLVM's large code model, where a
linker has nothing to write but addresses of 8 bytes. Tables for unwinding are left out: kernels raise no exceptions.

The format is that of the System V ABI (gABI 4.1, chapter 4), with its supplement for AMD64.
"""

import ctypes
import mmap
import struct
import sys
from itertools import groupby
from typing import NamedTuple

_HEAD = b"\x7fELF\x02\x01"  # 64 bits, the least significant byte first
_OBJECT_FILE_OF_AMD64 = (1, 62)
_SYMBOLS, _RELOCATIONS, _ZEROS, _UNWINDING = 2, 4, 8, 0x70000001  # types of sections
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4  # flags of sections
_ABSOLUTE_ADDRESS = 1  # the type of a relocation: 8 bytes, a symbol's address plus a number


class _Section(NamedTuple):
    """A row of the table of sections."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    target: int
    alignment: int
    row_size: int

    @property
    def protection(self) -> int:
        """What ``mprotect`` takes."""
        writing = mmap.PROT_WRITE if self.flags & _WRITABLE else 0
        return mmap.PROT_READ | writing | (mmap.PROT_EXEC if self.flags & _EXECUTABLE else 0)

    def contents(self, data: bytes) -> bytes:
        return bytes(self.size) if self.type == _ZEROS else data[self.offset : self.offset + self.size]


class _Symbol(NamedTuple):
    """A row of the table of symbols, with the name in place of its offset."""

    name: str
    kind: int
    visibility: int
    section: int
    offset: int
    size: int


def is_placeable(data: bytes) -> bool:
    """Whether this system and the object file are of the kind that ``place`` takes."""
    is_linux = sys.platform == "linux" and sys.maxsize == 2**63 - 1
    return is_linux and data.startswith(_HEAD) and struct.unpack_from("<HH", data, 16) == _OBJECT_FILE_OF_AMD64


def place(data: bytes) -> dict[str, int]:
    """Place an object file in memory for the rest of the process: symbol -> address.

    Raises OSError for a symbol that neither the file nor the process has, and for relocations of other types.
    """
    (table,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * number)) for number in range(count)]
    symbols = _symbols(data, sections)
    offsets, ranges = _layout(sections)
    image = bytearray(ranges[-1][1])
    base = _allocate(len(image))
    for number, offset in offsets.items():
        image[offset : offset + sections[number].size] = sections[number].contents(data)
    starts = {number: base + offset for number, offset in offsets.items()}
    for section in sections:
        if section.type == _RELOCATIONS and section.target in offsets:
            for offset, info, addend in struct.iter_unpack("<QQq", section.contents(data)):
                if (kind := info & 0xFFFFFFFF) != _ABSOLUTE_ADDRESS:
                    raise OSError(f"expected absolute addresses in a kernel's object file, got relocation {kind}")
                address = _address(symbols[info >> 32], starts) + addend
                struct.pack_into("<Q", image, offsets[section.target] + offset, address)
    ctypes.memmove(base, bytes(image), len(image))
    for begin, end, protection in ranges:
        if ctypes.pythonapi.mprotect(ctypes.c_void_p(base + begin), ctypes.c_size_t(end - begin), protection):
            raise OSError("the system does not let a kernel's code run")
    return {symbol.name: _address(symbol, starts) for symbol in symbols if symbol.section in starts}


def _symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    (table,) = (section for section in sections if section.type == _SYMBOLS)
    names = sections[table.link].contents(data)
    rows = struct.iter_unpack("<IBBHQQ", table.contents(data))
    return [_Symbol(names[name : names.index(b"\0", name)].decode(), *row) for name, *row in rows]


def _layout(sections: list[_Section]) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """(section's number -> offset, [begin, end, protection] of each range of pages) of what belongs in memory."""
    numbers = [n for n, section in enumerate(sections) if section.flags & _ALLOCATED and section.type != _UNWINDING]
    offsets, ranges, end = {}, [], 0
    for protection, group in groupby(
        sorted(numbers, key=lambda n: sections[n].protection), lambda n: sections[n].protection
    ):
        begin = end
        for number in group:
            alignment = max(1, sections[number].alignment)
            offsets[number] = -(-end // alignment) * alignment
            end = offsets[number] + sections[number].size
        end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        ranges.append((begin, end, protection))
    return offsets, ranges


def _allocate(size: int) -> int:
    """The address of new memory, which is never freed: threads may run its code until the process has ended."""
    function = ctypes.pythonapi["mmap"]
    function.restype = ctypes.c_void_p
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address: int = function(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(f"no memory for {size:,} bytes of a kernel's code")
    return address


def _address(symbol: _Symbol, starts: dict[int, int]) -> int:
    """The address of a symbol of the file, or of the process."""
    if symbol.section in starts:
        return starts[symbol.section] + symbol.offset
    try:
        return ctypes.cast(ctypes.pythonapi[symbol.name], ctypes.c_void_p).value or 0
    except AttributeError:
        raise OSError(f"no {symbol.name} in this process") from None
