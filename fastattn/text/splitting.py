"""Splits texts into sentences, and into parts that fit a model; no character is lost."""

import re
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from fastattn.errors import InputError
from fastattn.text import check_text

# Abbreviations whose full stop need not end a sentence, and words that begin a sentence, by language (ISO 639-1): in
# lower case, without the last full stop. After BEFORE_NAMES a sentence always continues, with a name or an example.
BEFORE_NAMES = {
    "en": "mr mrs ms messrs dr prof gen sen rep gov capt cmdr col maj lt sgt cpl adm rev fr hon pres st mt ft vs v "
    "e.g i.e eg ie cf viz al ca c approx est dept univ assn bros",
    "pt": "sr sra srs srta dr dra drs prof profa eng arq gen cel cap sgt exmo exma ilmo av r pça ed ex p.ex cf vs "
    "apto tel pe d dom sto sta",
    "es": "sr sra srta sres dr dra prof profa gral col cap lic ing av avda c d dña p.ej ej cf vs apdo tel pág sto sta",
    "fr": "m mm mme mlle dr pr me mgr gén st ste cf vs p.ex ex av bd env éd",
    "de": "hr fr dr prof dipl ing st fa z d z.b d.h u.a bzw ca vgl sog inkl evtl ggf str nr mio mrd",
    "it": "sig sigg sig.ra dott dr prof avv ing gen col s ss es p.es cfr ecc v vs tel",
    "nl": "dhr mevr dr prof ir ing bijv d.w.z o.a ca vgl st",
    "ru": "ул д пл пр просп кв корп обл им св проф акад доц тов см рис стр г-н г-жа т т.е т.н",
    "el": "κ κα κος κκ δρ καθ αγ λεωφ π.χ λ.χ δηλ βλ",
    "hi": "डॉ प्रो श्री श्रीमती पं सुश्री",
    "ar": "د أ م",
}

# After these a sentence continues if a number follows; else it ends ("No.").
BEFORE_NUMBERS = {
    "en": "no nos rm p pp vol vols fig figs ch sec art eq ref para pt ed jan feb mar apr jun jul aug sep sept oct nov "
    "dec",
    "pt": "n nº num núm p pp pág págs vol fig cap art arts inc séc fls jan fev mar abr jun jul ago set out nov dez",
    "es": "n nº núm p pp pág págs vol fig cap art arts",
    "fr": "n nº p pp vol fig chap art",
    "de": "nr s bd abb kap art abs",
    "it": "n p pp pag pagg vol fig cap art artt",
    "nl": "nr blz p vol fig art",
    "ru": "д стр с рис т п гл ст кн",
    "el": "σελ εικ κεφ αρ τ",
}

# After these a sentence ends only if a word from SENTENCE_STARTS follows.
BEFORE_WORDS = {
    "en": "inc ltd co corp jr sr llc plc bros ave blvd rd ph.d b.a m.a",
    "pt": "ltda cia s.a jr",
    "es": "ltda cía s.a jr",
    "fr": "s.a cie",
    "de": "gmbh co jr",
    "it": "s.p.a s.r.l jr",
    "nl": "b.v n.v",
    "ru": "г гг в вв руб коп тыс млн млрд др",
    "el": "α.ε ε.π.ε",
}

