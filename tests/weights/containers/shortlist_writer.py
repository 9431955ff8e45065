"""Marian's binary shortlists, written from their description and not with the reader's code."""

import struct
from collections.abc import Sequence

MAGIC = 0xF11A48D5013417F5


def hash_words(data: bytes) -> int:
    total = 0
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        total ^= (word + 0x9E3779B9 + (total << 6) + (total >> 2)) % 2**64
    return total


def binary_shortlist(first: int, lists: Sequence[Sequence[int]], magic: int = MAGIC, **header: int) -> bytes:
    """``lists[s]`` is what source id s adds; ``header`` replaces fields of the header that is right."""
    offsets, ids = [0], []
    for targets in lists:
        ids += targets
        offsets.append(len(ids))
    numbers = {"first": first, "best": 50, "offsets": len(offsets), "ids": len(ids)} | header
    body = struct.pack("<4Q", *(numbers[name] for name in ("first", "best", "offsets", "ids")))
    body += struct.pack(f"<{len(offsets)}Q{len(ids)}I", *offsets, *ids)
    return struct.pack("<2Q", magic, header.get("checksum", hash_words(body))) + body
