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

# A kept text of fewer letters may be a word of the translation by chance; of a kept text of lower-case letters only,
# so many occurrences are tried at most.
LEAST_NAME_LETTERS, MOST_OCCURRENCES = 4, 32
# Marks of fewer characters may come to lie within each other; the most marks within a word, the most levels of marks.
LEAST_MARK_LETTERS, MOST_WORD_MARKS, MOST_LEVELS = 3, 8, 64
_SPACELESS = "".join(f"{first}-{last}" for first, last in SPACELESS_SCRIPTS)
_WORD = re.compile(rf"[^\W{_SPACELESS}]+")
_UNIT = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")


class Mark(NamedTuple):
    """A mark around [start, end) of a text, or at a position if start and end are equal."""

    start: int
    end: int
    tag: Any = None  # the form's object, such as an element; None: the mark only keeps its text
    keeps: bool = False  # whether the mark's text stays untranslated
    depth: int = 0  # how many marks enclose the mark


class Marked(NamedTuple):
    """A text and its nested marks, sorted by their starts, outer marks before inner ones."""

    text: str
    marks: tuple[Mark, ...] = ()

    def pieces(self) -> Iterator[tuple[Literal["text", "kept", "open", "close"], str, Any]]:
        """The text in order: (kind, text, a mark's tag); a mark that keeps its text is one "kept" piece."""
        position, open_marks = 0, list[Mark]()
        for mark in (*self.marks, None):
            start, depth = (len(self.text), 0) if mark is None else (mark.start, mark.depth)
            while len(open_marks) > depth:
                yield "text", self.text[position : open_marks[-1].end], None
                position = open_marks[-1].end
                yield "close", "", open_marks.pop().tag
            yield "text", self.text[position:start], None
            position = start
            if mark is not None and mark.keeps:
                yield "kept", self.text[position : mark.end], mark.tag
                position = mark.end
            elif mark is not None:
                yield "open", "", mark.tag
                open_marks.append(mark)


class Node:
    """A mark in a tree of marks, with its text, its children and [start, end) in the translation, -1 until placed."""

    def __init__(self, mark: Mark, text: str, start: int = -1, end: int = -1):
        self.mark, self.text, self.start, self.end = mark, text[mark.start : mark.end], start, end
        self.children: list[Node] = []
        self.child_spans: list[tuple[int, int, Node]] = []  # [start, end) of placed children, in order

    @property
    def keeps(self) -> bool:
        """Whether all of the mark's text stays untranslated, perhaps since an inner mark keeps the text."""
        if self.mark.keeps or len(self.children) != 1:
            return self.mark.keeps
        return self.children[0].mark[:2] == self.mark[:2] and self.children[0].keeps

    def is_free(self, start: int, end: int) -> bool:
        """Whether no child is placed in [start, end) of the translation yet."""
        following = bisect_right(self.child_spans, start, key=lambda span: span[1])
        return following == len(self.child_spans) or self.child_spans[following][0] >= end

    def place_child(self, child: "Node", start: int, end: int) -> None:
        child.start, child.end = start, end
        insort(self.child_spans, (start, end, child), key=lambda span: span[:2])


def marked_from_tags(
    kinds: Sequence[str],
    closers: Mapping[int, int],
    text_of: Callable[[int, str, bool], str],
    tag_of: Callable[[int, int | None], Any],
) -> Marked:
    """Join pieces to a text, with a mark from each tag to its closing tag, or at a position if it has no closing tag.

    kinds       of each piece: "text", or a kind of tag
    closers     index of an opening tag -> index of its closing tag
    text_of     (index of a piece, the last character before the piece, whether a mark begins between the two) -> the
                piece's text; a tag's mark keeps the tag's text
    tag_of      (index of a tag, index of its closing tag) -> ``Mark.tag``
    """
    closing_tags, texts, marks, open_marks = set(closers.values()), [""], list[Mark](), list[int]()
    length = 0
    for number, kind in enumerate(kinds):
        piece_text = text_of(number, texts[-1][-1:], bool(marks) and marks[-1].start == length)
        if number in closing_tags:
            index = open_marks.pop()
            marks[index] = marks[index]._replace(end=length)
            continue
        if kind != "text":
            tag = tag_of(number, closers.get(number))
            marks.append(Mark(length, length + len(piece_text), tag, bool(piece_text), len(open_marks)))
            if number in closers:
                open_marks.append(len(marks) - 1)
        if piece_text:
            texts.append(piece_text)
            length += len(piece_text)
    return Marked("".join(texts), tuple(marks))


