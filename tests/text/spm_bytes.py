"""Writes sentencepiece models field by field, odd ones too."""

import struct
from collections.abc import Sequence

from fastattn.text.sentencepiece import read_fields
from tests import GOLDENS

NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4
UNIGRAM, BPE = 1, 2
Piece = tuple[bytes | str, float, int]


def field(number, value):
    """One protobuf field: bytes, text, a float or an int."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def piece(text, score=-1.0, kind=NORMAL):
    content = text if isinstance(text, bytes) else text.encode()
    return field(1, field(1, content) + field(2, float(score)) + field(3, kind))


def spm_bytes(pieces: Sequence[Piece], model_type: int = UNIGRAM, rules: bool = False) -> bytes:
    """A model of (piece, score, type); with ``rules``, those of a golden's normalizer."""
    written = [piece(*one) for one in pieces] + [field(2, field(3, model_type))]
    if rules:
        golden = (GOLDENS / "text_unigram.model").read_bytes()
        written += [field(3, value) for number, _, value in read_fields(golden, "golden") if number == 3]
    return b"".join(written)


def charsmap(rule, replacements, ends):
    """A table whose one rule is "a": ``rule`` is added to its unit, and where it ends its replacement is the first."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = rule << 10 | ends << 8 | ord("a")
    units[256 ^ ord("a") ^ rule] |= 1 << 31 if ends else 0
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + replacements


UNKNOWN_PIECE = piece("<unk>", 0.0, UNKNOWN)
PLAIN = UNKNOWN_PIECE + piece("\u2581", -2.0) + piece("a", -2.0) + piece("\u2581a", -1.0)
