"""A sentencepiece model file (.spm) as plain data."""

import math
from dataclasses import dataclass, field

import numpy as np

from fastattn.errors import TokenizerError
from fastattn.text.protobuf import read_bytes, read_fields, read_float, read_int, read_text

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = KINDS = 1, 2, 3, 4, 5, 6

FILE = "sentencepiece model"
# Characters. Trainers stop at 16, and users' symbols are not much longer; a text may go along a piece at each of its
# characters, to no end.
LONGEST_PIECE = 256


@dataclass
class NormalizerSpec:
    """How text is normalised; the defaults are the format's own."""

    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


@dataclass
class SpmFile:
    """pieces, scores (float32 values) and types run in the order of the ids.

    ids      the id of every piece
    special  the ids of the pieces that are not NORMAL, ascending
    """

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
    ids: dict[str, int] = field(default_factory=dict)
    special: list[int] = field(default_factory=list)


def read_spm(data: bytes) -> SpmFile:
    """Read and check a .spm file's bytes; raises TokenizerError in one line where they are malformed."""
    spm = SpmFile()
    start = _read_usual_pieces(data, spm)
    for number, wire, value in read_fields(data, FILE, start):
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


def _read_usual_pieces(data: bytes, spm: SpmFile) -> int:
    """Read at once the pieces that begin the file in sentencepiece's own layout; where the first other field begins.

    That layout is: field 1, of fewer than 128 bytes; in it the text, the score and, where it is not NORMAL, the type.
    Whatever differs or is damaged is left to ``read_fields``, which takes twenty times as long.
    """
    position, starts = 0, []
    while position + 9 <= len(data) and data[position] == 0x0A and 7 <= data[position + 1] < 0x80:
        starts.append(position)
        position += 2 + data[position + 1]
    if not starts:
        return 0
    bytes_N = np.frombuffer(data, np.uint8)
    starts_P = np.array(starts, np.int64)
    sizes_P = bytes_N[starts_P + 1].astype(np.int64)
    texts_P = starts_P + 4
    ends_P = texts_P + bytes_N[texts_P - 1]  # of the texts
    left_P = starts_P + 2 + sizes_P - ends_P  # bytes after the text: five of the score, two of the type
    tail_P7 = bytes_N.take(ends_P[:, None] + np.arange(7), mode="clip")
    usual_P = (bytes_N[texts_P - 2] == 0x0A) & (tail_P7[:, 0] == 0x15) & (starts_P + 2 + sizes_P <= len(data))
    usual_P &= (left_P == 5) | ((left_P == 7) & (tail_P7[:, 5] == 0x18) & (tail_P7[:, 6] < 0x80))
    count = int(np.argmin(np.append(usual_P, False)))
    try:
        pieces = [data[start:end].decode() for start, end in zip(texts_P[:count].tolist(), ends_P[:count].tolist())]
    except UnicodeDecodeError:
        return 0
    spm.pieces = pieces
    spm.scores = tail_P7[:count, 1:5].copy().view("<f4")[:, 0].tolist()
    spm.types = np.where(left_P == 7, tail_P7[:, 6], NORMAL)[:count].tolist()
    return starts[count] if count < len(starts) else position


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
    spm.ids = dict(zip(spm.pieces, range(len(spm.pieces))))
    spm.special = [index for index, kind in enumerate(spm.types) if kind != NORMAL]
    if not _is_sound(spm):
        _refuse_first(spm)
    if UNKNOWN not in spm.types:
        raise TokenizerError(f"{FILE}: no piece has the type unknown")
    spm.unk_id = spm.types.index(UNKNOWN)
    if spm.byte_fallback and spm.types.count(BYTE) != 256:
        raise TokenizerError(f"{FILE}: byte fallback needs 256 byte pieces, found {spm.types.count(BYTE)}")


def _is_sound(spm: SpmFile) -> bool:
    """Whether _refuse_first would find nothing, asked of all pieces at once."""
    kinds = set(spm.types)
    return (
        len(spm.ids) == len(spm.pieces)
        and "" not in spm.ids
        and max(map(len, spm.pieces)) <= LONGEST_PIECE
        and "\0" not in "".join(spm.pieces)
        and all(map(math.isfinite, spm.scores))
        and kinds <= set(KINDS)
        and spm.types.count(UNKNOWN) <= 1
        and (spm.byte_fallback or BYTE not in kinds)
        and all(byte_of(spm.pieces[index]) >= 0 for index in spm.special if spm.types[index] == BYTE)
    )


def _refuse_first(spm: SpmFile) -> None:
    """Raise the error of the first piece that is wrong."""
    seen: set[str] = set()
    for index, (piece, score, kind) in enumerate(zip(spm.pieces, spm.scores, spm.types, strict=True)):
        _check_piece(index, piece, score, kind, spm)
        if piece in seen:
            raise TokenizerError(f"{FILE}: piece {index} {piece!r} is defined twice")
        seen.add(piece)
        if kind == UNKNOWN and UNKNOWN in spm.types[:index]:
            raise TokenizerError(f"{FILE}: pieces {spm.types.index(UNKNOWN)} and {index} are both the unknown one")


def _check_piece(index: int, piece: str, score: float, kind: int, spm: SpmFile) -> None:
    if len(piece) > LONGEST_PIECE:
        raise TokenizerError(f"{FILE}: piece {index} has {len(piece)} characters, more than {LONGEST_PIECE}")
    what = f"{FILE}: piece {index} {piece!r}"
    if not piece:
        raise TokenizerError(f"{FILE}: piece {index} is empty")
    if kind not in KINDS:
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
