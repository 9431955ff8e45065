"""Text to sentencepiece pieces and back, from a .spm file's bytes, as the original library does it."""

import codecs
from collections.abc import Iterable

from fastattn.text.normalizer import SPACE, Normalizer
from fastattn.text.segmentation import Segments, build_segmenter, user_symbols
from fastattn.text.spm_file import BYTE, BYTE_PIECES, CONTROL, UNKNOWN, byte_of, read_spm
from fastattn.text.unicode import check_text


class SentencePiece:
    """A sentencepiece model: ``pieces`` and ``ids`` of a text, ``text`` of pieces.

    Follows sentencepiece 0.2 (Kudo and Richardson 2018) for unigram, BPE, word and character models.
    One deviation, in ``text`` alone: a piece the model does not have is still joined with its spaces restored,
    since a translation model's vocabulary may be larger than the .spm's.
    Raises TokenizerError where the bytes are no such model or one that cannot be followed.
    """

    def __init__(self, model: bytes):
        spm = self._spm = read_spm(bytes(model))
        self._normalizer = Normalizer(spm.normalizer, spm.treat_whitespace_as_suffix, user_symbols(spm))
        self._denormalizer = Normalizer(spm.denormalizer) if spm.denormalizer.charsmap else None
        self._segment = build_segmenter(spm)
        self._byte_ids = [-1] * 256
        self._reserved = {}
        for index in spm.special:
            piece, kind = spm.pieces[index], spm.types[index]
            if kind == BYTE:
                self._byte_ids[byte_of(piece)] = index
            if kind in (BYTE, CONTROL, UNKNOWN):
                self._reserved[piece] = kind

    @property
    def vocabulary(self) -> list[str]:
        """Every piece, in the order of the ids."""
        return list(self._spm.pieces)

    @property
    def unk_id(self) -> int:
        """The id of whatever the model does not know."""
        return self._spm.unk_id

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; a run of unknown characters is one piece and keeps its surface.

        Raises InputError where the text holds a lone surrogate.
        """
        return [surface for surface, _ in self._encode(text)]

    def ids(self, text: str) -> list[int]:
        """The ids of ``pieces``; a run of unknown characters is one ``unk_id``."""
        return [index for _, index in self._encode(text)]

    def text(self, pieces: Iterable[str]) -> str:
        """The text that pieces stand for: control pieces vanish, byte pieces become characters."""
        parts: list[str] = []
        pending = bytearray()
        at_start = True
        skipped_space = False
        for piece in pieces:
            kind = self._reserved.get(piece)
            if kind == BYTE:
                pending.append(byte_of(piece))
                continue
            if pending:
                parts.append(_decode_bytes(bytes(pending)))
                pending.clear()
            at_start = at_start and not skipped_space and not any(parts[-1:])
            surface, skipped_space = self._surface(piece, kind, at_start)
            parts.append(surface)
        parts.append(_decode_bytes(bytes(pending)))
        text = "".join(parts)
        return self._denormalizer.normalize(text) if self._denormalizer is not None else text

    def _surface(self, piece: str, kind: int | None, at_start: bool) -> tuple[str, bool]:
        """What a piece reads as, and whether it has used up the one dummy space."""
        if kind == CONTROL:
            return "", False
        if kind == UNKNOWN:
            return self._spm.unk_surface, False
        spec = self._spm.normalizer
        skipped = at_start and (spec.add_dummy_prefix or spec.remove_extra_whitespaces) and piece.startswith(SPACE)
        if skipped:
            piece = piece[1:]
        return piece.replace(SPACE, " "), skipped and not spec.remove_extra_whitespaces

    def _encode(self, text: str) -> Segments:
        check_text(text)
        segments = self._segment(self._normalizer.normalize(text))
        unk_id = self._spm.unk_id
        if not any(index == unk_id for _, index in segments):
            return segments
        merged: Segments = []
        run: list[str] = []  # of unknown characters; joined once, however long it is
        for surface, index in segments:
            if index == unk_id and not self._spm.byte_fallback:
                run.append(surface)
                continue
            if run:
                merged.append(("".join(run), unk_id))
                run.clear()
            if index == unk_id:
                merged += [(BYTE_PIECES[byte], self._byte_ids[byte]) for byte in surface.encode("utf-8")]
            else:
                merged.append((surface, index))
        if run:
            merged.append(("".join(run), unk_id))
        return merged


def _replace_byte(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each byte that is not part of a character: Python's own handler takes several at once."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + 1


codecs.register_error("fastattn.replace_byte", _replace_byte)


def _decode_bytes(data: bytes) -> str:
    return data.decode("utf-8", "fastattn.replace_byte")