SENTENCE_STARTS = {
    "en": "the a an he she it they we i you this that these those there his her their its my our your but and or so "
    "however then when while if after before in on at as for from to with by although because since what who why how "
    "where which most some all many not no now here also one",
    "pt": "o a os as um uma ele ela eles elas isso isto este esta esse essa mas e em no na nos nas para por quando se "
    "como depois antes quem que porém também não já há seu sua",
    "es": "el la los las un una él ella ellos esto este esta ese esa pero y en para por cuando si como después antes "
    "quien que también no ya hay su",
    "fr": "le la les l un une il elle ils elles on ce cette ces mais et en dans pour par quand si comme après avant "
    "qui que aussi je nous vous",
    "de": "der die das ein eine er sie es wir ich dies diese dieser aber und in im am für von wenn als wie nach vor "
    "wer was auch nicht",
    "it": "il lo la i gli le un una egli lui lei essi questo questa ma e in nel per da quando se come dopo prima chi "
    "che anche non",
    "nl": "de het een hij zij ze wij ik dit dat deze maar en in op voor van als wanneer na wie wat ook niet",
    "ru": "он она оно они мы я вы ты это этот эта эти тот но и а в на с по из за для от до что кто как когда где если "
    "потом теперь тогда его её их не",
    "el": "ο η το οι τα αυτός αυτή αυτό αλλά και με σε στο στη για από όταν αν πού τι ποιος δεν μετά τώρα",
}

# Languages in which "3." means the third.
ORDINAL_LANGUAGES = frozenset("cs da de et fi hr hu is lv nb no pl sk sl sr tr".split())


class Abbreviations(NamedTuple):
    """The words of each table above for one language, or for all languages."""

    before_names: frozenset[str]
    before_numbers: frozenset[str]
    before_words: frozenset[str]
    sentence_starts: frozenset[str]
    has_ordinals: bool


@cache
def abbreviations_of(language: str) -> Abbreviations:
    """The abbreviations of a language; from a table that lacks the language, the words of all languages."""
    tables = BEFORE_NAMES, BEFORE_NUMBERS, BEFORE_WORDS, SENTENCE_STARTS
    entries = ([table[language]] if language in table else table.values() for table in tables)
    words = [frozenset(" ".join(texts).split()) for texts in entries]
    return Abbreviations._make([*words, language in ORDINAL_LANGUAGES])


CLOSING = "\"'”’»›)\\]}」』）》】〕〉＂＇*_"
OPENING = "\"'“‘„‚«‹(\\[{「『（《【〔〈¿¡*_–—•-"
FULL_WIDTH = "。！？；｡"  # marks that end a sentence without a following space
SPACED_MARKS = ".!?…‼⁇⁈⁉।॥؟۔።။។։"  # marks that end a sentence before a space
CLAUSE_MARKS = ",;:，、：،"  # marks before which no sentence ends
NEWLINES = "\n\r\v\f\x85\u2028\u2029"

_CANDIDATE = re.compile(
    f"(?P<mark>[{FULL_WIDTH}{SPACED_MARKS}]+)(?P<close>[{CLOSING}]*(?:“(?=\\s))?)(?P<space>\\s*)|[{NEWLINES}]\\s*"
)
_GREEK_CANDIDATE = re.compile(_CANDIDATE.pattern.replace(SPACED_MARKS, f"{SPACED_MARKS};"))  # ; asks a question
# A sentence continues after a quotation with a Japanese particle, or a few Chinese characters that say who speaks.
_PARTICLE = re.compile("[とのがはをにもでや]")
_SPEAKER = re.compile("[^。！？；，：“”「」]{0,6}[说问問道喊叫答][^。！？；，：“”「」]{0,3}[。，！]")
_NEWLINE = re.compile(f"[{NEWLINES}]")
_NEXT_WORD = re.compile(f"[{OPENING}]{{0,8}}([^\\W_]{{0,24}})")
_LAST_WORD = re.compile(r"[^\s\"'“‘„«(\[{]+$")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")
_CLAUSE = f"[{CLAUSE_MARKS}；–—]"
# A long sentence is cut after clause marks that are full-width or have spaces after them; else after spaces; else after
# a character with its combining marks (accents, variation selectors, skin tones, joined characters); else anywhere.
_CUTS = (
    re.compile(f"(?<!{_CLAUSE})(?={_CLAUSE}*[，、：；]|{_CLAUSE}+[{CLOSING}]*\\s){_CLAUSE}+[{CLOSING}]*\\s*"),
    re.compile(r"\s+"),
    re.compile(
        "(?s:.)(?:[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31-\u0e4e"
        "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]|\u200d(?s:.))*"
    ),
    re.compile("(?s:.)"),
)

