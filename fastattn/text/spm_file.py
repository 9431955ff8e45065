"""A sentencepiece model file (.spm) as plain data."""

import math
from dataclasses import dataclass, field

from fastattn.errors import TokenizerError
from fastattn.text.protobuf import read_bytes, read_fields, read_float, read_int, read_text

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

FILE = "sentencepiece model"


@dataclass
class NormalizerSpec:
    """How text is normalised; the defaults are the format's own."""

    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


@dataclass
class SpmFile:
    """pieces, scores (float32 values) and types run in the order of the ids."""

    pieces: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    model_type: int = UNIGRAM
    treat_whitespace_as_suffix: bool = False
    byte_fallback: bool = False
    unk_surface: str = " \u2047 "
    normalizer: NormalizerSpec = field(default_factory=NormalizerSpec)
    denormalizer: NormalizerSpec = field(default_factory=NormalizerSpec)
    unk_id: int = -1


def read_spm(data: bytes) -> SpmFile:
    """Read and check a .spm file's bytes; raises TokenizerError in one line where they are malformed."""
    spm = SpmFile()
    for number, wire, value in read_fields(data, FILE):
        if number == 1:
            _read_piece(read_bytes(value, wire, f"{FILE}, piece {len(spm.pieces)}"), spm)
        elif number == 2:
            _read_trainer(read_bytes(value, wire, f"{FILE}, trainer_spec"), spm)
        elif number == 3:
            _read_normalizer(read_bytes(value, wire, f"{FILE}, normalizer_spec"), spm.normalizer)
        elif number == 5:
            _read_normalizer(read_bytes(value, wire, f"{FILE}, denormalizer_spec"), spm.denormalizer)
    _check(spm)
    return spm


def _read_piece(data: bytes, spm: SpmFile) -> None:
    what = f"{FILE}, piece {len(spm.pieces)}"
    piece, score, kind = "", 0.0, NORMAL
    for number, wire, value in read_fields(data, what):
        if number == 1:
            piece = read_text(value, wire, what)
        elif number == 2:
            score = read_float(value, what)
        elif number == 3:
            kind = read_int(value, what)
    spm.pieces.append(piece)
    spm.scores.append(score)
    spm.types.append(kind)


def _read_trainer(data: bytes, spm: SpmFile) -> None:
    what = f"{FILE}, trainer_spec"
    for number, wire, value in read_fields(data, what):
        if number == 3:
            spm.model_type = read_int(value, what)
        elif number == 24:
            spm.treat_whitespace_as_suffix = read_int(value, what) != 0
        elif number == 35:
            spm.byte_fallback = read_int(value, what) != 0
        elif number == 44:
            spm.unk_surface = read_text(value, wire, what)


def _read_normalizer(data: bytes, spec: NormalizerSpec) -> None:
    what = f"{FILE}, normalizer_spec"
    for number, wire, value in read_fields(data, what):
        if number == 2:
            spec.charsmap = read_bytes(value, wire, what)
        elif number == 3:
            spec.add_dummy_prefix = read_int(value, what) != 0
        elif number == 4:
            spec.remove_extra_whitespaces = read_int(value, what) != 0
        elif number == 5:
            spec.escape_whitespaces = read_int(value, what) != 0


def _check(spm: SpmFile) -> None:
    if spm.model_type not in (UNIGRAM, BPE, WORD, CHAR):
        raise TokenizerError(f"{FILE}: model type {spm.model_type} is not known (1 unigram, 2 BPE, 3 word, 4 char)")
    if not spm.pieces:
        raise TokenizerError(f"{FILE}: no pieces; is this a .spm or sentencepiece.model file?")
    seen: set[str] = set()
    for index, (piece, score, kind) in enumerate(zip(spm.pieces, spm.scores, spm.types, strict=True)):
        _check_piece(index, piece, score, kind, spm)
        if piece in seen:
            raise TokenizerError(f"{FILE}: piece {index} {piece!r} is defined twice")
        seen.add(piece)
        if kind == UNKNOWN:
            if spm.unk_id >= 0:
                raise TokenizerError(f"{FILE}: pieces {spm.unk_id} and {index} are both the unknown one")
            spm.unk_id = index
    if spm.unk_id < 0:
        raise TokenizerError(f"{FILE}: no piece has the type unknown")
    if spm.byte_fallback and spm.types.count(BYTE) != 256:
        raise TokenizerError(f"{FILE}: byte fallback needs 256 byte pieces, found {spm.types.count(BYTE)}")


def _check_piece(index: int, piece: str, score: float, kind: int, spm: SpmFile) -> None:
    what = f"{FILE}: piece {index} {piece!r}"
    if not piece:
        raise TokenizerError(f"{FILE}: piece {index} is empty")
    if not NORMAL <= kind <= BYTE:
        raise TokenizerError(f"{what} has the unknown type {kind}")
    if not math.isfinite(score):
        raise TokenizerError(f"{what} has the score {score}")
    if "\0" in piece:
        # The reference implementation cuts such a piece at the NUL in some tables and not in others.
        raise TokenizerError(f"{what} contains a NUL character")
    if kind == BYTE and not spm.byte_fallback:
        raise TokenizerError(f"{what} is a byte although the model has no byte fallback")
    if kind == BYTE and byte_of(piece) < 0:
        raise TokenizerError(f"{what} is not a byte's name (<0x00> to <0xFF>)")


_BYTES = {f"<0x{value:02X}>": value for value in range(256)}
BYTE_PIECES = tuple(_BYTES)


def byte_of(piece: str) -> int:
    """The byte that a piece such as ``<0x0A>`` stands for, or -1."""
    return _BYTES.get(piece, -1)
