"""Text to sentencepiece pieces and back, from a .spm file's bytes, by the sentencepiece library."""

import contextlib
import re
from collections.abc import Iterable, Iterator

from sentencepiece import SentencePieceProcessor

from fastattn.errors import TokenizerError
from fastattn.text.spm_file import FILE, check_spm
from fastattn.text.unicode import check_text

SPACE = "\u2581"  # what stands for a space inside pieces
_PARTS = re.compile(f"{SPACE}|[^{SPACE}]+")


class SentencePiece:
    """A sentencepiece model: ``pieces`` and ``ids`` of a text, ``text`` of pieces. Any number of threads may call.

    One deviation from the library, in ``text`` alone: a piece the model does not have is still joined with its spaces
    restored, since a translation model's vocabulary may be larger than the .spm's.
    Raises TokenizerError where the bytes are no such model or one that asks for too much.
    """

    def __init__(self, model: bytes):
        model = bytes(model)
        check_spm(model)
        with _library_errors():
            self._processor = SentencePieceProcessor(model_proto=model)

    @property
    def vocabulary(self) -> list[str]:
        """Every piece, in the order of the ids; TokenizerError for one that is not UTF-8."""
        with _library_errors():
            pieces: list[str] = self._processor.id_to_piece(list(range(len(self._processor))))
        return pieces

    @property
    def unk_id(self) -> int:
        """The id of unknown pieces."""
        index: int = self._processor.unk_id()
        return index

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; a run of unknown characters is one piece and keeps its surface.

        Raises InputError where the text holds a lone surrogate.
        """
        check_text(text)
        with _library_errors():
            pieces: list[str] = self._processor.encode(text, return_type=str)
        return pieces

    def ids(self, text: str) -> list[int]:
        """The ids of ``pieces``; a run of unknown characters is one ``unk_id``."""
        check_text(text)
        with _library_errors():
            ids: list[int] = self._processor.encode(text, return_type=int)
        return ids

    def text(self, pieces: Iterable[str]) -> str:
        """The text of pieces: control pieces are dropped, byte pieces become characters."""
        pieces = list(pieces)
        of_space, *indices = self._processor.piece_to_id([SPACE, *pieces])
        space = SPACE if of_space != self.unk_id else " "
        known: list[str] = []
        for piece, index in zip(pieces, indices):
            if index != self.unk_id:
                known.append(piece)
            else:  # whose spaces would stay as they are
                known += [space if part == SPACE else part for part in _PARTS.findall(piece)]
        with _library_errors():
            text: str = self._processor.decode(known)
        return text


@contextlib.contextmanager
def _library_errors() -> Iterator[None]:
    """Turn the library's errors into a TokenizerError of one line."""
    try:
        yield
    except UnicodeDecodeError:
        raise TokenizerError(f"{FILE}: a piece or a replacement is not UTF-8") from None
    except RuntimeError as error:
        reason = " ".join(str(error).removeprefix("INTERNAL: ").split())
        if "ParseFromArray" in reason:  # its own source
            reason = "a damaged protocol buffer"
        raise TokenizerError(f"{FILE}: {reason}") from None
