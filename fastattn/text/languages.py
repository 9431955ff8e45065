"""Languages: their codes and names, their tokens in multilingual models, and the detection of a text's language.

py3langid detects 97 languages, 139 since version 0.4 (Lui and Baldwin 2012).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from fastattn.errors import InputError, check_text
from fastattn.spec.text_spec import LanguageTokens, TranslationText
from fastattn.system.records import dataclass

# The first words of letters' Unicode names -> the languages with such letters: ISO 639-1 and 639-3 codes, English name,
# Chinese name. "": languages of multilingual models, without letters and Chinese names.
_TABLE = {
    "LATIN": """af,afr Afrikaans 南非荷兰语; ca,cat Catalan 加泰罗尼亚语; cs,ces Czech 捷克语; da,dan Danish 丹麦语;
de,deu,ger German 德语; en,eng English 英语; es,spa Spanish 西班牙语; et,est,ekk Estonian 爱沙尼亚语;
fi,fin Finnish 芬兰语; fr,fra,fre French 法语; ga,gle Irish 爱尔兰语; gl,glg Galician 加利西亚语;
hr,hrv Croatian 克罗地亚语; hu,hun Hungarian 匈牙利语; id,ind,in Indonesian 印尼语; is,isl Icelandic 冰岛语;
it,ita Italian 意大利语; lt,lit Lithuanian 立陶宛语; lv,lav,lvs Latvian 拉脱维亚语; ms,msa,zsm Malay 马来语;
mt,mlt Maltese 马耳他语; nl,nld,dut Dutch 荷兰语; no,nor,nob,nb Norwegian 挪威语; pl,pol Polish 波兰语;
pt,por Portuguese 葡萄牙语; ro,ron Romanian 罗马尼亚语; sk,slk Slovak 斯洛伐克语; sl,slv Slovenian 斯洛文尼亚语;
sv,swe Swedish 瑞典语; sw,swh,swa Swahili 斯瓦希里语; tl,tgl,fil Filipino 菲律宾语; tr,tur Turkish 土耳其语;
vi,vie Vietnamese 越南语""",
    "ARABIC": "ar,arb,ara Arabic 阿拉伯语; fa,fas,pes Persian 波斯语; ug,uig Uyghur 维吾尔语; ur,urd Urdu 乌尔都语",
    "CYRILLIC": "bg,bul Bulgarian 保加利亚语; kk,kaz Kazakh 哈萨克语; ru,rus Russian 俄语; uk,ukr Ukrainian 乌克兰语",
    "BENGALI": "bn,ben Bengali 孟加拉语",
    "TIBETAN": "bo,bod Tibetan 藏语",
    "GREEK": "el,ell Greek 希腊语",
    "GUJARATI": "gu,guj Gujarati 古吉拉特语",
    "HEBREW": "he,heb,iw Hebrew 希伯来语",
    "DEVANAGARI": "hi,hin Hindi 印地语; mr,mar Marathi 马拉地语",
    "CJK,HIRAGANA,KATAKANA": "ja,jpn Japanese 日语",
    "KHMER": "km,khm Khmer 高棉语",
    "HANGUL,CJK": "ko,kor Korean 韩语",
    "CYRILLIC,MONGOLIAN": "mn,mon,khk Mongolian 蒙古语",
    "MYANMAR": "my,mya Burmese 缅甸语",
    "CYRILLIC,LATIN": "sr,srp Serbian 塞尔维亚语",
    "TAMIL": "ta,tam Tamil 泰米尔语",
    "TELUGU": "te,tel Telugu 泰卢固语",
    "THAI": "th,tha Thai 泰语",
    "CJK": """yue,zh-yue,yue-hant Cantonese 粤语; zh,zho,chi,cmn,zh-hans,zh-cn,zh-sg,zho-hans,cmn-hans Chinese 中文;
zh-Hant,zh-tw,zh-hk,zho-hant,cmn-hant Traditional Chinese 繁体中文""",
    "": """
