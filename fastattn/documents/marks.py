"""Text with marks, such as tags around words, and where they go in its translation: with the words that they enclose.

A translated word is given to the marks of the word of the text that it looks at most, as Bergamot does; unlike there a
mark stays one, around the longest run of such words, so that a tree of marks stays the tree that it was.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from fastattn.translation.alignment import WordLink


class Mark(NamedTuple):
    """What encloses [start, end) of a text; where they are equal, it stands there.

    what   the format's own; None: nothing, it only keeps
    keeps  whether the text within stays untranslated
    depth  how many other marks enclose it
    """

    start: int
    end: int
    what: Any = None
    keeps: bool = False
    depth: int = 0


class Marked(NamedTuple):
    """A text and its marks, which are nested: in the order of their beginnings, outer ones before inner ones."""

    text: str
    marks: tuple[Mark, ...] = ()

    def pieces(self) -> Iterator[tuple[Literal["text", "kept", "open", "close"], str, Any]]:
        """The text in order: (kind, text, what a mark has); a "kept" text is in no other mark's open and close."""
        at, begun = 0, list[Mark]()
        for mark in (*self.marks, None):
            place, depth = (len(self.text), 0) if mark is None else (mark.start, mark.depth)
            while len(begun) > depth:
                yield "text", self.text[at : begun[-1].end], None
                at = begun[-1].end
                yield "close", "", begun.pop().what
            yield "text", self.text[at:place], None
            at = place
            if mark is not None and mark.keeps:
                yield "kept", self.text[at : mark.end], mark.what
                at = mark.end
            elif mark is not None:
                yield "open", "", mark.what
                begun.append(mark)


class Node:
    """A mark, those within it, and where it goes in the translation."""

    def __init__(self, mark: Mark, start: int = -1, end: int = -1):
        self.mark, self.start, self.end = mark, start, end
        self.inner: list[Node] = []


