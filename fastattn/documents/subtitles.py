"""SubRip, WebVTT and Advanced SubStation Alpha: a sentence is translated as a whole, and the cues keep their times."""

import re

from fastattn.documents.marks import Marked
from fastattn.documents.markup import Paragraph, Piece, Span, line_edits_of, text_piece
from fastattn.documents.texts import DocumentPlan, apply_edits, break_into_lines, decode_text, lines_of
from fastattn.errors import InputError

_TIMES = re.compile(r"[ \t]*(?:\d+:)?\d+:\d+[.,]\d+[ \t]*-->[ \t]*(?:\d+:)?\d+:\d+[.,]\d+")
_TAG = re.compile(r"(</?[A-Za-z][^<>\n]*>|<[\d:.]+>|\{\\[^{}\n]*\})")
_NAME = re.compile(r"</?([A-Za-z]*).*")
_NOTE = re.compile(r"NOTE(?:[ \t]|\Z)")
_SENTENCE_END = re.compile(r"(?:[.!?…。！？♪#♫][\"'»”’)\]]*|[)\]])\s*$")
_DASHES = ("-", "–", "—", "‐")
_DASH = re.compile(r"\s*[-–—‐]\s*(?=\w)")
_SPEAKER = re.compile(rf"{_DASH.pattern}|\s*(?:[(\[♪#♫]|[A-Z][\w .]{{0,20}}:\s)")
MOST_LINES = 12  # of a sentence; text without full stops is cut after so many lines


def translate_subtitles(data: bytes, name: str) -> DocumentPlan:
    """Translate SubRip or WebVTT; InputError for text without lines of times."""
    page = decode_text(data, name)
    edits = yield from line_edits_of(page, _sentences(page, name), _marked)
    return apply_edits(page, edits).encode()


def _sentences(page: str, name: str) -> "list[list[Span]]":
    """The lines of each sentence. A line with tags is a whole sentence; a speaker's name or a dash begins one."""
    sentences, position, in_cue, has_times, in_note = [list[Span]()], 0, False, False, False
    for line in lines_of(page):
        text, span = line.rstrip("\r\n"), (position, position + len(line.rstrip("\r\n")))
        position += len(line)
        if not in_cue and _NOTE.match(text):
            in_note = True
        elif _TIMES.match(line) and not in_note:
            in_cue = has_times = True
        elif not text.strip():
            in_cue = in_note = False
            before_sentence = page[: sentences[-1][0][0]].rstrip(" \t") if sentences[-1] else ""
            if before_sentence.endswith(_DASHES):  # a dash opened the sentence: the blank line ends the speaker's words
                sentences.append([])
        elif in_cue:
            has_tags = bool(_TAG.search(text))
            if has_tags or _SPEAKER.match(text) or len(sentences[-1]) == MOST_LINES:
                sentences.append([])
            dash = _DASH.match(text)
            sentences[-1].append((span[0] + dash.end(), span[1]) if dash else span)
            if has_tags or _SENTENCE_END.search(text):
                sentences.append([])
    if not has_times:
        raise InputError(f"{name}: expected subtitles, which have lines such as 00:00:01,000 --> 00:00:02,500")
    return [lines for lines in sentences if lines]


def _marked(source: str) -> Marked:
    """The text of a sentence, with a mark around the text of each pair of tags, and a mark at each single tag."""
    pieces = [
        Piece("close" if part.startswith("</") else "open", part, "", _NAME.sub(r"\1", part))
        if n % 2
        else text_piece(part)
        for n, part in enumerate(_TAG.split(source))
    ]
    return Paragraph(0, pieces).marked(overlaps=True)


_EVENT = re.compile(r"^Dialogue:((?:[^,\r\n]*,){9})(?P<text>[^\r\n]*)", re.MULTILINE)
_OVERRIDE = re.compile(r"(\{[^{}]*\})")
_ASS_BREAK = re.compile(r"(?<!\s)\s*\\[Nn]\s*")
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")


def translate_ass(data: bytes, name: str) -> DocumentPlan:
    """Translate what is said in Advanced SubStation Alpha; styles, times and overriding tags stay.

    A line's breaks are a blank to the translator; the translation has as many, in the same proportions.
    """
    page = decode_text(data, name)
    if "[Events]" not in page:
        raise InputError(f"{name}: expected a part [Events]")
    spans = [match.span("text") for match in _EVENT.finditer(page) if not _DRAWING.search(match["text"])]
    lines = [_ASS_BREAK.split(page[start:end]) for start, end in spans]
    texts = [_with_overrides(" ".join(parts)) for parts in lines]
    edits = list[tuple[int, int, str]]()
    for span, parts, source, answer in zip(spans, lines, texts, (yield texts)):
        if answer != source:
            text = "".join(
                tags[0].replace(" ", "\0") if tags and kind == "open" else text for kind, text, tags in answer.pieces()
            )
            lengths = [len(_OVERRIDE.sub("", part)) for part in parts]
            edits.append((*span, r"\N".join(break_into_lines(text, lengths)).replace("\0", " ")))
    return apply_edits(page, edits).encode()


def _with_overrides(source: str) -> Marked:
    """A text with a mark at the position of each tag between braces."""
    parts = _OVERRIDE.split(source.replace(r"\h", "\xa0"))
    return Paragraph(0, [Piece("alone", part) if n % 2 else text_piece(part) for n, part in enumerate(parts)]).marked()
