"""Words that a full stop follows without ending a sentence, and words that begin one, by language (ISO 639-1).

Lower case, without the last full stop.
"""

from dataclasses import dataclass
from functools import cache

# Something always follows: a name, an example, a place.
BEFORE_NAMES = {
    "en": "mr mrs ms messrs dr prof gen sen rep gov capt cmdr col maj lt sgt cpl adm rev fr hon pres st mt ft vs v "
    "e.g i.e eg ie cf viz al ca c approx est dept univ assn bros",
    "pt": "sr sra srs srta dr dra drs prof profa eng arq gen cel cap sgt exmo exma ilmo av r pça ed ex p.ex cf vs "
    "apto tel pe d dom sto sta",
    "es": "sr sra srta sres dr dra prof profa gral col cap lic ing av avda c d dña p.ej ej cf vs apdo tel pág sto sta",
    "fr": "m mm mme mlle dr pr me mgr gén st ste cf vs p.ex ex av bd env éd",
    "de": "hr fr dr prof dipl ing st z.b d.h u.a bzw ca vgl sog inkl evtl ggf str nr mio mrd",
    "it": "sig sigg sig.ra dott dr prof avv ing gen col s ss es p.es cfr ecc v vs tel",
    "nl": "dhr mevr dr prof ir ing bijv d.w.z o.a ca vgl st",
}

# A number follows; without one, the sentence ends ("No.").
BEFORE_NUMBERS = {
    "en": "no nos p pp vol vols fig figs ch sec art eq ref para pt ed jan feb mar apr jun jul aug sep sept oct nov dec",
    "pt": "n nº num núm p pp pág págs vol fig cap art arts inc séc fls jan fev mar abr jun jul ago set out nov dez",
    "es": "n nº núm p pp pág págs vol fig cap art arts",
    "fr": "n nº p pp vol fig chap art",
    "de": "nr s bd abb kap art abs",
    "it": "n p pp pag pagg vol fig cap art artt",
    "nl": "nr blz p vol fig art",
}

# May end a sentence: it does where a word from SENTENCE_STARTS follows.
BEFORE_ANYTHING = {
    "en": "inc ltd co corp jr sr llc plc bros ave blvd rd ph.d b.a m.a",
    "pt": "ltda cia s.a jr",
    "es": "ltda cía s.a jr",
    "fr": "s.a cie",
    "de": "gmbh jr",
    "it": "s.p.a s.r.l jr",
    "nl": "b.v n.v",
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
}


# Where "3." is the third.
WITH_ORDINALS = frozenset("cs da de et fi hr hu is lv nb no pl sk sl sr tr".split())


@dataclass(frozen=True)
class Abbreviations:
    """The tables above for one language, or for all."""

    before_names: frozenset[str]
    before_numbers: frozenset[str]
    before_anything: frozenset[str]
    sentence_starts: frozenset[str]
    ordinals: bool


@cache
def abbreviations_of(language: str) -> Abbreviations:
    """The abbreviations of a language; of all languages where it is "" or has no table here."""
    return Abbreviations(
        before_names=_words(BEFORE_NAMES, language),
        before_numbers=_words(BEFORE_NUMBERS, language),
        before_anything=_words(BEFORE_ANYTHING, language),
        sentence_starts=_words(SENTENCE_STARTS, language),
        ordinals=language in WITH_ORDINALS,
    )


def _words(table: dict[str, str], language: str) -> frozenset[str]:
    chosen = [table[language]] if language in table else table.values()
    return frozenset(word for words in chosen for word in words.split())