def keep_matches(marked: Marked, pattern: "re.Pattern[str]" = INVARIANT) -> Marked:
    """Add marks that keep the matches of a pattern, except matches within which another mark starts or ends."""
    starts, ends = [mark.start for mark in marked.marks], sorted(mark.end for mark in marked.marks)
    keeping_marks, next_mark = list[Mark](), 0
    open_marks = list[Mark]()  # the marks around a match, outer marks first
    for match in pattern.finditer(marked.text):
        start, end = match.span()
        while next_mark < len(starts) and starts[next_mark] <= start:
            while open_marks and open_marks[-1].end <= starts[next_mark]:
                open_marks.pop()
            open_marks.append(marked.marks[next_mark])
            next_mark += 1
        while open_marks and open_marks[-1].end <= start:
            open_marks.pop()
        is_cut = any(bisect_right(positions, start) < bisect_left(positions, end) for positions in (starts, ends))
        if not is_cut and not any(mark.keeps for mark in open_marks):
            keeping_marks.append(Mark(start, end, None, True, len(open_marks)))
    keeping_marks += _marks_of_signs(marked, [mark.start for mark in keeping_marks])
    return Marked(marked.text, tuple(sorted((*marked.marks, *keeping_marks), key=lambda mark: mark.start)))


def _marks_of_signs(marked: Marked, starts: Sequence[int]) -> Iterator[Mark]:
    """A keeping mark within each mark around signs alone, such as a permalink; ``starts`` of other keeping marks."""
    for mark, following in zip_longest(marked.marks, marked.marks[1:]):
        text = marked.text[mark.start : mark.end]
        has_signs_alone = not mark.keeps and text.strip() and not any(map(str.isalnum, text))
        has_inner_mark = following is not None and following.start < mark.end
        if has_signs_alone and not has_inner_mark and bisect_left(starts, mark.start) == bisect_left(starts, mark.end):
            yield Mark(mark.start, mark.end, None, True, mark.depth + 1)


def is_crowded(marked: Marked) -> bool:
    """Whether a word has over MOST_WORD_MARKS marks, or marks have over MOST_LEVELS levels, as in no real sentence."""
    words = [match.span() for match in _WORD.finditer(marked.text)]
    counts = Counter[int]()  # index of a word -> the number of its marks
    for mark in marked.marks:
        index = bisect_right(words, (mark.start, len(marked.text))) - 1
        counts[index] += index >= 0 and mark.start < mark.end <= words[index][1]
    return any(mark.depth > MOST_LEVELS for mark in marked.marks) or max(counts.values(), default=0) > MOST_WORD_MARKS


def keeps_invariants(marked: Marked, answer: Marked) -> bool:
    """Whether a translation has each invariant as often as its text has."""
    if answer == marked:
        return True
    texts = (marked.text[mark.start : mark.end] for mark in marked.marks if mark.keeps)
    expected, actual = Counter(filter(INVARIANT.fullmatch, texts)), Counter(INVARIANT.findall(answer.text))
    if expected != Counter(INVARIANT.findall(marked.text)):  # an invariant has no mark, or joins the text beside it
        expected, actual = (Counter({key: text.count(key) for key in expected}) for text in (marked.text, answer.text))
    return expected == actual


