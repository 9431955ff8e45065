"""Terminology: words that come out as asked, by decoding with them in place; everything else as without."""

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fastattn.errors import FastattnError, InputError, check_text
from fastattn.system.records import dataclass
from fastattn.text.kept import KEPT
from fastattn.text.splitting import split_sentences
from fastattn.text.translation import SPACELESS_SCRIPTS, is_spaceless
from fastattn.translation.alignment import word_links
from fastattn.translation.calls import ChainedTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator

# A letter or digit of a script with blanks between words: in the others a word may stand beside any sign.
SPACED = r"[^\W{}]".format("".join(f"{first}-{last}" for first, last in SPACELESS_SCRIPTS))
TOOK = ("target_prefix", "num_hypotheses", "callback")  # what a term's decoding has a use of its own for


class Term(NamedTuple):
    """[start, end) of a text, and what its translation should say there."""

    start: int
    end: int
    wanted: str


@dataclass
class TermSentence:
    """A sentence with terms on its way."""

    text: str
    terms: list[Term]
    own: dict[str, Any]
    found: Any = None
    tried: int = 0


class GlossaryTranslator(StreamedTranslator):
    """Translates so that terms come out as asked; ``Translator.with_glossary`` makes it.

    translator  a Translator
    glossary    term -> translation. A term in lower case is found in any case, as a word of its own
    keep        regular expressions of what stays as it is

    A sentence whose translation lacks a term's is decoded again: up to where the term's own translation begins, by the
    model's alignment, the target is what it was, then comes the wanted one, then what the model says next (Hokamp and
    Liu 2017 constrain a beam so; here the place is known beforehand, and one search a term does). What the vocabulary
    cannot write is put in afterwards. Texts without terms have the bits that they have without a glossary.
    target_prefix, callback and several hypotheses cannot be asked for.
    """

    def __init__(self, translator: Any, glossary: Mapping[str, str] | None = None, keep: Sequence[str] = ()):
        super().__init__(translator)
        terms: dict[str, str] = {}
        for term, wanted in (glossary or {}).items():
            if not check_text("a term", term).strip() or not check_text("a term's translation", wanted).strip():
                raise InputError("a glossary's terms and their translations should not be empty")
            terms[term.strip()] = wanted.strip()
        self._keep = list[re.Pattern[str]]()
        for pattern in keep:
            try:
                self._keep.append(re.compile(pattern))
            except re.error as error:
                raise InputError(f"what to keep should be a regular expression, {pattern!r} is none: {error}") from None
        # Longer terms first, and what is in capitals before what is in any case; a group each.
        ordered = sorted(terms, key=lambda term: (-len(term), term == term.lower()))
        self._wanted = [terms[term] for term in ordered]
        self._pattern = re.compile("|".join(f"({_as_word(term)})" for term in ordered) or r"(?!)")

    def _check(self, options: dict[str, Any]) -> None:
        for name in TOOK:
            if options.get(name, 1) not in (None, 1):
                raise InputError(f"{name} cannot be combined with a glossary")

    def _translated(self, texts: list[str], call: StreamCall, own: list[dict[str, Any]]) -> list[Any]:
        with_terms = {
            b: self._sentences(text, own[b])
            for b, text in enumerate(texts)
            if isinstance(text, str) and self._terms(text)
        }
        plain = [b for b in range(len(texts)) if b not in with_terms]
        options = call.of([own[b] for b in plain]) | {"details": True, "return_exceptions": True}
        answers = iter(self._translator.translate_iter([texts[b] for b in plain], **options))
        self._decode([one for found in with_terms.values() for one in found if isinstance(one, TermSentence)], call)
        return [_joined(with_terms[b]) if b in with_terms else next(answers) for b in range(len(texts))]

    def _sentences(self, text: str, own: dict[str, Any]) -> list[Any]:
        """The sentences of a text, with its own options, and the blanks between them."""
        found: list[Any] = []
        for sentence in split_sentences(check_text("a text", text)):
            words = sentence.strip()
            before = sentence[: len(sentence) - len(sentence.lstrip())]
            found += [before, TermSentence(words, self._terms(words), own), sentence[len(before) + len(words) :]]
        return found

    def _terms(self, text: str) -> list[Term]:
        """What of a text is kept or a term, from its beginning on; what is kept comes first where both begin."""
        kept = [Term(*match.span(), match[0]) for one in self._keep for match in one.finditer(text)]
        terms = [
            Term(*match.span(), self._wanted[match.lastindex - 1])
            for match in self._pattern.finditer(text)
            if match.lastindex
        ]
        if terms:  # what stands for itself, such as an address, has none
            itself = [match.span() for match in KEPT.finditer(text)]
            ends = [end for _, end in itself]
            behind = [bisect_right(ends, term.start) for term in terms]
            terms = [term for term, n in zip(terms, behind) if n == len(itself) or itself[n][0] >= term.end]
        found, at = list[Term](), 0
        for term in sorted(kept + terms, key=lambda one: one.start):
            if at <= term.start < term.end:
                found.append(term)
                at = term.end
        return found

    def _decode(self, sentences: list[TermSentence], call: StreamCall) -> None:
        """Translate sentences, then each that lacks a term again with it in place, until none does."""
        told = {"details": True, "return_attention": True, "return_exceptions": True}
        waiting, prefixes = sentences, [None] * len(sentences)
        while waiting:
            prefix = {"target_prefix": prefixes} if any(prefixes) else {}
            options = call.of([one.own for one in waiting]) | told | prefix
            answers = self._translator.translate_iter([one.text for one in waiting], **options)
            further = []
            for one, answer in zip(waiting, list(answers)):
                one.found = answer
                if not isinstance(answer, FastattnError) and (cut := _cut(one)) is not None:
                    further.append((one, cut))
            waiting, prefixes = [one for one, _ in further], [cut for _, cut in further]


