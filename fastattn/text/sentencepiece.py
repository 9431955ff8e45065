"""Text to sentencepiece pieces and back, from a .spm file's bytes, by the sentencepiece library."""

import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastattn.errors import TokenizerError
from fastattn.system.records import lazy
from fastattn.system.worker_threads import start_thread
from fastattn.text.spm_file import FILE, check_spm
from fastattn.text.unicode import check_text

SPACE = "\u2581"  # what stands for a space inside pieces
_PARTS = re.compile(f"{SPACE}|[^{SPACE}]+")
# Files that ``begin_models`` begins to load before anybody asks for them: the most, and the most bytes of each.
MOST_AHEAD, LARGEST_AHEAD = 2, 1 << 24
_FAULTS = (RuntimeError, UnicodeDecodeError)  # the library's


class SentencePiece:
    """A sentencepiece model: ``pieces`` and ``ids`` of a text, ``text`` of pieces. Any number of threads may call.

    beside  load the model in a thread, beside the caller's work: a real one takes 30 ms. What is wrong with it is then
            raised by ``wait``, or at first use

    One deviation from the library, in ``text`` alone: a piece the model does not have is still joined with its spaces
    restored, since a translation model's vocabulary may be larger than the .spm's.
    Raises TokenizerError where the bytes are no such model or one that asks for too much.
    """

    def __init__(self, model: bytes, beside: bool = False):
        self._model = bytes(model)
        self._seen: set[str] = set()  # some of its pieces
        self._loaded: Any = None  # the library's processor, or the error of loading it
        self._thread: threading.Thread | None = None
        if beside:
            thread = threading.Thread(target=self._load, name="fastattn sentencepiece", daemon=True)
            with suppress(RuntimeError, MemoryError):  # without a thread more it is loaded at first use
                start_thread(thread)
                self._thread = thread
        else:
            self.wait()

    def wait(self) -> None:
        """Return once the model is loaded; TokenizerError for one that cannot be followed."""
        assert self._processor is not None

    @lazy
    def _processor(self) -> Any:
        if self._thread is not None:
            self._thread.join()
        if self._loaded is None:  # there is no thread, or it was left behind by a fork
            self._load()
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded

    def _load(self) -> None:
        try:
            from sentencepiece import SentencePieceProcessor  # takes 5 ms, which the thread can spare

            check_spm(self._model)
            self._loaded = SentencePieceProcessor(model_proto=self._model)
            self._model = b""
        except _FAULTS as error:
            self._loaded = _as_ours(error)
        except Exception as error:  # noqa: BLE001  raised again where the model is used
            self._loaded = error

    @property
    def vocabulary(self) -> list[str]:
        """Every piece, in the order of the ids; TokenizerError for one that is not UTF-8."""
        try:
            pieces: list[str] = self._processor.id_to_piece(list(range(len(self._processor))))
        except _FAULTS as error:
            raise _as_ours(error) from None
        return pieces

    @lazy
    def unk_id(self) -> int:
        """The id of unknown pieces."""
        index: int = self._processor.unk_id()
        return index

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; a run of unknown characters is one piece and keeps its surface.

        Raises InputError where the text holds a lone surrogate.
        """
        check_text(text)
        try:
            pieces: list[str] = self._processor.encode(text, return_type=str)
        except _FAULTS as error:
            raise _as_ours(error) from None
        return pieces

    def ids(self, text: str) -> list[int]:
        """The ids of ``pieces``; a run of unknown characters is one ``unk_id``."""
        check_text(text)
        try:
            ids: list[int] = self._processor.encode(text, return_type=int)
        except _FAULTS as error:
            raise _as_ours(error) from None
        return ids

    def text(self, pieces: Iterable[str]) -> str:
        """The text of pieces: control pieces are dropped, byte pieces become characters."""
        pieces = list(pieces)
        if not self._seen.issuperset(pieces):
            indices = self._processor.piece_to_id(pieces)
            if self.unk_id in indices:
                pieces = self._with_spaces(pieces, indices)
            else:
                self._seen.update(pieces)
        try:
            text: str = self._processor.decode(pieces)
        except _FAULTS as error:
            raise _as_ours(error) from None
        return text

    def _with_spaces(self, pieces: list[str], indices: list[int]) -> list[str]:
        """The pieces, those unknown in parts, since their spaces would stay as they are."""
        space = SPACE if self._processor.piece_to_id(SPACE) != self.unk_id else " "
        known: list[str] = []
        for piece, index in zip(pieces, indices):
            if index != self.unk_id:
                known.append(piece)
            else:
                known += [space if part == SPACE else part for part in _PARTS.findall(piece)]
        return known


def begin_models(folder: Path) -> dict[bytes, SentencePiece]:
    """{bytes of each sentencepiece model in a folder: the model}, being loaded beside the caller's work.

    For who is about to read the folder's other files. Nothing is raised here.
    """
    models: dict[bytes, SentencePiece] = {}
    with suppress(OSError, ValueError):
        names = [name for name in os.listdir(folder) if name.endswith(".spm") or name == "sentencepiece.model"]
        for file in [folder / name for name in sorted(names)[:MOST_AHEAD]]:
            if file.is_file() and file.stat().st_size <= LARGEST_AHEAD:
                data = file.read_bytes()
                models.setdefault(data, SentencePiece(data, beside=True))
    return models


def _as_ours(error: Exception) -> TokenizerError:
    """The library's error as one line."""
    if isinstance(error, UnicodeDecodeError):
        return TokenizerError(f"{FILE}: a piece or a replacement is not UTF-8")
    reason = " ".join(str(error).removeprefix("INTERNAL: ").split())
    if "ParseFromArray" in reason:  # its own source
        reason = "a damaged protocol buffer"
    return TokenizerError(f"{FILE}: {reason}")
