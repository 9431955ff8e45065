"""Terminology: a glossary's translations of terms, enforced by target prefixes that end in a term's translation."""

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, NamedTuple

from fastattn.errors import FastattnError, InputError, check_text
from fastattn.system.records import dataclass
from fastattn.text.invariants import ICU_MESSAGE, INVARIANT, branch_spans
from fastattn.text.splitting import split_sentences
from fastattn.text.translation import SPACELESS_SCRIPTS, is_spaceless
from fastattn.translation.alignment import word_links
from fastattn.translation.calls import ChainedTranslation, Translation
from fastattn.translation.streamed import StreamCall, StreamedTranslator

# A letter or digit of a script with blanks between words. In other scripts a word may stand beside any character.
SPACED_LETTER = r"[^\W{}]".format("".join(f"{first}-{last}" for first, last in SPACELESS_SCRIPTS))
# A term begins and ends in a sign, also in "_", or in a SPACED_LETTER without another one beside it.
WORD_START = f"(?:(?!{SPACED_LETTER})|(?=_)|(?<!{SPACED_LETTER}))"
WORD_END = f"(?:(?<!{SPACED_LETTER})|(?<=_)|(?!{SPACED_LETTER}))"
REFUSED_OPTIONS = ("target_prefix", "num_hypotheses", "callback")  # options that a call cannot set


class Term(NamedTuple):
    """A term at [start, end) of a text, and the translation that it should have."""

    start: int
    end: int
    translation: str


@dataclass
class TermSentence:
    """A sentence with terms, its options, and its translation, once there is one.

    attempts  how many times the sentence has been decoded with a term
    """

    text: str
    terms: list[Term]
    options: dict[str, Any]
    translation: Any = None
    attempts: int = 0


