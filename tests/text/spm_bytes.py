"""Writes sentencepiece models field by field, odd ones too."""

import struct


def field(number, value):
    """One protobuf field: bytes, a float or an int."""
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


def piece(text, score=-1.0, kind=1):
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


def charsmap(rule, replacements, ends):
    """A table whose one rule is "a": ``rule`` is added to its unit, and where it ends its replacement is the first."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = rule << 10 | ends << 8 | ord("a")
    units[256 ^ ord("a") ^ rule] |= 1 << 31 if ends else 0
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + replacements


UNKNOWN = piece("<unk>", 0.0, 2)
PLAIN = UNKNOWN + piece("\u2581", -2.0) + piece("a", -2.0) + piece("\u2581a", -1.0)