ace Acehnese; acm Mesopotamian Arabic; acq Ta'izzi-Adeni Arabic; aeb Tunisian Arabic; ajp South Levantine Arabic;
ak,aka Akan; am,amh Amharic; apc North Levantine Arabic; ars Najdi Arabic; ary Moroccan Arabic; arz Egyptian Arabic;
as,asm Assamese; ast Asturian; awa Awadhi; ay,ayr,aym Aymara; azb South Azerbaijani; az,azj,aze Azerbaijani;
ba,bak Bashkir; bm,bam Bambara; ban Balinese; be,bel Belarusian; bem Bemba; bho Bhojpuri; bjn Banjar; br,bre Breton;
bs,bos Bosnian; bug Buginese; ceb Cebuano; cjk Chokwe; ckb Central Kurdish; co,cos Corsican; crh Crimean Tatar;
cv,chv Chuvash; cy,cym,wel Welsh; dik Southwestern Dinka; dv,div Dhivehi; dyu Dyula; dz,dzo Dzongkha; ee,ewe Ewe;
eo,epo Esperanto; eu,eus,baq Basque; fj,fij Fijian; fo,fao Faroese; fon Fon; fur Friulian; ff,fuv,ful Fulah;
fy,fry Western Frisian; gd,gla Scottish Gaelic; gn,grn Guarani; ha,hau Hausa; haw Hawaiian; hmn Hmong;
hne Chhattisgarhi; ht,hat Haitian Creole; hy,hye,arm Armenian; ig,ibo Igbo; ilo Ilocano; jv,jav,jw Javanese;
ka,kat,geo Georgian; kab Kabyle; kac Jingpho; kam Kamba; kbp Kabiye; kea Kabuverdianu; kg,kon Kikongo; ki,kik Kikuyu;
kmb Kimbundu; kn,kan Kannada; kr,knc,kau Kanuri; ks,kas Kashmiri; ku,kmr,kur Northern Kurdish; ky,kir Kyrgyz;
la,lat Latin; lb,ltz Luxembourgish; lg,lug Ganda; li,lim Limburgish; lij Ligurian; lmo Lombard; ln,lin Lingala;
lo,lao Lao; ltg Latgalian; lua Luba-Kasai; luo Luo; lus Mizo; mag Magahi; mai Maithili; mg,plt,mlg Malagasy;
mi,mri,mao Maori; min Minangkabau; mk,mkd,mac Macedonian; ml,mal Malayalam; mni Meitei; mos Mossi;
ne,npi,nep Nepali; nn,nno Norwegian Nynorsk; ns,nso Northern Sotho; nus Nuer; ny,nya Nyanja; oc,oci Occitan;
om,gaz,orm Oromo; or,ory,ori Odia; os,oss Ossetian; pa,pan Punjabi; pag Pangasinan; pap Papiamento; prs Dari;
ps,pbt,pus Pashto; qu,quy,que Quechua; rn,run Rundi; rw,kin Kinyarwanda; sa,san Sanskrit; sat Santali; sc,srd Sardinian;
scn Sicilian; sd,snd Sindhi; sg,sag Sango; shn Shan; si,sin Sinhala; sm,smo Samoan; sn,sna Shona; so,som Somali;
sq,als,sqi,alb Albanian; ss,ssw Swati; st,sot Southern Sotho; su,sun Sundanese; szl Silesian; taq Tamasheq;
tg,tgk Tajik; ti,tir Tigrinya; tk,tuk Turkmen; tn,tsn Tswana; to,ton Tongan; tpi Tok Pisin; ts,tso Tsonga;
tt,tat Tatar; tum Tumbuka; tw,twi Twi; tzm Central Atlas Tamazight; umb Umbundu; uz,uzn,uzb Uzbek; vec Venetian;
war Waray; wo,wol Wolof; xh,xho Xhosa; yi,ydd,yid,ji Yiddish; yo,yor Yoruba; zu,zul Zulu""",
}


@dataclass(frozen=True)
class Language:
    code: str  # ISO 639-1 if there is such a code, with a script where scripts differ
    name: str  # in English
    chinese: str  # the name in Chinese, else in English
    scripts: frozenset[str] = frozenset()  # the first words of the letters' Unicode names; empty: unknown

    @property
    def is_chinese(self) -> bool:
        """Whether prompts for the language are in Chinese."""
        return self.code in ("zh", "zh-Hant", "yue")


def _read_table() -> dict[str, Language]:
    table = dict[str, Language]()
    for scripts, languages in _TABLE.items():
        for entry in " ".join(languages.split()).split("; "):
            codes, _, name = entry.partition(" ")
            name, chinese = (name, name) if name.isascii() else name.rsplit(" ", 1)
            language = Language(codes.split(",")[0], name, chinese, frozenset(filter(None, scripts.split(","))))
            table |= dict.fromkeys((*codes.lower().split(","), name.lower()), language)
    return table


_LANGUAGES = _read_table()  # code or English name, in lower case -> language
SCRIPT_LETTERS = 4  # of a script's code, such as Latn
TRADITIONAL_REGIONS = frozenset({"tw", "hk", "mo"})  # regions that write Chinese in traditional characters
MOST_NAMED = 6  # languages in a message


def _normalize(code: str) -> str:
    return code.lower().replace("_", "-").strip(" -")


def _lookup(code: str) -> Language | None:
    """The language of a normalized code or name; a script, or a region that implies a script, selects a variant."""
    primary, *subtags = code.split("-")
    match = _LANGUAGES.get(code) or _LANGUAGES.get(primary)
    if match is None or code in _LANGUAGES:
        return match
    script = _script(code) or "hant" * bool(TRADITIONAL_REGIONS & {*subtags})
    return _LANGUAGES.get(f"{match.code}-{script}", match)


def _script(code: str) -> str:
    """The script in a normalized code (latn), or ""."""
    return next((tag for tag in code.split("-")[1:] if len(tag) == SCRIPT_LETTERS and tag.isalpha()), "")


def name_of(code: str) -> str:
    """The English name of a code's language; the code itself if the language is unknown."""
    match = _lookup(_normalize(code))
    return code if match is None else match.name