LONGEST_ABBREVIATION = 24


def split_sentences(text: str, language: str = "") -> list[str]:
    """The sentences of a text; joined, they are the text again.

    Spaces and newlines belong to the sentence before them, those at the start of the text to the first sentence. A
    newline ends a sentence. ``language`` (ISO 639-1) selects the abbreviations; "" selects those of all languages.
    Raises InputError for a lone surrogate.
    """
    check_text(text)
    abbreviations, quotes = abbreviations_of(language[:2].lower()), _Quotes(text)
    sentences, start = list[str](), 0
    text_start = len(text) - len(text.lstrip())  # so that no sentence has spaces alone
    candidate = _GREEK_CANDIDATE if language[:2].lower() == "el" else _CANDIDATE
    for match in candidate.finditer(text, text_start):
        end = match.end()
        if end == len(text):
            break
        if match["mark"] is None or _NEWLINE.search(match["space"]):
            boundary = end
        elif any(mark in FULL_WIDTH for mark in match["mark"]):
            boundary = _full_width_boundary(text, match, quotes)
        else:
            boundary = end if _ends_sentence(text, start, match, abbreviations) else 0
        if boundary:
            sentences.append(text[start:boundary])
            start = boundary
    return [*sentences, text[start:]] if start < len(text) else sentences


def split_to_fit(text: str, length_of: Callable[[str], int], limit: int, language: str = "") -> list[str]:
    """Parts of a text, each with ``length_of(part) <= limit``; joined, they are the text again.

    A text that fits stays whole; otherwise it is split into its sentences. A sentence that does not fit is split into
    parts of nearly equal length, at clauses if possible, else at words, else between characters.
    ``length_of`` counts tokens, special tokens included; it is also called with the empty text, and a few times for
    each part. Raises InputError if a single character is longer than ``limit``.
    """
    check_text(text)
    if not text:
        return []
    if length_of(text) <= limit:
        return [text]
    sentences = split_sentences(text, language)
    return [part for sentence in sentences for part in _split_evenly(sentence, length_of, limit, 0)]


class _Quotes:
    """Says whether a plain double quote is open at a position; positions must rise, so that the text is read once."""

    def __init__(self, text: str):
        self._text, self._position, self._is_open = text, 0, False

    def is_open_at(self, position: int) -> bool:
        newline = self._text.rfind("\n", self._position, position)
        if newline >= 0:
            self._is_open = False
        self._is_open ^= self._text.count('"', max(self._position, newline), position) % 2 == 1
        self._position = position
        return self._is_open


def _full_width_boundary(text: str, match: re.Match[str], quotes: _Quotes) -> int:
    """The position where a sentence ends after a full-width mark; 0 if the sentence continues."""
    if text[match.end()] in CLAUSE_MARKS + FULL_WIDTH + SPACED_MARKS:
        return 0
    may_be_speech = match["mark"][-1] in "！？"
    if match["close"] and (_PARTICLE.match(text, match.end()) or (may_be_speech and _SPEAKER.match(text, match.end()))):
        return 0
    if '"' in match["close"]:
        is_open = quotes.is_open_at(match.end("mark"))
        for position in range(match.start("close"), match.end("close")):
            if text[position] == '"':
                if not is_open:
                    return position  # this quote opens the next sentence
                is_open = False
    return match.end()


