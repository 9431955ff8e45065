"""Checks of a .spm file before sentencepiece reads it: limits of time and memory.

sentencepiece refuses files that are damaged, but takes rules that a text could be followed along to its end from each
of its characters, or that make it grow by the file's size.
"""

import contextlib
import struct

import numpy as np

from fastattn.errors import TokenizerError
from fastattn.text.protobuf import read_bytes, read_fields, read_int

FILE = "sentencepiece model"
MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
# The most bytes that a rule of a normalizer's table takes, and that it gives. Those of NFKC take 12 and give 33.
LONGEST_RULE = 128


def check_spm(data: bytes) -> None:
    """Raise TokenizerError for a file's bytes that are no such model, or one that asks for too much."""
    start = _after_short_pieces(data)
    pieces = start > 0
    for number, wire, value in read_fields(data, FILE, start):
        if number == 1:
            pieces = True
        elif number == 2:
            _check_trainer(read_bytes(value, wire, f"{FILE}, trainer_spec"))
        elif number == 3:
            _check_normalizer(read_bytes(value, wire, f"{FILE}, normalizer_spec"), f"{FILE}, normalizer_spec")
        elif number == 5:
            _check_normalizer(read_bytes(value, wire, f"{FILE}, denormalizer_spec"), f"{FILE}, denormalizer_spec")
    if not pieces:
        raise TokenizerError(f"{FILE}: no pieces; is this a .spm or sentencepiece.model file?")


def _after_short_pieces(data: bytes) -> int:
    """Where the first field begins that is not a piece (field 1) of fewer than 128 bytes."""
    position = begin = 0
    with contextlib.suppress(IndexError):
        while data[position] == 0x0A and (size := data[position + 1]) < 0x80:
            begin = position
            position += size + 2
    return position if position <= len(data) else begin  # past the end, which read_fields tells of


def _check_trainer(data: bytes) -> None:
    for number, _, value in read_fields(data, f"{FILE}, trainer_spec"):
        if number == 3 and read_int(value, f"{FILE}, trainer_spec") not in MODEL_TYPES:
            known = ", ".join(f"{number} {name}" for number, name in MODEL_TYPES.items())
            raise TokenizerError(f"{FILE}: model type {value!r} is not known ({known})")


def _check_normalizer(data: bytes, what: str) -> None:
    for number, wire, value in read_fields(data, what):
        if number == 2:
            _check_table(read_bytes(value, wire, what))


def _check_table(table: bytes) -> None:
    """Refuse long rules in a "precompiled charsmap".

    That is a u32 length, a Darts-clone double-array trie of that many bytes over UTF-8, and the replacements, each
    ended by a NUL. sentencepiece refuses what is not.
    """
    (length,) = struct.unpack_from("<I", table) if len(table) > 4 else (0,)
    if not 0 < length <= len(table) - 4 or length % 4:
        return
    if max(map(len, table[4 + length :].split(b"\0"))) > LONGEST_RULE:
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table gives more than {LONGEST_RULE} bytes")
    if _is_deep(np.frombuffer(table, "<u4", length // 4, 4)):
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table takes more than {LONGEST_RULE} bytes")


def _is_deep(units_N: np.ndarray) -> bool:
    """Whether more than LONGEST_RULE steps lead somewhere from the trie's first unit.

    A unit's children lie at its base, by exclusive or with the byte that leads to each, which is the child's label. A
    zero byte leads to values, and to units that nothing is in.
    """
    positions_N = np.arange(len(units_N))
    bases_N = positions_N ^ ((units_N >> 10) << ((units_N & 0x200) >> 6))
    labels_N = units_N & 0x800000FF
    children = np.flatnonzero((labels_N > 0) & (labels_N < 256))
    parents = (positions_N ^ labels_N)[children]  # their base
    is_base = np.empty(len(units_N) + 256, bool)
    reached = np.zeros(1, int)
    for _ in range(LONGEST_RULE + 1):
        bases = bases_N[reached]
        is_base[:] = False
        is_base[bases[bases < len(is_base)]] = True
        reached = children[is_base[parents]]
        if not len(reached):
            return False
    return True