def language(name: str) -> Language:
    """The language of a code (en, eng, eng_Latn, en-GB) or an English name; InputError, with similar names, if none."""
    if (match := _lookup(_normalize(check_text("a language", name)))) is not None:
        return match
    labels = {known_name: f"{known.name} ({known.code})" for known_name, known in _LANGUAGES.items()}
    raise InputError(_unknown_language_message(name, labels, "use a code such as en"))


def _unknown_language_message(name: str, labels: Mapping[str, str], hint: str) -> str:
    """The message for an unknown name; ``labels``: normalized known name -> language; ``hint``: if none is similar."""
    import difflib  # not at the top: the import takes a millisecond

    similar_names = difflib.get_close_matches(_normalize(name), labels, n=4, cutoff=0.5)
    suggestions = ", ".join(dict.fromkeys(labels[known_name] for known_name in similar_names))
    return f"unknown language {name!r}; {f'near ones: {suggestions}' if suggestions else hint}"


class Languages:
    """The languages of a model, which a caller may name by any usual code or name.

    tokens  the model's code -> its token
    names   the model's code -> English name, or the code if the language is unknown
    """

    def __init__(self, tokens: Mapping[str, str]):
        self.names = {code: name_of(code) for code in tokens}
        self._codes = {_normalize(token): code for code, token in tokens.items()}
        self._codes |= {_normalize(code): code for code in tokens}
        self._labels = {code: f"{code} ({name})" if name != code else code for code, name in self.names.items()}

    def code(self, name: str) -> str:
        """The model's code for a language, by any usual code or name or by its token; InputError for other names.

        If the caller's code and the model's both have a script (Latn), the scripts must be equal. Regions may differ.
        """
        normalized = _normalize(check_text("a language", name))
        if normalized in self._codes:
            return self._codes[normalized]
        match, script = _lookup(normalized), _script(normalized)
        codes = [code for code in self.names if match and _lookup(_normalize(code)) == match]  # of the same language
        if script:
            matches = [code for code in codes if _script(_normalize(code)) == script]
            matches = matches or [code for code in codes if not _script(_normalize(code))]
        else:  # the code without script and region
            matches = [code for code in codes if "-" not in _normalize(code)][:1] or codes
        if len(matches) == 1:
            return matches[0]
        if codes:
            raise InputError(f"language {name!r} should be one of {self._list(matches or codes)}")
        labels = {_normalize(name): self._labels[code] for code, name in self.names.items()}
        labels |= {_normalize(code): label for code, label in self._labels.items()}
        raise InputError(_unknown_language_message(name, labels, f"this model knows {self}"))

    def __str__(self) -> str:
        return f"{len(self.names)}: {self._list(self.names)}"

    def _list(self, codes: Collection[str]) -> str:
        return ", ".join(self._labels[code] for code in islice(codes, MOST_NAMED)) + ", ..." * (len(codes) > MOST_NAMED)


@dataclass(frozen=True)
class LanguagePair:
    """A source and a target language, and the tokens that a model has around their texts."""

    source: str  # both as from ``iso_code``; "": unknown
    target: str
    before: tuple[str, ...] = ()  # tokens before and after each part's source tokens
    after: tuple[str, ...] = ()
    start: tuple[str, ...] = ()  # the target's first tokens; the checkpoint's start token, if it names one, is no part
    forced_tokens: int = 0  # how many tokens of ``start`` are no part of a translation
    needs_tag: bool = False  # whether a text must begin with the tag of its target language