def _ends_sentence(text: str, start: int, match: re.Match[str], abbreviations: Abbreviations) -> bool:
    """Whether a mark such as a full stop ends a sentence that began at ``start``."""
    end = match.end()
    if not match["space"]:
        before = match.start() - 1
        is_in_ideographs = before >= start and _is_ideograph(text[before]) and _is_ideograph(text[end])
        return is_in_ideographs and (match["mark"] == "." or any(mark in "!?" for mark in match["mark"]))
    next_match = _NEXT_WORD.match(text, end)
    next_word = next_match[1] if next_match else ""
    if next_word[:1].islower():
        return False
    if match["mark"] != ".":
        return True
    last_match = _LAST_WORD.search(text, max(start, match.start() - LONGEST_ABBREVIATION), match.start())
    word = last_match[0] if last_match else ""
    lowered = word.lower()
    if lowered in abbreviations.before_names:
        return False
    if lowered in abbreviations.before_numbers and next_word[:1].isdigit():
        return False
    starts_sentence = next_word.lower() in abbreviations.sentence_starts
    if lowered in abbreviations.before_words or (len(word) == 1 and word.isupper()):
        return starts_sentence
    if _ACRONYM.fullmatch(word):
        return starts_sentence or word.islower()
    if abbreviations.has_ordinals and word.isdigit() and len(word) <= 2:
        return starts_sentence
    # Otherwise the full stop ends the sentence, except after the number of a list item: "1. Introduction".
    return not (word.isdigit() and len(word) <= 3 and text[start : match.start()].strip() == word)


def _is_ideograph(character: str) -> bool:
    return "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7af" or "\U00020000" <= character


def _split_evenly(text: str, length_of: Callable[[str], int], limit: int, level: int) -> list[str]:
    """Cut a sentence (level 0), clause (1), word (2) or character with its marks (3) into parts within ``limit``."""
    total = length_of(text)
    if total <= limit:
        return [text]
    if level == len(_CUTS):
        raise InputError(f"a character is {total} tokens long, but only {limit} fit")
    # a unit is the text between two offsets
    offsets = [0, *(match.end() for match in _CUTS[level].finditer(text) if match.end() < len(text)), len(text)]
    if len(offsets) == 2:
        return _split_evenly(text, length_of, limit, level + 1)
    parts: list[str] = []
    overhead = length_of("")  # the length of every part besides its text, such as an end token
    room = max(limit - overhead, 1)
    unit, remaining = 0, total - overhead  # the next part's first unit, by index; tokens from there on
    while unit < len(offsets) - 1:
        count = -(-remaining // room)  # of equal parts: 210 tokens at a limit of 200 become 105 and 105, not 200 and 10
        goal = min(overhead + -(-remaining // count), limit) if remaining > 0 else limit
        end, length = _find_end(text, offsets, unit, length_of, goal, limit)
        if end > unit:
            parts.append(text[offsets[unit] : offsets[end]])
            unit, remaining = end, remaining - (length - overhead)
        else:
            parts += _split_evenly(text[offsets[unit] : offsets[unit + 1]], length_of, limit, level + 1)
            unit, remaining = unit + 1, remaining - (length - overhead)
    return parts


def _find_end(
    text: str, offsets: list[int], unit: int, length_of: Callable[[str], int], goal: int, limit: int
) -> tuple[int, int]:
    """(end, length) of a part that begins at ``unit``; (``unit``, the unit's length) if the unit exceeds ``limit``.

    The part ends with the first unit by which it reaches ``goal``, or one unit earlier if it would exceed ``limit``.
    Interpolates by characters per token, then bisects, so that a part is measured only a few times.
    """
    low, low_length = unit, 0
    high, high_length = len(offsets), 0
    characters = 4 * goal
    for attempt in range(len(offsets)):
        if high - low <= 1:
            break
        if attempt < 4 or high == len(offsets):
            guess = bisect_left(offsets, offsets[unit] + characters)
        else:
            guess = (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
        length = length_of(text[offsets[unit] : offsets[guess]])
        if length >= goal:
            high, high_length = guess, length
        else:
            low, low_length = guess, length
        if low == len(offsets) - 1:
            break
        width = offsets[guess] - offsets[unit]
        characters = min(2 * width + 4, width * goal // max(length, 1) + 1)
    if high < len(offsets) and high_length <= limit:
        return high, high_length
    return (low, low_length) if low > unit else (unit, high_length)