class GlossaryTranslator(StreamedTranslator):
    """Translates terms as a glossary says; ``Translator.with_glossary`` makes it.

    translator  a Translator
    glossary    term -> translation. A term in lower case matches in any case, as a whole word
    keep        regular expressions of text that stays untranslated
    placeholders  whether INVARIANT is one of these; of an ICU message the branches are translated

    A sentence whose translation lacks a term's translation is decoded again, with a target prefix: the old translation
    up to the position to which the model's alignment links the term, then the term's translation. (Hokamp and Liu 2017
    constrain a beam; here the position is known, and one search a term is enough.) If the vocabulary cannot write a
    term's translation, it is put into the text afterwards. Texts without terms get the same bits as without a glossary.
    Raises InputError for target_prefix, callback and several hypotheses.
    """

    def __init__(
        self,
        translator: Any,
        glossary: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        placeholders: bool = False,
    ):
        super().__init__(translator)
        self._placeholders = placeholders
        terms: dict[str, str] = {}
        for term, translation in (glossary or {}).items():
            if not check_text("a term", term).strip() or not check_text("a term's translation", translation).strip():
                raise InputError("a glossary's terms and their translations should not be empty")
            terms[term.strip()] = translation.strip()
        self._keep = [INVARIANT] if placeholders else []
        for pattern in keep:
            try:
                self._keep.append(re.compile(pattern))
            except re.error as error:
                raise InputError(f"what to keep should be a regular expression, {pattern!r} is none: {error}") from None
        # Longer terms first, and terms with capitals before terms that match in any case; each is a group of a pattern.
        ordered_terms = sorted(terms, key=lambda term: (-len(term), term == term.lower()))
        self._translations = [terms[term] for term in ordered_terms]
        # The checks of words' ends, whose classes compile slowly, stand once around all terms.
        patterns = (f"(?i:{re.escape(term)})" if term == term.lower() else re.escape(term) for term in ordered_terms)
        alternatives = "|".join(f"({pattern})" for pattern in patterns) or r"(?!)"
        self._pattern = re.compile(f"{WORD_START}(?:{alternatives}){WORD_END}")

    def _check(self, options: dict[str, Any]) -> None:
        for name in REFUSED_OPTIONS:
            if options.get(name, 1) not in (None, 1):
                raise InputError(f"{name} cannot be combined with a glossary")

    def _translate_window(self, texts: list[str], call: StreamCall, values: list[dict[str, Any]]) -> list[Any]:
        with_terms = {
            b: self._term_sentences(text, values[b])
            for b, text in enumerate(texts)
            if isinstance(text, str) and self._find_terms(text)
        }
        without_terms = [b for b in range(len(texts)) if b not in with_terms]
        options = call.options_for([values[b] for b in without_terms]) | {"details": True, "return_exceptions": True}
        answers = iter(self._translator.translate_iter([texts[b] for b in without_terms], **options))
        pieces = chain.from_iterable(with_terms.values())
        self._decode([piece for piece in pieces if isinstance(piece, TermSentence)], call)
        return [_join_pieces(with_terms[b]) if b in with_terms else next(answers) for b in range(len(texts))]

    def _term_sentences(self, text: str, values: dict[str, Any]) -> list[Any]:
        """The TermSentences of a text, and what stands between them; ``values``: the text's values of ``per_text``."""
        pieces: list[Any] = []
        if self._placeholders and ICU_MESSAGE.fullmatch(text.strip()):
            end = 0
            for start, branch_end in branch_spans(text):
                pieces += [text[end:start], *self._term_sentences(text[start:branch_end], values)]
                end = branch_end
            return [*pieces, text[end:]]
        for sentence in split_sentences(check_text("a text", text)):
            words = sentence.strip()
            blanks = sentence[: len(sentence) - len(sentence.lstrip())]
            term_sentence = TermSentence(words, self._find_terms(words), values)
            pieces += [blanks, term_sentence, sentence[len(blanks) + len(words) :]]
        return pieces

    def _find_terms(self, text: str) -> list[Term]:
        """The terms of a text, and the matches of ``keep`` as Terms, in order; a match precedes a term at its start."""
        untranslated = [Term(*match.span(), match[0]) for pattern in self._keep for match in pattern.finditer(text)]
        terms = [
            Term(*match.span(), self._translations[match.lastindex - 1])
            for match in self._pattern.finditer(text)
            if match.lastindex
        ]
        if terms:  # without terms in invariants, such as addresses
            invariants = [match.span() for match in INVARIANT.finditer(text)]
            ends = [end for _, end in invariants]
            following = [bisect_right(ends, term.start) for term in terms]
            terms = [term for term, n in zip(terms, following) if n == len(invariants) or invariants[n][0] >= term.end]
        chosen, end = list[Term](), 0
        for term in sorted(untranslated + terms, key=lambda term: term.start):
            if end <= term.start < term.end:
                chosen.append(term)
                end = term.end
        return chosen

    def _decode(self, sentences: list[TermSentence], call: StreamCall) -> None:
        """Translate sentences, then decode sentences that lack terms again, one term at a time."""
        details = {"details": True, "return_attention": True, "return_exceptions": True}
        prefixes: list[Any] = [None] * len(sentences)
        while sentences:
            options = call.options_for([sentence.options for sentence in sentences]) | details
            options |= {"target_prefix": prefixes} if any(prefixes) else {}
            answers = self._translator.translate_iter([sentence.text for sentence in sentences], **options)
            to_decode = []
            for sentence, answer in zip(sentences, list(answers)):
                sentence.translation = answer
                if not isinstance(answer, FastattnError) and (prefix := _prefix_with_term(sentence)) is not None:
                    to_decode.append((sentence, prefix))
            sentences, prefixes = [sentence for sentence, _ in to_decode], [prefix for _, prefix in to_decode]


