"""Text to sentencepiece pieces and back, by the sentencepiece library, from the bytes of a .spm file."""

import os
import re
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import TokenizerError
from fastattn.system.records import lazy
from fastattn.system.worker_threads import start_thread
from fastattn.text import check_text

VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}  # other wire types -> bytes


def read_fields(data: bytes, what: str, position: int = 0) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message from ``position`` on, in order: (number, wire type, value).

    A varint's value is an int below 2**64, that of every other wire type bytes. ``what`` names the message in errors.
    Raises TokenizerError if the bytes are no message.
    """
    end = len(data)
    while position < end:
        key = data[position]
        if key < 0x80:
            position += 1
        else:
            key, position = _read_varint(data, position, what)
        number, wire = key >> 3, key & 7
        if number == 0 or number >> 29:
            raise TokenizerError(f"{what}: field number {number} at byte {position} is not a protocol buffer's")
        if wire in (LENGTH, VARINT):
            length, position = _read_varint(data, position, what)
        elif wire in FIXED:
            length = FIXED[wire]
        else:
            raise TokenizerError(f"{what}: wire type {wire} at byte {position} is not a protocol buffer's")
        if wire == VARINT:
            yield number, wire, length
            continue
        if length > end - position:
            raise TokenizerError(f"{what}: field {number} wants {length} bytes, but {end - position} are left")
        yield number, wire, data[position : position + length]
        position += length


def read_int(value: int | bytes, what: str) -> int:
    """The int32 of a VARINT field; negative numbers are stored in 64 bits."""
    if not isinstance(value, int):
        raise TokenizerError(f"{what}: an integer was expected")
    return value - (1 << 64) if value >> 63 else value


def read_bytes(value: int | bytes, wire: int, what: str) -> bytes:
    if not isinstance(value, bytes) or wire != LENGTH:
        raise TokenizerError(f"{what}: a string was expected")
    return value


def _read_varint(data: bytes, position: int, what: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise TokenizerError(f"{what}: ends inside a number at byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise TokenizerError(f"{what}: a number at byte {position} is longer than 64 bits")


FILE = "sentencepiece model"
MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
PARTS = {2: "trainer_spec", 3: "normalizer_spec", 5: "denormalizer_spec"}
# The most bytes that a rule of a normalizer's table matches or writes. NFKC's rules match up to 12 and write up to 33.
LONGEST_RULE = 128


def check_spm(data: bytes) -> None:
    """Raise TokenizerError for bytes that are no sentencepiece model, or one that could take too much time or memory.

    The library refuses damaged files, but accepts rules that match the rest of a text from each of its characters, or
    that lengthen it by the file's size.
    """
    start = _after_short_pieces(data)
    pieces = start > 0
    for number, wire, value in read_fields(data, FILE, start):
        pieces = pieces or number == 1
        if number in PARTS:
            _check_part(read_bytes(value, wire, f"{FILE}, {PARTS[number]}"), PARTS[number])
    if not pieces:
        raise TokenizerError(f"{FILE}: no pieces; is this a .spm or sentencepiece.model file?")


def _after_short_pieces(data: bytes) -> int:
    """The position of the first field that is not a piece (field 1) of fewer than 128 bytes."""
    position = begin = 0
    with suppress(IndexError):
        while data[position] == 0x0A and (size := data[position + 1]) < 0x80:
            begin = position
            position += size + 2
    return position if position <= len(data) else begin  # past the end: read_fields reports it


def _check_part(data: bytes, part: str) -> None:
    what, trains = f"{FILE}, {part}", part == "trainer_spec"
    for number, wire, value in read_fields(data, what):
        if trains and number == 3 and read_int(value, what) not in MODEL_TYPES:
            known = ", ".join(f"{number} {name}" for number, name in MODEL_TYPES.items())
            raise TokenizerError(f"{FILE}: model type {value!r} is not known ({known})")
        if not trains and number == 2:
            _check_table(read_bytes(value, wire, what))


def _check_table(table: bytes) -> None:
    """Raise TokenizerError for long rules in a "precompiled charsmap".

    It is a u32 length, a Darts-clone double-array trie of that many bytes over UTF-8, and replacements, each ended by a
    NUL. The library refuses anything else.
    """
    (length,) = struct.unpack_from("<I", table) if len(table) > 4 else (0,)
    if not 0 < length <= len(table) - 4 or length % 4:
        return
    if max(map(len, table[4 + length :].split(b"\0"))) > LONGEST_RULE:
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table gives more than {LONGEST_RULE} bytes")
    if _is_deep(np.frombuffer(table, "<u4", length // 4, 4)):
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table takes more than {LONGEST_RULE} bytes")


def _is_deep(units_N: np.ndarray) -> bool:
    """Whether the trie is more than LONGEST_RULE steps deep, from its first unit.

    A child lies at its parent's base, by exclusive or with the byte of the step, which is the child's label. A zero
    byte leads to values, and to unused units.
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