def repeats_names_or_moves_marks(marked: Marked, answer: Marked) -> bool:
    """Whether a translation has more occurrences of a kept name, such as code, than its text, or more stray braces.

    Also whether a mark lies within another mark than in the text, if each of the two has LEAST_MARK_LETTERS or more.
    """
    texts = map(str.lower, _texts_kept_by_form(marked))
    names = {text for text in texts if len(text) >= LEAST_NAME_LETTERS and any(map(str.isalpha, text))}
    before, after = marked.text.lower(), answer.text.lower()
    if any(after.count(name) > before.count(name) for name in names):
        return True
    if "{" in answer.text and INVARIANT.sub("", answer.text).count("{") > INVARIANT.sub("", marked.text).count("{"):
        return True
    lengths = {id(mark.tag): mark.end - mark.start for mark in marked.marks}
    outer_before, outer_after = _outer_marks(marked), _outer_marks(answer)
    moved_tags = (tag for tag in outer_before if outer_after.get(tag, outer_before[tag]) != outer_before[tag])
    return any(min(lengths[tag], lengths.get(outer_after[tag], 0)) >= LEAST_MARK_LETTERS for tag in moved_tags)


def _outer_marks(marked: Marked) -> dict[int, int]:
    """id of each tag that belongs to one mark only -> id of the enclosing mark's tag, 0 without an enclosing mark."""
    outer, enclosing, count = dict[int, int](), list[int](), Counter(id(mark.tag) for mark in marked.marks)
    for mark in marked.marks:
        del enclosing[mark.depth :]
        if count[id(mark.tag)] == 1:
            outer[id(mark.tag)] = enclosing[-1] if enclosing else 0
        enclosing.append(id(mark.tag))
    return outer


def untranslated_text(text: str) -> Marked:
    """A text that stays untranslated and is counted among the untranslated characters."""
    return Marked(text, (Mark(0, len(text), ("", "", ""), True),) if text else ())


def _texts_kept_by_form(marked: Marked) -> list[str]:
    """The texts that the form's own marks keep, such as code."""
    return [marked.text[mark.start : mark.end] for mark in marked.marks if mark.keeps and mark.tag is not None]


def count_kept_characters(marked: Marked) -> int:
    """How many characters the form's own marks keep untranslated, without blanks and invariants."""
    remainders = [INVARIANT.sub("", text) for text in _texts_kept_by_form(marked)]
    return sum(len("".join(text.split())) for text in remainders if any(map(str.isalpha, text)))


def split_blanks(marked: Marked) -> tuple[str, Marked, str]:
    """(blanks before, the text between the blanks with its marks, blanks behind); ``join_marked`` joins the three.

    Blanks between the words and a mark at a position before or behind the words, such as a picture, belong to the text.
    """
    points = [mark.start for mark in marked.marks if mark.start == mark.end]
    begin = min(len(marked.text) - len(marked.text.lstrip()), *points, len(marked.text))
    text = marked.text[begin : max(begin, len(marked.text.rstrip()), *points)]
    shifted_marks = [
        mark._replace(start=min(max(0, mark.start - begin), len(text)), end=min(max(0, mark.end - begin), len(text)))
        for mark in marked.marks
    ]
    return marked.text[:begin], Marked(text, tuple(shifted_marks)), marked.text[begin + len(text) :]


def split_at_marks(marked: Marked, ends_sentence: Callable[[Any], bool]) -> list[Marked]:
    """Split a text at outermost marks whose tag ``ends_sentence``; such a mark is a part. ``join_marked`` joins all."""
    parts, first, start = list[Marked](), 0, 0
    for number, mark in enumerate((*marked.marks, None)):
        if mark is None or (mark.depth == 0 and ends_sentence(mark.tag)):
            end = len(marked.text) if mark is None else mark.start
            parts.append(Marked(marked.text[start:end], tuple(_shifted(marked.marks[first:number], -start))))
            parts += [] if mark is None else [Marked("", (mark._replace(start=0, end=0),))]
            first, start = number + 1, end
    return parts


def join_marked(parts: Iterable[Marked]) -> Marked:
    """Join parts to one text."""
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
    words = [WordLink(_trim_signs(marked.text, link.source), _trim_signs(translation, link.target)) for link in links]
    words.sort(key=lambda link: link.target)
    root = Node(Mark(0, len(marked.text), depth=-1), marked.text, 0, len(translation))
    path = [root]
    for mark in marked.marks:
        del path[mark.depth + 1 :]
        path.append(Node(mark, marked.text))
        path[-2].children.append(path[-1])
    return MarkProjection(marked.text, translation).render(root, words)