def _prefix_with_term(sentence: TermSentence) -> Any:
    """The target prefix that ends in the first missing term; None if none is missing, or all are put into the text."""
    translated = sentence.translation.text
    missing_terms = _missing_terms(sentence.terms, translated)
    if not missing_terms:
        return None
    spans = sorted((_target_span(sentence, term), term) for term in missing_terms)
    (start, end), term = spans[0]
    if sentence.attempts < 2 * len(sentence.terms):
        sentence.attempts += 1
        return _join_words(translated[:start], term.translation)
    for (start, end), term in reversed(spans):
        translated = _join_words(_join_words(translated[:start], term.translation), translated[end:])
    sentence.translation = replace(sentence.translation, text=translated, hypotheses=[translated])
    return None


def _join_words(left: str, right: str) -> str:
    """Both texts, with a blank between them where two words would become one."""
    needs_blank = left[-1:].isalnum() and right[:1].isalnum() and not is_spaceless(right[0])
    return f"{left} {right}" if needs_blank else left + right


def _missing_terms(terms: Sequence[Term], translated: str) -> list[Term]:
    """The terms whose translations occur less often in ``translated`` than the terms in the source text."""
    missing, counts = [], {term.translation: _count(term.translation, translated) for term in terms}
    for term in terms:
        if counts[term.translation] < 1:
            missing.append(term)
        counts[term.translation] -= 1
    return missing


def _count(translation: str, text: str) -> int:
    """How often a text has a term's translation, perhaps with an ending of two letters; in any case if lower-case.

    A single letter may have no ending: "a" is not in "as", nor "I" in "It".
    """
    start, end = _boundaries(translation, f"(?!{SPACED_LETTER}{{{3 if len(translation) > 1 else 1}}})")
    flags = re.IGNORECASE if translation == translation.lower() else 0
    return len(re.findall(start + re.escape(translation) + end, text, flags))


def _boundaries(term: str, lookahead: str) -> tuple[str, str]:
    """Patterns before and behind a term, the second ``lookahead``; "" beside signs and scripts without blanks."""
    first_is_spaced, last_is_spaced = (char.isalnum() and not is_spaceless(char) for char in (term[0], term[-1]))
    return f"(?<!{SPACED_LETTER})" if first_is_spaced else "", lookahead if last_is_spaced else ""


def _target_span(sentence: TermSentence, term: Term) -> tuple[int, int]:
    """[start, end) of a term's translation by the alignment: the longest run of words that attend to the term."""
    links = sorted(word_links(sentence.text, sentence.translation), key=lambda link: link.target)
    groups = groupby(links, key=lambda link: link.source[0] < term.end and term.start < link.source[1])
    runs = [list(run) for attends, run in groups if attends]
    if runs:
        return max(((run[0].target[0], run[-1].target[1]) for run in runs), key=lambda span: span[1] - span[0])
    position = max((link.target[1] for link in links if link.source[1] <= term.start), default=0)
    return position, position


def _join_pieces(pieces: list[Any]) -> Any:
    """A text's Translation, joined from its sentences, or their first error."""
    translations = [piece if isinstance(piece, str) else piece.translation for piece in pieces]
    error = next((piece for piece in translations if isinstance(piece, FastattnError)), None)
    if error is not None:
        return error
    joined = _concatenate(translations)
    first_translations = [piece if isinstance(piece, str) else getattr(piece, "first", None) for piece in translations]
    if None in first_translations or all(isinstance(piece, str) for piece in first_translations):
        return joined
    first = _concatenate(first_translations)
    return ChainedTranslation(joined.text, joined.hypotheses, joined.scores, joined.parts, [first.text], first)


def _concatenate(translations: Sequence[Any]) -> Translation:
    """One Translation of the Translations of a text's sentences, and the blanks between them."""
    text = "".join(piece if isinstance(piece, str) else piece.text for piece in translations)
    sentences = [piece for piece in translations if not isinstance(piece, str)]
    score = sum(piece.scores[0] for piece in sentences if piece.scores)
    parts = [part for piece in sentences for part in piece.parts]
    return Translation(text, [text], [score if math.isfinite(score) else -math.inf], parts)
