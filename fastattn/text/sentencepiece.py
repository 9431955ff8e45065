"""From text to sentencepiece's pieces and back, by the sentencepiece library and the bytes of a .spm file."""

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

VARINT, LENGTH = 0, 2  # wire types of a protocol buffer's fields
FIXED_SIZES = {1: 8, 5: 4}  # other wire types -> bytes of a value


def read_fields(data: bytes, message_name: str, position: int = 0) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message from ``position`` on, in order: (number, wire type, value).

    The value of a varint is an int below 2**64, other values are bytes. Raises TokenizerError if the bytes are no
    message; ``message_name`` begins its text.
    """
    end = len(data)
    while position < end:
        key = data[position]
        if key < 0x80:
            position += 1
        else:
            key, position = _read_varint(data, position, message_name)
        number, wire = key >> 3, key & 7
        if number == 0 or number >> 29:
            raise TokenizerError(f"{message_name}: field number {number} at byte {position} is not a protocol buffer's")
        if wire in (LENGTH, VARINT):
            length, position = _read_varint(data, position, message_name)  # or the value of a VARINT
        elif wire in FIXED_SIZES:
            length = FIXED_SIZES[wire]
        else:
            raise TokenizerError(f"{message_name}: wire type {wire} at byte {position} is not a protocol buffer's")
        if wire == VARINT:
            yield number, wire, length
            continue
        if length > end - position:
            raise TokenizerError(f"{message_name}: field {number} wants {length} bytes, but {end - position} are left")
        yield number, wire, data[position : position + length]
        position += length


def read_int(value: int | bytes, message_name: str) -> int:
    """The int32 of a VARINT field; negative numbers are stored in 64 bits."""
    if not isinstance(value, int):
        raise TokenizerError(f"{message_name}: an integer was expected")
    return value - (1 << 64) if value >> 63 else value


def read_bytes(value: int | bytes, wire: int, message_name: str) -> bytes:
    if not isinstance(value, bytes) or wire != LENGTH:
        raise TokenizerError(f"{message_name}: a string was expected")
    return value


def _read_varint(data: bytes, position: int, message_name: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise TokenizerError(f"{message_name}: ends inside a number at byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise TokenizerError(f"{message_name}: a number at byte {position} is longer than 64 bits")


FILE = "sentencepiece model"  # its name in errors
MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
SPEC_FIELDS = {2: "trainer_spec", 3: "normalizer_spec", 5: "denormalizer_spec"}  # fields that are messages, by number
# The most bytes that a rule of a normalizer's table matches or writes. NFKC's rules match at most 12, write at most 33.
LONGEST_RULE = 128


def check_spm(data: bytes) -> None:
    """Raise TokenizerError for bytes that are no sentencepiece model, or a model that could take much time or memory.

    The library refuses damaged files, but accepts rules that match the rest of a text from each of its characters, or
    that lengthen the text by the file's size.
    """
    start = _after_short_pieces(data)
    has_pieces = start > 0
    for number, wire, value in read_fields(data, FILE, start):
        has_pieces = has_pieces or number == 1
        if number in SPEC_FIELDS:
            _check_spec(read_bytes(value, wire, f"{FILE}, {SPEC_FIELDS[number]}"), SPEC_FIELDS[number])
    if not has_pieces:
        raise TokenizerError(f"{FILE}: no pieces; is this a .spm or sentencepiece.model file?")


def _after_short_pieces(data: bytes) -> int:
    """The position of the first field that is not a piece (field 1) of fewer than 128 bytes."""
    position = last_piece = 0
    with suppress(IndexError):
        while data[position] == 0x0A and (size := data[position + 1]) < 0x80:
            last_piece = position
            position += size + 2
    return position if position <= len(data) else last_piece  # read_fields reports a piece past the end


def _check_spec(data: bytes, spec: str) -> None:
    message_name, is_trainer = f"{FILE}, {spec}", spec == "trainer_spec"
    for number, wire, value in read_fields(data, message_name):
        if is_trainer and number == 3 and read_int(value, message_name) not in MODEL_TYPES:
            known_types = ", ".join(f"{number} {name}" for number, name in MODEL_TYPES.items())
            raise TokenizerError(f"{FILE}: model type {value!r} is not known ({known_types})")
        if not is_trainer and number == 2:
            _check_table(read_bytes(value, wire, message_name))


def _check_table(table: bytes) -> None:
    """Raise TokenizerError for long rules in a "precompiled charsmap".

    The table is a u32 length, a Darts-clone double-array trie of that many bytes over UTF-8, and replacements, each
    ended by a NUL. The library refuses other tables.
    """
    (length,) = struct.unpack_from("<I", table) if len(table) > 4 else (0,)
    if not 0 < length <= len(table) - 4 or length % 4:
        return
    if max(map(len, table[4 + length :].split(b"\0"))) > LONGEST_RULE:
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table gives more than {LONGEST_RULE} bytes")
    if _is_deep(np.frombuffer(table, "<u4", length // 4, 4)):
        raise TokenizerError(f"{FILE}: a rule of the normalizer's table takes more than {LONGEST_RULE} bytes")


def _is_deep(units_N: np.ndarray) -> bool:
    """Whether a trie of these units is more than LONGEST_RULE steps deep, from the first unit.

    A child's position is its parent's base, exclusive or the child's label, which is the byte of the step. Label 0
    stands for values and unused units.
    """
    positions_N = np.arange(len(units_N))
    bases_N = positions_N ^ ((units_N >> 10) << ((units_N & 0x200) >> 6))
    labels_N = units_N & 0x800000FF
    children = np.flatnonzero((labels_N > 0) & (labels_N < 256))
    parent_bases = (positions_N ^ labels_N)[children]
    is_base = np.empty(len(units_N) + 256, bool)
    level = np.zeros(1, int)  # positions of the units that the steps so far reach
    for _ in range(LONGEST_RULE + 1):
        bases = bases_N[level]
        is_base[:] = False
        is_base[bases[bases < len(is_base)]] = True
        level = children[is_base[parent_bases]]
        if not len(level):
            return False
    return True


SPACE = "\u2581"  # stands for a space in pieces
_WORDS = re.compile(f"{SPACE}|[^{SPACE}]+")
# The most files that ``start_loading`` reads, and the most bytes of each.
MOST_PRELOADED, LARGEST_PRELOADED = 2, 1 << 24
_LIBRARY_ERRORS = (RuntimeError, UnicodeDecodeError)


class SentencePiece:
    """A sentencepiece model, which cuts a text into ``pieces``, and joins pieces to a ``text``, for any thread.

    background  load the model in a thread, since a model of common size takes 30 ms; then ``wait`` or the first use
                raises the errors of loading

    ``text`` deviates from the library: it also restores the spaces of pieces that the model does not have, since a
    translation model's vocabulary may be larger than the .spm's.
    Raises TokenizerError if the bytes are no sentencepiece model, or if it could take too much time or memory.
    """

    def __init__(self, model: bytes, background: bool = False):
        self._model = bytes(model)
        self._known_pieces: set[str] = set()  # pieces that the model is known to have
        self._processor_or_error: Any = None  # the library's processor, or the error of loading
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
        if self._processor_or_error is None:  # there is no thread, or it did not survive a fork
            self._load()
        if isinstance(self._processor_or_error, BaseException):
            raise self._processor_or_error
        return self._processor_or_error

    def _load(self) -> None:
        try:
            from sentencepiece import SentencePieceProcessor  # takes 5 ms, in the thread

            check_spm(self._model)
            self._processor_or_error = SentencePieceProcessor(model_proto=self._model)
            self._model = b""
        except _LIBRARY_ERRORS as error:
            self._processor_or_error = _tokenizer_error(error)
        except Exception as error:  # noqa: BLE001  raised again where the model is used
            self._processor_or_error = error

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._processor, method)(*arguments, **options)
        except _LIBRARY_ERRORS as error:
            raise _tokenizer_error(error) from None

    @property
    def vocabulary(self) -> list[str]:
        """All pieces, in the order of their ids; TokenizerError for a piece that is not UTF-8."""
        return list(self._call("id_to_piece", list(range(len(self._processor)))))

    @lazy
    def unk_id(self) -> int:
        return int(self._processor.unk_id())

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; a run of unknown characters is one piece. InputError for a lone surrogate."""
        check_text(text)
        pieces: list[str] = self._call("encode", text, return_type=str)
        return pieces

    def text(self, pieces: Iterable[str]) -> str:
        """The text of pieces, without control pieces; byte pieces become characters."""
        pieces = list(pieces)
        if not self._known_pieces.issuperset(pieces):
            indices = self._processor.piece_to_id(pieces)
            if self.unk_id in indices:
                pieces = self._split_unknown(pieces, indices)
            else:
                self._known_pieces.update(pieces)
        return str(self._call("decode", pieces))

    def _split_unknown(self, pieces: list[str], indices: list[int]) -> list[str]:
        """The pieces, with unknown pieces split at SPACE, which the library would not turn into a space within them."""
        space = SPACE if self._processor.piece_to_id(SPACE) != self.unk_id else " "
        split = ([piece] if index != self.unk_id else _WORDS.findall(piece) for piece, index in zip(pieces, indices))
        return [space if part == SPACE else part for parts in split for part in parts]