SPACE = "\u2581"  # stands for a space in pieces
_PARTS = re.compile(f"{SPACE}|[^{SPACE}]+")
# The most files that ``begin_models`` loads ahead, and the most bytes of each.
MOST_AHEAD, LARGEST_AHEAD = 2, 1 << 24
_FAULTS = (RuntimeError, UnicodeDecodeError)  # the errors that the library raises


class SentencePiece:
    """A sentencepiece model: ``pieces`` of a text, ``text`` of pieces. Any number of threads may call.

    background  load the model in a thread, which takes 30 ms for a real one; ``wait`` or the first use then raises its
                errors

    ``text`` deviates from the library: it also restores the spaces of pieces that the model does not have, since a
    translation model's vocabulary may be larger than the .spm's.
    Raises TokenizerError if the bytes are no such model, or if it could take too much time or memory.
    """

    def __init__(self, model: bytes, background: bool = False):
        self._model = bytes(model)
        self._seen: set[str] = set()  # pieces that the model is known to have
        self._loaded: Any = None  # the library's processor, or the error of loading
        self._thread: threading.Thread | None = None
        if background:
            thread = threading.Thread(target=self._load, name="fastattn sentencepiece", daemon=True)
            with suppress(RuntimeError, MemoryError):  # if no thread can start, the model is loaded at first use
                start_thread(thread)
                self._thread = thread
        else:
            self.wait()

    def wait(self) -> None:
        """Return once the model is loaded; TokenizerError if it is not supported."""
        assert self._processor is not None

    @lazy
    def _processor(self) -> Any:
        if self._thread is not None:
            self._thread.join()
        if self._loaded is None:  # there is no thread, or it did not survive a fork
            self._load()
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded

    def _load(self) -> None:
        try:
            from sentencepiece import SentencePieceProcessor  # takes 5 ms, in the thread

            check_spm(self._model)
            self._loaded = SentencePieceProcessor(model_proto=self._model)
            self._model = b""
        except _FAULTS as error:
            self._loaded = _as_ours(error)
        except Exception as error:  # noqa: BLE001  raised again where the model is used
            self._loaded = error

    def _ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._processor, what)(*arguments, **options)
        except _FAULTS as error:
            raise _as_ours(error) from None

    @property
    def vocabulary(self) -> list[str]:
        """All pieces, in the order of their ids; TokenizerError for one that is not UTF-8."""
        pieces: list[str] = self._ask("id_to_piece", list(range(len(self._processor))))
        return pieces

    @lazy
    def unk_id(self) -> int:
        index: int = self._processor.unk_id()
        return index

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; a run of unknown characters is one piece as it is. InputError for a lone surrogate."""
        check_text(text)
        pieces: list[str] = self._ask("encode", text, return_type=str)
        return pieces

    def text(self, pieces: Iterable[str]) -> str:
        """The text of pieces, without control pieces; byte pieces become characters."""
        pieces = list(pieces)
        if not self._seen.issuperset(pieces):
            indices = self._processor.piece_to_id(pieces)
            if self.unk_id in indices:
                pieces = self._with_spaces(pieces, indices)
            else:
                self._seen.update(pieces)
        text: str = self._ask("decode", pieces)
        return text

    def _with_spaces(self, pieces: list[str], indices: list[int]) -> list[str]:
        """The pieces; unknown ones are split at spaces, which the library would leave as they are."""
        space = SPACE if self._processor.piece_to_id(SPACE) != self.unk_id else " "
        parts = ([piece] if index != self.unk_id else _PARTS.findall(piece) for piece, index in zip(pieces, indices))
        return [space if part == SPACE else part for piece in parts for part in piece]


def begin_models(folder: Path) -> dict[bytes, SentencePiece]:
    """Bytes of each sentencepiece model in a folder -> the model, loading in the background.

    For callers that go on to read the folder's other files. Raises nothing.
    """
    models: dict[bytes, SentencePiece] = {}
    with suppress(OSError, ValueError):
        names = [name for name in os.listdir(folder) if name.endswith(".spm") or name == "sentencepiece.model"]
        for file in [folder / name for name in sorted(names)[:MOST_AHEAD]]:
            if file.is_file() and file.stat().st_size <= LARGEST_AHEAD:
                data = file.read_bytes()
                models.setdefault(data, SentencePiece(data, background=True))
    return models


def _as_ours(error: Exception) -> TokenizerError:
    """The library's error as one line."""
    if isinstance(error, UnicodeDecodeError):
        return TokenizerError(f"{FILE}: a piece or a replacement is not UTF-8")
    reason = " ".join(str(error).removeprefix("INTERNAL: ").split())
    if "ParseFromArray" in reason:  # the library quotes its source
        reason = "a damaged protocol buffer"
    return TokenizerError(f"{FILE}: {reason}")
