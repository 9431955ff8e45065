"""SubRip and WebVTT: times stay; a sentence over several lines or cues is translated as a whole."""

import re

from fastattn.documents.html import partners
from fastattn.documents.marks import Marked, from_tags
from fastattn.documents.texts import Steps, decoded, in_lines, lines_of, replaced
from fastattn.errors import InputError

_TIMES = re.compile(r"[ \t]*(?:\d+:)?\d+:\d+[.,]\d+[ \t]*-->[ \t]*(?:\d+:)?\d+:\d+[.,]\d+")
_TAG = re.compile(r"(</?[A-Za-z][^<>\n]*>|<[\d:.]+>|\{\\[^{}\n]*\})")
_NAME = re.compile(r"</?([A-Za-z]*).*")
_NOTE = re.compile(r"NOTE(?:[ \t]|\Z)")
_ENDS = re.compile(r"(?:[.!?…。！？♪#♫][\"'»”’)\]]*|[)\]])\s*$")
_DASHES = ("-", "–", "—", "‐")
_DASH = re.compile(r"\s*[-–—‐]\s*(?=\w)")
_SPEAKS = re.compile(rf"{_DASH.pattern}|\s*(?:[(\[♪#♫]|[A-Z][\w .]{{0,20}}:\s)")
TOGETHER = 12  # the most lines of a sentence: text without full stops is no sentence

Span = tuple[int, int]  # [start, end) of a line in the file


def translate_subtitles(data: bytes, name: str) -> Steps:
    """SubRip or WebVTT, recognized by their times."""
    page = decoded(data, name)
    sentences = list(_sentences(page, name))
    texts = [_marked(" ".join(page[start:end].strip() for start, end in spans)) for spans in sentences]
    edits = list[tuple[int, int, str]]()
    for spans, source, answer in zip(sentences, texts, (yield texts)):
        if answer == source:
            continue  # byte for byte
        text = "".join(tags[kind == "close"] if tags else text for kind, text, tags in answer.pieces())
        lines = in_lines(text, [end - start for start, end in spans])
        edits += [(*span, line) for span, line in zip(spans, lines)]
    return replaced(page, edits).encode()


def _sentences(page: str, name: str) -> "list[list[Span]]":
    """The lines of each sentence. A line with tags is a sentence; a line that names its speaker begins one."""
    sentences, position, spoken, any_times, noted = [list[Span]()], 0, False, False, False
    for line in lines_of(page):
        text, span = line.rstrip("\r\n"), (position, position + len(line.rstrip("\r\n")))
        position += len(line)
        if not spoken and _NOTE.match(text):
            noted = True
        elif _TIMES.match(line) and not noted:
            spoken = any_times = True
        elif not text.strip():
            spoken = noted = False
            before = page[: sentences[-1][0][0]].rstrip(" \t") if sentences[-1] else ""
            if before.endswith(_DASHES):  # the last speaker's words end here
                sentences.append([])
        elif spoken:
            tagged = bool(_TAG.search(text))
            if tagged or _SPEAKS.match(text) or len(sentences[-1]) == TOGETHER:
                sentences.append([])
            dash = _DASH.match(text)
            sentences[-1].append((span[0] + dash.end(), span[1]) if dash else span)
            if tagged or _ENDS.search(text):
                sentences.append([])
    if not any_times:
        raise InputError(f"{name}: expected subtitles, which have lines such as 00:00:01,000 --> 00:00:02,500")
    return [lines for lines in sentences if lines]


def _marked(shown: str) -> Marked:
    """The text of a sentence, with marks for pairs of tags, and for single tags at positions."""
    pieces = _TAG.split(shown)  # texts and tags, in turn
    kinds = ["text" if n % 2 == 0 else "close" if piece.startswith("</") else "open" for n, piece in enumerate(pieces)]
    closers = partners([(kind, _NAME.sub(r"\1", piece)) for kind, piece in zip(kinds, pieces)])

    def what(tag: int, closer: int | None) -> tuple[str, str]:
        return pieces[tag], "" if closer is None else pieces[closer]

    return from_tags(kinds, closers, lambda number, *_: "" if number % 2 else pieces[number], what)