def start_loading(folder: Path) -> dict[bytes, SentencePiece]:
    """Start loading each sentencepiece model of a folder in the background: bytes of the file -> the model.

    Meanwhile callers read the folder's other files. ``start_early`` may have started it. Raises nothing.
    """
    if (models := _early.pop(folder, None)) is not None:
        return models
    models = {}
    with suppress(OSError, ValueError):
        names = [name for name in os.listdir(folder) if name.endswith(".spm") or name == "sentencepiece.model"]
        for file in [folder / name for name in sorted(names)[:MOST_PRELOADED]]:
            if file.is_file() and file.stat().st_size <= LARGEST_PRELOADED:
                data = file.read_bytes()
                models.setdefault(data, SentencePiece(data, background=True))
    return models


_early: dict[Path, dict[bytes, SentencePiece]] = {}  # by folder, until ``start_loading`` takes them


def start_early(folder: Path) -> None:
    """Start loading what the next ``start_loading`` of the folder returns, before slow imports."""
    _early[folder] = start_loading(folder)


def _tokenizer_error(error: Exception) -> TokenizerError:
    """A TokenizerError of one line for the library's error."""
    if isinstance(error, UnicodeDecodeError):
        return TokenizerError(f"{FILE}: a piece or a replacement is not UTF-8")
    reason = " ".join(str(error).removeprefix("INTERNAL: ").split())
    if "ParseFromArray" in reason:  # the library quotes a line of its own code
        reason = "a damaged protocol buffer"
    return TokenizerError(f"{FILE}: {reason}")