def language_pair(
    text: TranslationText,
    languages: Languages | None,
    requested: tuple[str | None, str | None],
    tokens_of: Callable[[str], Sequence[str]],
) -> LanguagePair:
    """The LanguagePair for a model's ``languages``.

    requested  the caller's source and target language; None: the checkpoint's default
    tokens_of  a prefix -> its source tokens
    Raises InputError for a language that the model does not know, or if a required language is missing.
    """
    names, scheme, start = ("source_lang", "target_lang"), text.languages, text.decoding.forced_tokens
    defaults = [text.source_language, text.target_language]
    if scheme is None or languages is None:
        for name, code, default in zip(names, requested, defaults):
            if code is not None and (not default or language(code) != _lookup(_normalize(default))):
                limitation = f"takes {name_of(default)} ({default}) alone" if default else "does not say its languages"
                raise InputError(f"{name} {code!r} does not go with this model, which {limitation}")
        return LanguagePair(iso_code(defaults[0]), iso_code(defaults[1]), start=start, forced_tokens=len(start))
    if scheme.target == "first":  # generation_config.json may force a target language
        defaults[1] = next((code for code, token in scheme.tokens.items() if (token,) == start[:1]), defaults[1])
    codes = [default if code is None else code for code, default in zip(requested, defaults)]
    is_tagged = scheme.prefix == "{target}" and not codes[1]  # a text may begin with <2xx> itself
    prefix = scheme.prefix if codes[1] or (not is_tagged and any(code is not None for code in requested)) else ""
    required = bool(scheme.source) or "{source}" in prefix, bool(scheme.target) or "{target}" in prefix
    for name, code, is_required in zip(names, codes, required):
        if is_required and not code:
            raise InputError(f"{name} should be given; this model knows {languages}")
    if requested[0] is not None and not required[0] and requested[0] not in scheme.tokens:
        language(requested[0])  # only checked: the model has no token for the source language
    codes = [languages.code(code) if is_required else code for code, is_required in zip(codes, required)]
    source_token, target_token = (scheme.tokens[code] if has_token else "" for code, has_token in zip(codes, required))
    prefix_text = prefix.replace("{source}", source_token).replace("{target}", target_token)
    before = (*tokens_of(prefix_text), *[source_token] * (scheme.source == "before"))
    after = (*[text.eos_token] * (not text.add_source_eos), *[source_token] * (scheme.source == "after"))
    start = (target_token,) if scheme.target else start
    forced = 0 if scheme.target == "start" else len(start)
    source, target = map(iso_code, codes)
    return LanguagePair(source, target, before, after, start, forced, scheme.prefix == "{target}" != prefix)


def iso_code(code: str) -> str:
    """The ISO 639-1 code of a language, if the table has it; otherwise the given code."""
    match = _lookup(_normalize(code))
    return code if match is None else match.code


# A pattern of language tokens, whose group is the code -> how models with such tokens are told the languages.
_SCHEMES = {
    "__([a-z]{2,3})__": LanguageTokens({}, "before", "first"),  # M2M100
    "([a-z]{3}_[A-Z][a-z]{3})": LanguageTokens({}, "before", "first"),  # NLLB
    "([a-z]{2}_[A-Z]{2})": LanguageTokens({}, "before", "first"),  # mBART-50
    r"<2([a-z]{2,3}(?:_[A-Z]\w+)*)>": LanguageTokens({}, prefix="{target}"),  # MADLAD
    r">>(\w{2,}(?:[-_]\w+)*)<<": LanguageTokens({}, prefix="{target}"),  # OPUS-MT's multilingual targets
}


def language_tokens(vocabulary: Sequence[str]) -> LanguageTokens | None:
    """How a model is told the languages, as its vocabulary's language tokens show; None if it has fewer than two."""
    candidates = [token for token in vocabulary if token[:1] in ("<", ">") or "_" in token[1:4]]
    best = LanguageTokens({})
    for pattern, scheme in _SCHEMES.items():
        matches = filter(None, map(re.compile(pattern).fullmatch, candidates))
        tokens = {match[1]: match[0] for match in matches}
        if len(tokens) > len(best.tokens):
            best = replace(scheme, tokens=tokens)
    return best if len(best.tokens) > 1 else None


NO_LANGUAGE = "zxx"  # py3langid's code for numbers, markup and the like, since version 0.4


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError("finding a text's language needs py3langid: pip install 'fastattn[detect]'") from None

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def likely_languages(text: str, among: Sequence[str] = (), most: int = 5) -> list[tuple[str, float]]:
    """(code as from ``iso_code``, or NO_LANGUAGE; probability) of the likeliest languages, most likely first.

    among  only these languages, with their probabilities among all languages: low if the text is in none of these, 0
           for a language that py3langid does not know
    """
    ranking = [(iso_code(str(code)), float(probability)) for code, probability in _identifier().rank(text)]
    if among:
        probabilities = dict(ranking)
        ranking = sorted(((code, probabilities.get(code, 0.0)) for code in among), key=lambda pair: -pair[1])
    return ranking[:most]