def _cut(one: TermSentence) -> Any:
    """What the translation should begin with to have the first term that it lacks; None where it has them all."""
    written = one.found.text
    lacking = _lacking(one.terms, written)
    if not lacking:
        return None
    spans = sorted((_span(one, term), term) for term in lacking)
    (start, end), term = spans[0]
    if one.tried < 2 * len(one.terms):
        one.tried += 1
        return _apart(written[:start], term.wanted)
    for (start, end), term in reversed(spans):
        written = _apart(_apart(written[:start], term.wanted), written[end:])
    one.found = replace(one.found, text=written, hypotheses=[written])
    return None


def _as_word(term: str) -> str:
    """A pattern of a term: where scripts have blanks between words, not as a part of one."""
    before, behind = _edges(term, f"(?!{SPACED})")
    pattern = re.escape(term)
    return f"{before}(?i:{pattern}){behind}" if term == term.lower() else f"{before}{pattern}{behind}"


def _apart(before: str, behind: str) -> str:
    """Both, with a blank between words that would be one."""
    joins = before[-1:].isalnum() and behind[:1].isalnum() and not is_spaceless(behind[0])
    return f"{before} {behind}" if joins else before + behind


def _lacking(terms: Sequence[Term], written: str) -> list[Term]:
    """The terms whose translation is not there so often as it should be."""
    lacking, counts = [], {term.wanted: _count(term.wanted, written) for term in terms}
    for term in terms:
        if counts[term.wanted] < 1:
            lacking.append(term)
        counts[term.wanted] -= 1
    return lacking


def _count(wanted: str, written: str) -> int:
    """How often something is written, perhaps with an ending of two letters; in capitals too if asked for without.

    One letter has no ending: "a" is not in "as", nor "I" in "It".
    """
    before, behind = _edges(wanted, f"(?!{SPACED}{{3}})" if len(wanted) > 1 else f"(?!{SPACED})")
    flags = re.IGNORECASE if wanted == wanted.lower() else 0
    return len(re.findall(before + re.escape(wanted) + behind, written, flags))


def _edges(term: str, behind: str) -> tuple[str, str]:
    """Patterns of what may not stand around a term, where its script has blanks between words."""
    first, last = (one.isalnum() and not is_spaceless(one) for one in (term[0], term[-1]))
    return f"(?<!{SPACED})" if first else "", behind if last else ""


def _span(one: TermSentence, term: Term) -> tuple[int, int]:
    """Where the translation has a term's, by its alignment: the longest run of words that look at the term."""
    links = sorted(word_links(one.text, one.found), key=lambda link: link.target)
    runs, before = list[list[int]](), False
    for link in links:
        looks = link.source[0] < term.end and term.start < link.source[1]
        if looks and before:
            runs[-1][1] = link.target[1]
        elif looks:
            runs.append(list(link.target))
        before = looks
    if runs:
        start, end = max(runs, key=lambda run: run[1] - run[0])
        return start, end
    behind = [link.target[1] for link in links if link.source[1] <= term.start]
    at = max(behind, default=0)
    return at, at


def _joined(found: list[Any]) -> Any:
    """A text's Translation of its sentences', or the first error."""
    translations = [one if isinstance(one, str) else one.found for one in found]
    error = next((one for one in translations if isinstance(one, FastattnError)), None)
    if error is not None:
        return error
    joined = _in_a_row(translations)
    firsts = [one if isinstance(one, str) else getattr(one, "first", None) for one in translations]
    if None in firsts or all(isinstance(one, str) for one in firsts):
        return joined
    between = _in_a_row(firsts)
    return ChainedTranslation(joined.text, joined.hypotheses, joined.scores, joined.parts, [between.text], between)


def _in_a_row(translations: Sequence[Any]) -> Translation:
    """One translation of several, and of what stands between them."""
    text = "".join(one if isinstance(one, str) else one.text for one in translations)
    made = [one for one in translations if not isinstance(one, str)]
    score = sum(one.scores[0] for one in made if one.scores)
    parts = [part for one in made for part in one.parts]
    return Translation(text, [text], [score if math.isfinite(score) else -math.inf], parts)
