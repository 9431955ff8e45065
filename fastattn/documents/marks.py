"""Text with marks, such as tags around words, and the transfer of marks to its translation.

A translated word belongs to the marks of the source word that it attends to most, as in Bergamot. Unlike there, a mark
is never duplicated: it encloses the longest run of its words, so that the tree of marks stays the same.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice, zip_longest
from typing import Any, Literal, NamedTuple

from fastattn.text.invariants import INVARIANT
from fastattn.text.translation import SPACELESS_SCRIPTS
from fastattn.translation.alignment import WordLink

# For a kept text of lower-case letters only: the least letters, since a shorter one may be a word of the translation by
# chance, and the most places that are tried.
LEAST_NAME, MOST_PLACES = 4, 32
# The least letters of marks that count as words; the most marks in a word, and levels of marks, in a sentence.
LEAST_PIECE, MOST_IN_WORD, MOST_LEVELS = 3, 8, 64
_SPACELESS = "".join(f"{first}-{last}" for first, last in SPACELESS_SCRIPTS)
_WORD = re.compile(rf"[^\W{_SPACELESS}]+")
_UNIT = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")


class Mark(NamedTuple):
    """A mark around [start, end) of a text, or at a position, where both are equal."""

    start: int
    end: int
    what: Any = None  # the form's own object; None: the mark only keeps its text
    keeps: bool = False  # whether its text stays untranslated
    depth: int = 0  # how many marks enclose it


class Marked(NamedTuple):
    """A text and its nested marks, sorted by their starts, outer marks before inner ones."""

    text: str
    marks: tuple[Mark, ...] = ()

    def pieces(self) -> Iterator[tuple[Literal["text", "kept", "open", "close"], str, Any]]:
        """The text in order: (kind, text, a mark's ``what``); a mark that keeps is one "kept" piece."""
        at, open_marks = 0, list[Mark]()
        for mark in (*self.marks, None):
            place, depth = (len(self.text), 0) if mark is None else (mark.start, mark.depth)
            while len(open_marks) > depth:
                yield "text", self.text[at : open_marks[-1].end], None
                at = open_marks[-1].end
                yield "close", "", open_marks.pop().what
            yield "text", self.text[at:place], None
            at = place
            if mark is not None and mark.keeps:
                yield "kept", self.text[at : mark.end], mark.what
                at = mark.end
            elif mark is not None:
                yield "open", "", mark.what
                open_marks.append(mark)


class Node:
    """A mark, its text, the marks within it, and its [start, end) in the translation, -1 until placed."""

    def __init__(self, mark: Mark, text: str, start: int = -1, end: int = -1):
        self.mark, self.text, self.start, self.end = mark, text[mark.start : mark.end], start, end
        self.inner: list[Node] = []
        self.places: list[tuple[int, int, Node]] = []  # of inner marks in the translation, in order

    @property
    def keeps(self) -> bool:
        """Whether all of its text stays untranslated, also because of an inner mark."""
        if self.mark.keeps or len(self.inner) != 1:
            return self.mark.keeps
        return self.inner[0].mark[:2] == self.mark[:2] and self.inner[0].keeps

    def fits(self, start: int, end: int) -> bool:
        """Whether no inner mark is placed in [start, end) yet."""
        behind = bisect_right(self.places, start, key=lambda place: place[1])
        return behind == len(self.places) or self.places[behind][0] >= end

    def take(self, inner: "Node", start: int, end: int) -> None:
        inner.start, inner.end = start, end
        insort(self.places, (start, end, inner), key=lambda place: place[:2])


def from_tags(
    kinds: Sequence[str],
    closers: Mapping[int, int],
    shown: Callable[[int, str, Sequence[Mark]], str],
    what: Callable[[int, int | None], Any],
) -> Marked:
    """The text of pieces, with a mark for each tag: up to its closing tag, or at a position if it has none.

    kinds    of each piece: "text", or a kind of tag
    closers  index of an opening tag -> index of its closing tag
    shown    (index of a piece, text before it, marks before it) -> its text, which a tag's mark keeps
    what     (index of a tag, index of its closing tag) -> ``what`` of its mark
    """
    closing, text, marks, around = set(closers.values()), "", list[Mark](), list[int]()
    for number, kind in enumerate(kinds):
        own_text = shown(number, text, marks)
        if number in closing:
            mark = around.pop()
            marks[mark] = marks[mark]._replace(end=len(text))
            continue
        if kind != "text":
            end = len(text) + len(own_text)
            marks.append(Mark(len(text), end, what(number, closers.get(number)), bool(own_text), len(around)))
            if number in closers:
                around.append(len(marks) - 1)
        text += own_text
    return Marked(text, tuple(marks))


def with_kept(marked: Marked, pattern: "re.Pattern[str]" = INVARIANT) -> Marked:
    """``marked`` with marks around matches of the pattern, which they keep, except matches that other marks cut."""
    starts, ends = [mark.start for mark in marked.marks], sorted(mark.end for mark in marked.marks)
    invariants, position = list[Mark](), 0
    around = list[Mark]()  # the open marks, outer ones first
    for match in pattern.finditer(marked.text):
        start, end = match.span()
        while position < len(starts) and starts[position] <= start:
            while around and around[-1].end <= starts[position]:
                around.pop()
            around.append(marked.marks[position])
            position += 1
        while around and around[-1].end <= start:
            around.pop()
        cut = any(bisect_right(places, start) < bisect_left(places, end) for places in (starts, ends))
        if not cut and not any(mark.keeps for mark in around):
            invariants.append(Mark(start, end, None, True, len(around)))
    invariants += _signs(marked, [mark.start for mark in invariants])
    return Marked(marked.text, tuple(sorted((*marked.marks, *invariants), key=lambda mark: mark.start)))


def _signs(marked: Marked, starts: Sequence[int]) -> Iterator[Mark]:
    """Marks that keep the text of marks without letters, such as a permalink's; ``starts``: of other keeping marks."""
    for mark, behind in zip_longest(marked.marks, marked.marks[1:]):
        text = marked.text[mark.start : mark.end]
        alone = not mark.keeps and text.strip() and not any(map(str.isalnum, text))
        holds = behind is not None and behind.start < mark.end
        if alone and not holds and bisect_left(starts, mark.start) == bisect_left(starts, mark.end):
            yield Mark(mark.start, mark.end, None, True, mark.depth + 1)


def is_crowded(marked: Marked) -> bool:
    """Whether a word has more than MOST_IN_WORD marks, or marks more than MOST_LEVELS levels: it is no sentence."""
    words = [match.span() for match in _WORD.finditer(marked.text)]
    within = Counter[int]()
    for mark in marked.marks:
        word = bisect_right(words, (mark.start, len(marked.text))) - 1
        within[word] += word >= 0 and mark.start < mark.end <= words[word][1]
    return any(mark.depth > MOST_LEVELS for mark in marked.marks) or max(within.values(), default=0) > MOST_IN_WORD


def keeps(marked: Marked, answer: Marked) -> bool:
    """Whether a translation has the same invariants as its text, each as often."""
    if answer == marked:
        return True
    texts = (marked.text[mark.start : mark.end] for mark in marked.marks if mark.keeps)
    expected, actual = Counter(filter(INVARIANT.fullmatch, texts)), Counter(INVARIANT.findall(answer.text))
    if expected != Counter(INVARIANT.findall(marked.text)):  # some have no mark, or touch another text
        expected, actual = (
            Counter({each: text.count(each) for each in expected}) for text in (marked.text, answer.text)
        )
    return expected == actual


def repeats(marked: Marked, answer: Marked) -> bool:
    """Whether a translation has a kept name, such as code, more often than its text, or a part of a directive, or has a
    mark of several letters within a mark that did not enclose it.
    """
    texts = map(str.lower, _form_texts(marked))
    names = {text for text in texts if len(text) >= LEAST_NAME and any(map(str.isalpha, text))}
    before, after = marked.text.lower(), answer.text.lower()
    if any(after.count(name) > before.count(name) for name in names):
        return True
    if "{" in answer.text and INVARIANT.sub("", answer.text).count("{") > INVARIANT.sub("", marked.text).count("{"):
        return True
    lengths = {id(mark.what): mark.end - mark.start for mark in marked.marks}
    outer_before, outer_after = _outer_marks(marked), _outer_marks(answer)
    within = (what for what in outer_before if outer_after.get(what, outer_before[what]) != outer_before[what])
    return any(min(lengths[what], lengths.get(outer_after[what], 0)) >= LEAST_PIECE for what in within)


def _outer_marks(marked: Marked) -> dict[int, int]:
    """id of a mark's ``what``, if no other mark has it -> id of the enclosing mark's ``what``, 0 for none."""
    outer, enclosing, count = dict[int, int](), list[int](), Counter(id(mark.what) for mark in marked.marks)
    for mark in marked.marks:
        del enclosing[mark.depth :]
        if count[id(mark.what)] == 1:
            outer[id(mark.what)] = enclosing[-1] if enclosing else 0
        enclosing.append(id(mark.what))
    return outer


def unread(text: str) -> Marked:
    """A text that stays untranslated and is counted as such."""
    return Marked(text, (Mark(0, len(text), ("", "", ""), True),) if text else ())


def _form_texts(marked: Marked) -> list[str]:
    """The texts that a form keeps, such as code."""
    return [marked.text[mark.start : mark.end] for mark in marked.marks if mark.keeps and mark.what is not None]


def kept_characters(marked: Marked) -> int:
    """The number of characters that a form keeps untranslated, without blanks and invariants."""
    remainders = [INVARIANT.sub("", text) for text in _form_texts(marked)]
    return sum(len("".join(text.split())) for text in remainders if any(map(str.isalpha, text)))


def stripped(marked: Marked) -> tuple[str, Marked, str]:
    """(blanks before, the text between with its marks, blanks behind); ``joined`` reverses it.

    Blanks between the text and a mark before or behind it, such as a picture, belong to the text.
    """
    places = [mark.start for mark in marked.marks if mark.start == mark.end]
    begin = min(len(marked.text) - len(marked.text.lstrip()), *places, len(marked.text))
    text = marked.text[begin : max(begin, len(marked.text.rstrip()), *places)]
    shifted = [
        mark._replace(start=min(max(0, mark.start - begin), len(text)), end=min(max(0, mark.end - begin), len(text)))
        for mark in marked.marks
    ]
    return marked.text[:begin], Marked(text, tuple(shifted)), marked.text[begin + len(text) :]


def split_at(marked: Marked, ends: Callable[[Any], bool]) -> list[Marked]:
    """A text split at outer marks that end a sentence, which are parts of their own; ``joined`` reverses it.

    ends  a mark's ``what`` -> whether it ends a sentence
    """
    parts, first, at = list[Marked](), 0, 0
    for number, mark in enumerate((*marked.marks, None)):
        if mark is None or (mark.depth == 0 and ends(mark.what)):
            end = len(marked.text) if mark is None else mark.start
            parts.append(Marked(marked.text[at:end], tuple(_shifted(marked.marks[first:number], -at))))
            parts += [] if mark is None else [Marked("", (mark._replace(start=0, end=0),))]
            first, at = number + 1, end
    return parts


def joined(parts: Iterable[Marked]) -> Marked:
    """One text of several."""
    text, marks = "", list[Mark]()
    for part in parts:
        marks += _shifted(part.marks, len(text))
        text += part.text
    return Marked(text, tuple(marks))


def _shifted(marks: Iterable[Mark], offset: int) -> Iterator[Mark]:
    return (mark._replace(start=mark.start + offset, end=mark.end + offset) for mark in marks)


def project_marks(marked: Marked, translation: str, links: Iterable[WordLink]) -> Marked:
    """The translation of a marked text with its marks; without links, words are assumed to stay in order."""
    if not marked.marks or translation == marked.text:
        return Marked(translation, marked.marks)
    scale, spans = len(marked.text) / max(1, len(translation)), (match.span() for match in _UNIT.finditer(translation))
    in_order = (WordLink((int(scale * start), 1 + int(scale * (end - 1))), (start, end)) for start, end in spans)
    links = list(links) or in_order
    words = [WordLink(_core(marked.text, link.source), _core(translation, link.target)) for link in links]
    words.sort(key=lambda link: link.target)
    root = Node(Mark(0, len(marked.text), depth=-1), marked.text, 0, len(translation))
    path = [root]
    for mark in marked.marks:
        del path[mark.depth + 1 :]
        path.append(Node(mark, marked.text))
        path[-2].inner.append(path[-1])
    return MarkProjection(marked.text, translation).written(root, words)


class MarkProjection:
    """The transfer of a text's marks to its translation."""

    def __init__(self, source: str, translation: str):
        self._source, self._translation, self._small = source, translation, translation.lower()
        self._next_places: dict[
            tuple[int, str, bool], int
        ] = {}  # (node, kept text, case-sensitive) -> where to search next

    def written(self, node: Node, words: Sequence[WordLink], depth: int = 0) -> Marked:
        """A node's part of the translation, with its inner marks."""
        if not node.inner:
            return Marked(self._translation[node.start : node.end])
        self._place(node, words)
        text, marks, at, begins = "", list[Mark](), node.start, [word.target[0] for word in words]
        for inner in sorted(node.inner, key=lambda child: (child.start, child.end)):
            text += self._translation[at : inner.start]
            at, stands = inner.end, inner.start == inner.end
            blank_behind = self._source.startswith(" ", inner.mark.end)
            if stands and text and not text.endswith(" ") and self._source.endswith(" ", 0, inner.mark.start):
                text += " "  # a mark between words has a blank before it if the text has one
                at += not blank_behind and self._translation.startswith(" ", at, node.end)
            lacks = stands and inner.end < node.end and not self._translation.startswith(" ", at)
            if inner.mark.keeps:
                within = Marked(inner.text)
                at += within.text.isspace() and self._translation.startswith(" ", at, node.end)
            else:
                first, behind = (bisect_left(begins, at) if inner.inner else 0 for at in (inner.start, inner.end))
                within = self.written(inner, words[first:behind], depth + 1)
            begin = len(text)
            text += within.text
            marks.append(Mark(begin, len(text), inner.mark.what, inner.mark.keeps, depth))
            marks += _shifted(within.marks, begin)
            text += " " * (lacks and blank_behind)
        return Marked(text + self._translation[at : node.end], tuple(marks))

    def _place(self, node: Node, words: Sequence[WordLink]) -> None:
        """Place each inner mark of a node; none overlaps another."""
        invariants = [inner for inner in node.inner if inner.keeps and inner.text.strip()]
        for inner in sorted(invariants, key=lambda inner: -len(inner.text)):  # a longer one may hold a shorter
            self._find_kept(inner, node, words)
        all_words, words = words, self._place_within_words(node, words)
        owners = self._owners(words, node)
        runs = dict[int, list[list[WordLink]]]()
        for owner, run in groupby(zip(owners, words), key=lambda pair: id(pair[0])):
            runs.setdefault(owner, []).append([word for _, word in run])
        for inner in node.inner:
            if inner.start >= 0 or inner.mark.start == inner.mark.end:
                continue
            outside = self._source[node.mark.start : inner.mark.start] + self._source[inner.mark.end : node.mark.end]
            if not outside.strip() and not inner.mark.keeps:
                inner.start, inner.end = node.start, node.end
            elif mine := runs.get(id(inner)):
                self._take(inner, max(mine, key=lambda run: run[-1].target[1] - run[0].target[0]), node)
        self._share(node, owners, words)
        behind = self._behind(node, all_words)
        free = [word.target for word, owner in zip(words, owners) if owner is None]
        for inner in node.inner:
            if inner.start < 0:
                inner.start = inner.end = behind(inner.mark)
                if free and not inner.keeps and any(map(str.isalpha, inner.text)):
                    near = bisect_left(free, (inner.start,))
                    inner.start, inner.end = free.pop(min(near, len(free) - 1))

    def _place_within_words(self, node: Node, words: Sequence[WordLink]) -> list[WordLink]:
        """Place marks around digits and signs within a word, as in H2O, if the translated word has the same.

        Returns the words; a word with such a mark is split into the pieces around it.
        """
        pieces = {number: [word.target] for number, word in enumerate(words)}
        ordered = sorted(pieces, key=lambda number: words[number].source)
        ends = list(accumulate((words[number].source[1] for number in ordered), max))
        for inner in node.inner:
            start, end = inner.mark.start, inner.mark.end
            around = self._source[max(0, start - 1) : start] + self._source[end : end + 1]  # letters or signs
            if inner.start >= 0 or not inner.text.strip() or any(map(str.isalpha, inner.text)) or not around.strip():
                continue
            at = bisect_left(ends, start)
            while at < len(ordered) and inner.start < 0 and words[ordered[at]].source[0] <= end:
                self._place_in(inner, node, pieces[ordered[at]])
                at += 1
        return [word._replace(target=piece) for number, word in enumerate(words) for piece in pieces[number]]

    def _place_in(self, inner: Node, node: Node, pieces: list[tuple[int, int]]) -> None:
        """Place a mark in the first piece of a translated word that has its text, and split the piece there."""
        for number, (start, end) in enumerate(pieces):
            while number == len(pieces) - 1 and end < node.end and not self._translation[end].isspace():
                end += 1  # signs after the word
            at = self._translation.find(inner.text, start, end)
            if at >= 0 and node.fits(at, at + len(inner.text)):
                node.take(inner, at, at + len(inner.text))
                cut = [(start, at), (at, inner.end), (inner.end, end)]
                pieces[number : number + 1] = [piece for piece in cut if piece[0] < piece[1]]
                return

    @staticmethod
    def _share(node: Node, owners: Sequence[Node | None], words: Sequence[WordLink]) -> None:
        """Move a mark around a part of a word into the mark that has the whole word."""
        hosts = [(word, owner) for owner, word in zip(owners, words) if owner is not None and not owner.mark.keeps]
        hosts.sort(key=lambda host: host[0].source)
        ends = [word.source[1] for word, _ in hosts]
        remaining = list[Node]()
        for inner in node.inner:
            at = bisect_right(ends, inner.mark.start)
            if inner.start < 0 and at < len(hosts) and _common(inner.mark, hosts[at][0]) > 0:
                hosts[at][1].inner.append(inner)
            else:
                remaining.append(inner)
        node.inner = remaining

    def _find_kept(self, inner: Node, node: Node, words: Sequence[WordLink]) -> None:
        """Place a mark that keeps at the next free place with its text, in another case if need be.

        A text that could be a word, such as the code ``a``, is placed only where a word attends to it.
        """
        text, is_word = inner.text, inner.text.isalpha() and inner.text.islower()
        for as_written in (True, False):
            key = id(node), text, as_written
            places = self._places(text, as_written, self._next_places.get(key, node.start), node.end)
            free = ((start, start + len(text)) for start in places if node.fits(start, start + len(text)))
            some = list(islice(free, MOST_PLACES if is_word else 1))
            looked = (place for place in some if self._looks(inner.mark, *place, words))
            first = some[0] if some and (not is_word or len(text) >= LEAST_NAME) else None
            place = next(looked, first) if is_word else first
            if place is not None:
                node.take(inner, *place)
            if not some or place == some[0]:  # the next mark with the same text goes on there
                self._next_places[key] = node.end if place is None else place[1]
            if place is not None:
                return

    def _places(self, text: str, as_written: bool, start: int, end: int) -> Iterator[int]:
        """The places in [start, end) where the translation has a text that is no part of a longer word."""
        within = self._translation if as_written else self._small
        if not as_written and (len(self._small) != len(self._translation) or len(text) != len(text.lower())):
            return
        text = text if as_written else text.lower()
        signs = "-" if text.isalpha() else ""
        while (position := within.find(text, start, end)) >= 0:
            last = position + len(text)
            ends = (within[max(0, position - 1) : position], text[0]), (within[last : last + 1], text[-1])
            if not any(inner.isalnum() and (outer.isalnum() or outer in ("_", *signs)) for outer, inner in ends):
                yield position
            start = position + 1

    @staticmethod
    def _looks(mark: Mark, start: int, end: int, words: Sequence[WordLink]) -> bool:
        """Whether a translated word in [start, end) attends to a word of the mark."""
        at = bisect_right(words, start, key=lambda word: word.target[1])
        while at < len(words) and words[at].target[0] < end and _common(mark, words[at]) <= 0:
            at += 1
        return at < len(words) and words[at].target[0] < end

    @staticmethod
    def _owners(words: Sequence[WordLink], node: Node) -> list[Node | None]:
        """For each translated word, the inner mark of a node that has it."""
        starts, ends = ([inner.mark[end] for inner in node.inner] for end in (0, 1))  # siblings do not overlap
        places = [end for _, end, _ in node.places]
        owners = list[Node | None]()
        for word in words:
            source, target = word.source, word.target
            at = bisect_right(places, target[0])
            if at < len(places) and node.places[at][0] < target[1]:
                owners.append(node.places[at][2])
                continue
            first, behind = bisect_right(ends, source[0]), bisect_left(starts, source[1])
            shares = [(_common(inner.mark, word), inner) for inner in node.inner[first:behind] if inner.start < 0]
            share, owner = max(shares, key=lambda share: share[0], default=(0, None))
            owners.append(owner if share > 0 else None)
        return owners

    def _take(self, inner: Node, run: list[WordLink], node: Node) -> None:
        """Place a mark around words; one that keeps, around the words that stand for its text."""
        text = inner.text
        if inner.mark.keeps:
            alike = [number for number, word in enumerate(run) if self._is_part(word, text)]
            if not alike and not any(map(str.isalnum, text)):
                return
            run = run[alike[0] : alike[-1] + 1] if alike else run[: len(text.split())]
        else:
            texts = [self._translation[slice(*word.target)] for word in run]
            lettered = [number for number, text in enumerate(texts) if any(map(str.isalnum, text))]
            run = run[lettered[0] : lettered[-1] + 1] if lettered else run  # a comma may attend to the next word
        start, end = run[0].target[0], run[-1].target[1]
        while not text[0].isalnum() and start > node.start and _is_sign(self._translation[start - 1]):
            start -= 1
        while not text[-1].isalnum() and end < node.end and _is_sign(self._translation[end]):
            end += 1
        inner.start, inner.end = start, end

    def _is_part(self, word: WordLink, text: str) -> bool:
        """Whether a translated word is a part of a kept text, or both have no letters."""
        letters = "".join(filter(str.isalnum, self._translation[slice(*word.target)])).lower()
        return letters in "".join(filter(str.isalnum, text)).lower() if letters else not any(map(str.isalnum, text))

    @staticmethod
    def _behind(node: Node, words: Sequence[WordLink]) -> Callable[[Mark], int]:
        """mark -> the position after the translation of the text before it, outside other marks."""
        ordered = sorted(words, key=lambda word: word.source[1])
        ends = [word.source[1] for word in ordered]
        spans = ((inner.start, inner.end) for inner in node.inner if inner.start >= 0)
        placed = sorted(spans, key=lambda span: span[1])

        def place(mark: Mark) -> int:
            if mark.start >= node.mark.end:
                return node.end
            last = bisect_right(ends, mark.start)
            at = ordered[bisect_left(ends, ends[last - 1])].target[1] if last else node.start
            after = bisect_right(placed, at, key=lambda span: span[1])
            return placed[after][1] if after < len(placed) and placed[after][0] < at else at

        return place


def _common(mark: Mark, word: WordLink) -> int:
    return min(mark.end, word.source[1]) - max(mark.start, word.source[0])


def _is_sign(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


def _core(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """A word without the signs around it; a word of signs stays."""
    start, end = span
    if any(map(str.isalnum, text[start:end])):
        while not text[start].isalnum():
            start += 1
        while not text[end - 1].isalnum():
            end -= 1
    return start, end