# What stands for itself in any language: addresses, code, printf's, Python's and templates' directives, emoji.
KEPT = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]]|\bwww\.[^\s<>\"'`]*[\w/]"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|`[^`\n]+`"
    r"|%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfgGcs@](?![a-z])|\$?\{+[\w.:!]*\}+"
    r"|[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B50\u2B55][\U0001F3FB-\U0001F3FF\uFE0F\u200D\U0001F000-\U0001FAFF]*"
)


def with_kept(marked: Marked, pattern: "re.Pattern[str]" = KEPT) -> Marked:
    """``marked`` with marks around what stays untranslated, but for what other marks cut."""
    marks = list(marked.marks)
    for match in pattern.finditer(marked.text):
        start, end = match.span()
        if any(start < mark.start < end or start < mark.end < end for mark in marked.marks):
            continue
        around = [mark for mark in marked.marks if mark.start <= start and end <= mark.end]
        if not any(mark.keeps for mark in around):
            at = next((number for number, mark in enumerate(marks) if mark.start >= end), len(marks))
            marks.insert(at, Mark(start, end, None, True, len(around)))
    return Marked(marked.text, tuple(marks))


def stripped(marked: Marked) -> tuple[str, Marked, str]:
    """(blanks before, the text between with its marks, blanks behind)."""
    text = marked.text.strip()
    begin = len(marked.text) - len(marked.text.lstrip())
    moved = [
        mark._replace(start=min(max(0, mark.start - begin), len(text)), end=min(max(0, mark.end - begin), len(text)))
        for mark in marked.marks
    ]
    return marked.text[:begin], Marked(text, tuple(moved)), marked.text[begin + len(text) :] if text else ""


def unstripped(before: str, marked: Marked, behind: str) -> Marked:
    """The reverse of ``stripped``."""
    count = len(before)
    marks = tuple(mark._replace(start=mark.start + count, end=mark.end + count) for mark in marked.marks)
    return Marked(before + marked.text + behind, marks)


def moved(marked: Marked, translation: str, links: Iterable[WordLink]) -> Marked:
    """The translation of a marked text with its marks; without links words are taken to stay in order."""
    if not marked.marks or translation == marked.text:
        return Marked(translation, marked.marks)
    links = list(links) or _in_order(marked.text, translation)
    words = [WordLink(_core(marked.text, link.source), _core(translation, link.target)) for link in links]
    words.sort(key=lambda link: link.target)
    root = Node(Mark(0, len(marked.text), depth=-1), 0, len(translation))
    path = [root]
    for mark in marked.marks:
        del path[mark.depth + 1 :]
        path.append(Node(mark))
        path[-2].inner.append(path[-1])
    return Moving(marked.text, translation).written(root, words)


def _in_order(text: str, translation: str) -> list[WordLink]:
    scale = len(text) / max(1, len(translation))
    spans = [match.span() for match in re.finditer(r"\S+", translation)]
    return [WordLink((int(scale * start), 1 + int(scale * (end - 1))), (start, end)) for start, end in spans]


class Moving:
    """A text's marks on their way to its translation."""

    def __init__(self, source: str, translation: str):
        self._source, self._translation = source, translation

    def written(self, node: Node, words: Sequence[WordLink]) -> Marked:
        """The translation within a node, with the marks within."""
        self._place(node, words)
        text, marks, at = "", list[Mark](), node.start
        for inner in sorted(node.inner, key=lambda one: (one.start, one.end)):
            text += self._translation[at : inner.start]
            at = inner.end
            if inner.start == inner.end and self._lacks_blank(inner.mark, text):
                text += " "
                at += not self._source.startswith(" ", inner.mark.end) and self._translation.startswith(
                    " ", at, node.end
                )
            if inner.mark.keeps:
                within = Marked(self._source[inner.mark.start : inner.mark.end])
            else:
                within = self.written(inner, [word for word in words if inner.start <= word.target[0] < inner.end])
            begin = len(text)
            text += within.text
            marks.append(inner.mark._replace(start=begin, end=len(text)))
            marks += [mark._replace(start=begin + mark.start, end=begin + mark.end) for mark in within.marks]
        return Marked(text + self._translation[at : node.end], tuple(marks))

    def _lacks_blank(self, mark: Mark, before: str) -> bool:
        """Whether what stands between words needs the blank before it that the text has."""
        return self._source.endswith(" ", 0, mark.start) and bool(before) and not before.endswith(" ")

    def _place(self, node: Node, words: Sequence[WordLink]) -> None:
        """Give each of the marks within a node a place; none overlaps another."""
        for inner in node.inner:
            if inner.mark.keeps and inner.mark.start < inner.mark.end:
                self._find_kept(inner, node)
        placed = [inner for inner in node.inner if inner.start >= 0]
        owners = [self._owner(word, node.inner) for word in words]
        runs = [
            (owner, [word for _, word in run]) for owner, run in groupby(zip(owners, words), key=lambda one: one[0])
        ]
        for inner in node.inner:
            if inner in placed or inner.mark.start == inner.mark.end:
                continue
            outside = self._source[node.mark.start : inner.mark.start] + self._source[inner.mark.end : node.mark.end]
            if not outside.strip() and not inner.mark.keeps:
                inner.start, inner.end = node.start, node.end
            elif mine := [run for owner, run in runs if owner is inner]:
                self._take(inner, max(mine, key=lambda run: run[-1].target[1] - run[0].target[0]), node)
        for inner in node.inner:
            if inner.start < 0:
                inner.start = inner.end = self._behind(inner.mark, node, words)

    def _find_kept(self, inner: Node, node: Node) -> None:
        """Place what is kept where the translation has it as it was: the next that no mark before it has."""
        text = self._source[inner.mark.start : inner.mark.end]
        whole = re.compile(
            rf"(?<!\w){re.escape(text)}(?!\w)" if text[0].isalnum() and text[-1].isalnum() else re.escape(text)
        )
        for match in whole.finditer(self._translation, node.start, node.end):
            if not any(other.start < match.end() and match.start() < other.end for other in node.inner):
                inner.start, inner.end = match.span()
                return

    @staticmethod
    def _owner(word: WordLink, nodes: Sequence[Node]) -> Node | None:
        """Whose words a translated word is among."""
        for one in nodes:
            if one.start < word.target[1] and word.target[0] < one.end:
                return one
        free = [one for one in nodes if one.start < 0 and _common(one.mark, word) > 0]
        return max(free, key=lambda one: _common(one.mark, word), default=None)

    def _take(self, inner: Node, run: list[WordLink], node: Node) -> None:
        """Place a mark around words, or around those that are written in the place of what it keeps."""
        text = self._source[inner.mark.start : inner.mark.end]
        if inner.mark.keeps:
            alike = [number for number, word in enumerate(run) if self._is_part(word, text)]
            if not alike and not any(map(str.isalnum, text)):
                return
            run = run[alike[0] : alike[-1] + 1] if alike else run[: len(text.split())]
        else:
            run = self._without_signs(run) or run
        start, end = run[0].target[0], run[-1].target[1]
        while not text[0].isalnum() and start > node.start and _is_sign(self._translation[start - 1]):
            start -= 1
        while not text[-1].isalnum() and end < node.end and _is_sign(self._translation[end]):
            end += 1
        inner.start, inner.end = start, end

    def _without_signs(self, run: list[WordLink]) -> list[WordLink]:
        """Words without the signs at their ends, such as a comma that looks at the next word."""
        words = [n for n, word in enumerate(run) if any(map(str.isalnum, self._translation[slice(*word.target)]))]
        return run[words[0] : words[-1] + 1] if words else []

    def _is_part(self, word: WordLink, kept: str) -> bool:
        """Whether a translated word is a piece of what is kept, or stands for it without being a word."""
        letters = "".join(filter(str.isalnum, self._translation[slice(*word.target)])).lower()
        return letters in "".join(filter(str.isalnum, kept)).lower() if letters else not any(map(str.isalnum, kept))

    @staticmethod
    def _behind(mark: Mark, node: Node, words: Sequence[WordLink]) -> int:
        """The place behind what stands before a mark, in no other."""
        if mark.start >= node.mark.end:
            return node.end
        before = [word for word in words if word.source[1] <= mark.start]
        at = max(before, key=lambda word: word.source[1]).target[1] if before else node.start
        return next((other.end for other in node.inner if other.start < at < other.end), at)


def _common(mark: Mark, word: WordLink) -> int:
    return min(mark.end, word.source[1]) - max(mark.start, word.source[0])


def _is_sign(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


def _core(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """A word without the signs around it, where it has letters."""
    start, end = span
    if any(map(str.isalnum, text[start:end])):
        while not text[start].isalnum():
            start += 1
        while not text[end - 1].isalnum():
            end -= 1
    return start, end
