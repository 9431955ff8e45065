"""Simple rules that find answers which are no translations. The rules change no answer."""

import difflib
import re
import unicodedata
from collections import Counter

from fastattn.text.languages import Language

# Remarks on an answer, and what each says.
REMARKS = {
    "empty": "the answer has no text",
    "echo": "the answer equals the source, resembles it closely, or contains it",
    "prompt": "the answer repeats the prompt",
    "explanation": "the answer speaks about the translation",
    "paragraphs": "the answer has several paragraphs, the source one",
    "quotes": "the answer stands in quotation marks, the source does not",
    "script": "most letters of the answer are of another script than the target language's",
    "cut": "the answer was cut at the greatest length",
}
_PREAMBLE = re.compile(
    r"\A\s*(?:(?:sure|certainly|of course|okay)\b[^\n]{0,80}[:!]"
    r"|(?:here(?:'s| is| are)|this is|the) (?:[\w']+ ){0,4}translat(?:ion|ed)\b[^\n]{0,60}(?::|\bis\b)|translation\s*:"
    r"|(?:以下|这)是[^\n]{0,20}(?:翻译|译文)|(?:翻译|译文)[^\n]{0,8}[:：])",
    re.IGNORECASE,
)
_NOTE = re.compile(
    r"\n[^\S\n]*(?:[(（\[*]{1,4} ?)?(?:note|explanation|translator'?s note|注|说明|解释|备注)\*{0,2} ?[:：]",
    re.IGNORECASE,
)
_BLANK_LINE = r"\n[^\S\n]*\n"
_QUOTES = ('""', "''", "“”", "‘’", "«»", "„“", "「」", "『』", "《》", "``")
LEAST_LETTERS, LEAST_WORDS = 8, 5  # texts with fewer get no remarks on their script, or on an echo
ECHO_SIMILARITY, ECHO_LENGTH = 0.9, 500  # an echo has more than this similarity in its first ECHO_LENGTH characters


def remarks(source: str, answer: str, languages: tuple[Language, Language], instruction: str = "") -> tuple[str, ...]:
    """The names from ``REMARKS`` that hold for an answer. ``instruction``: a line of the prompt around the source."""
    source_lang, target_lang = languages
    if not source.strip():
        return ()
    if not answer.strip():
        return ("empty",)
    names = []
    # In languages of one script a short text, such as a name, may be its own translation.
    may_be_equal = source_lang.scripts & target_lang.scripts and len(source.split()) < LEAST_WORDS
    if source_lang != target_lang and not may_be_equal and _is_echo(source, answer):
        names.append("echo")
    if len(instruction) >= LEAST_LETTERS and instruction in answer and instruction not in source:
        names.append("prompt")
    if any(pattern.search(answer) and not pattern.search(source) for pattern in (_PREAMBLE, _NOTE)):
        names.append("explanation")
    if re.search(_BLANK_LINE, answer.strip()) and not re.search(_BLANK_LINE, source.strip()):
        names.append("paragraphs")
    if _is_quoted(answer) and not _is_quoted(source):
        names.append("quotes")
    if _is_foreign(answer, target_lang):
        names.append("script")
    return tuple(names)


def _is_echo(source: str, answer: str) -> bool:
    source, answer = (re.sub(r"[\W_]+", "", text.casefold()) for text in (source, answer))
    if not source or source == answer:
        return bool(source)
    if len(source) >= LEAST_LETTERS and source in answer:
        return True
    if min(len(source), len(answer)) < ECHO_SIMILARITY * max(len(source), len(answer)) or len(source) < LEAST_LETTERS:
        return False
    return difflib.SequenceMatcher(None, source[:ECHO_LENGTH], answer[:ECHO_LENGTH], False).ratio() > ECHO_SIMILARITY


def _is_quoted(text: str) -> bool:
    text = text.strip()
    return (
        len(text) > 2 and text[0] + text[-1] in _QUOTES and not any(mark in text[1:-1] for mark in text[0] + text[-1])
    )


def _is_foreign(text: str, language: Language) -> bool:
    letters = Counter(filter(str.isalpha, text))
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "").partition(" ")[0]] += count
    language_letters = sum(scripts[script] for script in language.scripts)
    return scripts.total() >= LEAST_LETTERS and 2 * language_letters < scripts.total()