class MarkProjection:
    """The transfer of a text's marks to its translation."""

    def __init__(self, source: str, translation: str):
        self._source, self._translation, self._lowered = source, translation, translation.lower()
        # (id of a node, kept text, whether case counts) -> the position from which to search the text next
        self._search_starts: dict[tuple[int, str, bool], int] = {}

    def render(self, node: Node, words: Sequence[WordLink], depth: int = 0) -> Marked:
        """The part of the translation that belongs to a placed node, with the marks within the node."""
        if not node.children:
            return Marked(self._translation[node.start : node.end])
        self._place_children(node, words)
        texts, marks, length, position = [""], list[Mark](), 0, node.start
        word_starts = [word.target[0] for word in words]

        def add(text: str) -> None:
            nonlocal length
            if text:
                texts.append(text)
                length += len(text)

        for child in sorted(node.children, key=lambda child: (child.start, child.end)):
            add(self._translation[position : child.start])
            position, is_point = child.end, child.start == child.end
            blank_behind = self._source.startswith(" ", child.mark.end)
            if is_point and texts[-1][-1:] not in ("", " ") and self._source.endswith(" ", 0, child.mark.start):
                add(" ")  # a mark between words has a blank before it if the text has one
                position += not blank_behind and self._translation.startswith(" ", position, node.end)
            lacks_blank = is_point and child.end < node.end and not self._translation.startswith(" ", position)
            if child.mark.keeps:
                inside = Marked(child.text)
                position += inside.text.isspace() and self._translation.startswith(" ", position, node.end)
            else:
                ends = child.start, child.end
                first, behind = (bisect_left(word_starts, end) if child.children else 0 for end in ends)
                inside = self.render(child, _clip_words(words[first:behind], child.end), depth + 1)
            marks.append(Mark(length, length + len(inside.text), child.mark.tag, child.mark.keeps, depth))
            marks += _shifted(inside.marks, length)
            add(inside.text)
            add(" " * (lacks_blank and blank_behind))
        add(self._translation[position : node.end])
        return Marked("".join(texts), tuple(marks))

    def _place_children(self, node: Node, words: Sequence[WordLink]) -> None:
        """Place each child of a node; no child overlaps another."""
        keeping = [child for child in node.children if child.keeps and child.text.strip()]
        for child in sorted(keeping, key=lambda child: -len(child.text)):  # a longer text may contain a shorter one
            self._place_kept(child, node, words)
        all_words, words = words, self._place_within_words(node, words)
        owners = self._owners(words, node)
        runs = dict[int, list[list[WordLink]]]()  # id of a child -> runs of its words
        for owner_id, run in groupby(zip(owners, words), key=lambda pair: id(pair[0])):
            runs.setdefault(owner_id, []).append([word for _, word in run])
        begin = node.mark.end - len(node.text.lstrip())  # [begin, end) of the node's text without blanks
        end = node.mark.start + len(node.text.rstrip())
        for child in node.children:
            if child.start >= 0 or child.mark.start == child.mark.end:
                continue
            if (begin >= end or child.mark.start <= begin and end <= child.mark.end) and not child.mark.keeps:
                child.start, child.end = node.start, node.end
            elif child_runs := runs.get(id(child)):
                self._place_around(child, max(child_runs, key=lambda run: run[-1].target[1] - run[0].target[0]), node)
        self._move_into_word_marks(node, owners, words)
        position_of = self._position_function(node, all_words)
        free_words = [word.target for word, owner in zip(words, owners) if owner is None]
        for child in node.children:
            if child.start < 0:
                child.start = child.end = position_of(child.mark)
                if free_words and not child.keeps and any(map(str.isalpha, child.text)):
                    following = bisect_left(free_words, (child.start,))
                    child.start, child.end = free_words.pop(min(following, len(free_words) - 1))

    def _place_within_words(self, node: Node, words: Sequence[WordLink]) -> list[WordLink]:
        """Place marks around digits or signs within a word, as in H2O, if the translated word has the same characters.

        Returns the words, each word with such a mark as several: the pieces before, in and after the mark.
        """
        pieces = {number: [word.target] for number, word in enumerate(words)}
        order = sorted(pieces, key=lambda number: words[number].source)
        ends = list(accumulate((words[number].source[1] for number in order), max))
        for child in node.children:
            start, end = child.mark.start, child.mark.end
            around = self._source[max(0, start - 1) : start] + self._source[end : end + 1]
            if child.start >= 0 or not child.text.strip() or any(map(str.isalpha, child.text)) or not around.strip():
                continue
            number = bisect_left(ends, start)
            while number < len(order) and child.start < 0 and words[order[number]].source[0] <= end:
                self._place_in_word(child, node, pieces[order[number]])
                number += 1
        return [word._replace(target=piece) for number, word in enumerate(words) for piece in pieces[number]]

    def _place_in_word(self, child: Node, node: Node, pieces: list[tuple[int, int]]) -> None:
        """Place a mark in the first piece of a translated word that has the mark's text, and split the piece there."""
        for number, (start, end) in enumerate(pieces):
            while number == len(pieces) - 1 and end < node.end and not self._translation[end].isspace():
                end += 1  # also the signs after the word
            position = self._translation.find(child.text, start, end)
            if position >= 0 and node.is_free(position, position + len(child.text)):
                node.place_child(child, position, position + len(child.text))
                parts = [(start, position), (position, child.end), (child.end, end)]
                pieces[number : number + 1] = [piece for piece in parts if piece[0] < piece[1]]
                return

    @staticmethod
    def _move_into_word_marks(node: Node, owners: Sequence[Node | None], words: Sequence[WordLink]) -> None:
        """Move each unplaced mark around a part of a word into the placed mark that owns the translated word."""
        owned = [(word, owner) for owner, word in zip(owners, words) if owner is not None and not owner.mark.keeps]
        owned.sort(key=lambda pair: pair[0].source)
        ends = [word.source[1] for word, _ in owned]
        remaining_children = list[Node]()
        for child in node.children:
            index = bisect_right(ends, child.mark.start)
            if child.start < 0 and index < len(owned) and _common_length(child.mark, owned[index][0]) > 0:
                owned[index][1].children.append(child)
            else:
                remaining_children.append(child)
        node.children = remaining_children

    def _place_kept(self, child: Node, node: Node, words: Sequence[WordLink]) -> None:
        """Place a keeping mark at the next free occurrence of its text, in another case if need be.

        A text that could be a word, such as the code ``a``, is placed only where a translated word attends to the mark.
        """
        text, may_be_word = child.text, child.text.isalpha() and child.text.islower()
        for as_written in (True, False):
            key = id(node), text, as_written
            occurrences = self._occurrences(text, as_written, self._search_starts.get(key, node.start), node.end)
            free_spans = ((start, start + len(text)) for start in occurrences if node.is_free(start, start + len(text)))
            spans = list(islice(free_spans, MOST_OCCURRENCES if may_be_word else 1))
            attending = (span for span in spans if self._attends(child.mark, *span, words))
            first = spans[0] if spans and (not may_be_word or len(text) >= LEAST_NAME_LETTERS) else None
            span = next(attending, first) if may_be_word else first
            if not spans or span == spans[0]:  # the next mark with the same text searches from here
                self._search_starts[key] = node.end if span is None else span[1]
            if span is not None:
                node.place_child(child, *span)
                return

    def _occurrences(self, text: str, as_written: bool, start: int, end: int) -> Iterator[int]:
        """The positions in [start, end) of the translation where a text occurs, but not as a part of a longer word."""
        translation = self._translation if as_written else self._lowered
        if not as_written and (len(self._lowered) != len(self._translation) or len(text) != len(text.lower())):
            return
        text = text if as_written else text.lower()
        joiners = "-" if text.isalpha() else ""
        while (position := translation.find(text, start, end)) >= 0:
            behind = position + len(text)
            before, after = translation[max(0, position - 1) : position], translation[behind : behind + 1]
            edges = (before, text[0]), (after, text[-1])
            if not any(edge.isalnum() and (outer.isalnum() or outer in ("_", *joiners)) for outer, edge in edges):
                yield position
            start = position + 1

    @staticmethod
    def _attends(mark: Mark, start: int, end: int, words: Sequence[WordLink]) -> bool:
        """Whether a translated word in [start, end) is linked to a source word of the mark."""
        index = bisect_right(words, start, key=lambda word: word.target[1])
        while index < len(words) and words[index].target[0] < end and _common_length(mark, words[index]) <= 0:
            index += 1
        return index < len(words) and words[index].target[0] < end

    @staticmethod
    def _owners(words: Sequence[WordLink], node: Node) -> list[Node | None]:
        """For each translated word, the child to which the word belongs, or None."""
        starts, ends = ([child.mark[end] for child in node.children] for end in (0, 1))  # children do not overlap
        span_ends = [end for _, end, _ in node.child_spans]
        owners = list[Node | None]()
        for word in words:
            source, target = word.source, word.target
            index = bisect_right(span_ends, target[0])
            if index < len(span_ends) and node.child_spans[index][0] < target[1]:
                owners.append(node.child_spans[index][2])
                continue
            first, end = bisect_right(ends, source[0]), bisect_left(starts, source[1])
            unplaced = [child for child in node.children[first:end] if child.start < 0]
            owner = max(unplaced, key=lambda child: _common_length(child.mark, word), default=None)
            owners.append(owner if owner and _common_length(owner.mark, word) > 0 else None)
        return owners

    def _place_around(self, child: Node, run: list[WordLink], node: Node) -> None:
        """Place a mark around a run of words; a keeping mark, around the words that are a part of the kept text."""
        text = child.text
        if child.mark.keeps:
            numbers = [number for number, word in enumerate(run) if self._is_part_of_kept(word, text)]
            if not numbers and not any(map(str.isalnum, text)):
                return
            run = run[numbers[0] : numbers[-1] + 1] if numbers else run[: len(text.split())]
        else:
            texts = [self._translation[slice(*word.target)] for word in run]
            numbers = [number for number, text in enumerate(texts) if any(map(str.isalnum, text))]
            run = run[numbers[0] : numbers[-1] + 1] if numbers else run  # a comma may attend to the next word
        start, end = run[0].target[0], run[-1].target[1]
        while not text[0].isalnum() and start > node.start and _is_sign(self._translation[start - 1]):
            start -= 1
        while not text[-1].isalnum() and end < node.end and _is_sign(self._translation[end]):
            end += 1
        child.start, child.end = start, end

    def _is_part_of_kept(self, word: WordLink, text: str) -> bool:
        """Whether a word's letters and digits are a part of a kept text; if it has none, whether the text has none."""
        letters = "".join(filter(str.isalnum, self._translation[slice(*word.target)])).lower()
        return letters in "".join(filter(str.isalnum, text)).lower() if letters else not any(map(str.isalnum, text))

    @staticmethod
    def _position_function(node: Node, words: Sequence[WordLink]) -> Callable[[Mark], int]:
        """Make a function: mark -> the position behind the translation of the word before it, outside placed marks."""
        words_by_end = sorted(words, key=lambda word: word.source[1])
        ends = [word.source[1] for word in words_by_end]
        spans = ((child.start, child.end) for child in node.children if child.start >= 0)
        child_spans = sorted(spans, key=lambda span: span[1])

        def position_of(mark: Mark) -> int:
            if mark.start >= node.mark.end:
                return node.end
            count = bisect_right(ends, mark.start)
            position = words_by_end[bisect_left(ends, ends[count - 1])].target[1] if count else node.start
            index = bisect_right(child_spans, position, key=lambda span: span[1])
            return child_spans[index][1] if index < len(child_spans) and child_spans[index][0] < position else position

        return position_of


def _clip_words(words: Sequence[WordLink], end: int) -> list[WordLink]:
    """The words, each cut at a position of the translation where a mark ends."""
    return [word if word.target[1] <= end else word._replace(target=(word.target[0], end)) for word in words]


def _common_length(mark: Mark, word: WordLink) -> int:
    return min(mark.end, word.source[1]) - max(mark.start, word.source[0])


def _is_sign(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


def _trim_signs(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """[start, end) of a word without the signs around it; unchanged if the word has signs alone."""
    positions = [position for position, sign in enumerate(text[slice(*span)], span[0]) if sign.isalnum()]
    return (positions[0], positions[-1] + 1) if positions else span
