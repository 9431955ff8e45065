"""Writes small sentencepiece models."""

import struct
from collections.abc import Sequence

from fastattn.text.protobuf import read_fields
from tests import GOLDENS

NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4
UNIGRAM, BPE = 1, 2
Piece = tuple[bytes, float, int]


def spm_bytes(pieces: Sequence[Piece], model_type: int = UNIGRAM, rules: bool = False) -> bytes:
    """A model of (piece, score, type); with ``rules``, those of a golden's normalizer."""
    written = [_field(1, _piece(*piece)) for piece in pieces] + [_field(2, bytes([0x18, model_type]))]
    if rules:
        golden = (GOLDENS / "text_unigram.model").read_bytes()
        written += [_field(3, value) for number, _, value in read_fields(golden, "golden") if number == 3]
    return b"".join(written)


def _piece(content: bytes, score: float, kind: int) -> bytes:
    return _field(1, content) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])


def _field(number: int, data: bytes | int) -> bytes:
    assert isinstance(data, bytes)
    length, digits = len(data), []
    while True:
        digits.append(length & 0x7F | (0x80 if length > 0x7F else 0))
        length >>= 7
        if not length:
            return bytes([number << 3 | 2, *digits]) + data
