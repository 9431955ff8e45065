"""Languages by their codes and names, as the prompts of translation models call them."""

import difflib

from fastattn.errors import InputError, check_text
from fastattn.system.records import dataclass

# ISO 639-1 and 639-3, English name, Chinese name, and the scripts by the first word of their letters' Unicode names.
_TABLE = """
af afr Afrikaans 南非荷兰语 LATIN
ar arb,ara Arabic 阿拉伯语 ARABIC
bg bul Bulgarian 保加利亚语 CYRILLIC
bn ben Bengali 孟加拉语 BENGALI
bo bod Tibetan 藏语 TIBETAN
ca cat Catalan 加泰罗尼亚语 LATIN
cs ces Czech 捷克语 LATIN
da dan Danish 丹麦语 LATIN
de deu,ger German 德语 LATIN
el ell Greek 希腊语 GREEK
en eng English 英语 LATIN
es spa Spanish 西班牙语 LATIN
et est,ekk Estonian 爱沙尼亚语 LATIN
fa fas,pes Persian 波斯语 ARABIC
fi fin Finnish 芬兰语 LATIN
fr fra,fre French 法语 LATIN
ga gle Irish 爱尔兰语 LATIN
gl glg Galician 加利西亚语 LATIN
gu guj Gujarati 古吉拉特语 GUJARATI
he heb Hebrew 希伯来语 HEBREW
hi hin Hindi 印地语 DEVANAGARI
hr hrv Croatian 克罗地亚语 LATIN
hu hun Hungarian 匈牙利语 LATIN
id ind Indonesian 印尼语 LATIN
is isl Icelandic 冰岛语 LATIN
it ita Italian 意大利语 LATIN
ja jpn Japanese 日语 CJK,HIRAGANA,KATAKANA
kk kaz Kazakh 哈萨克语 CYRILLIC
km khm Khmer 高棉语 KHMER
ko kor Korean 韩语 HANGUL,CJK
lt lit Lithuanian 立陶宛语 LATIN
lv lav,lvs Latvian 拉脱维亚语 LATIN
mn mon,khk Mongolian 蒙古语 CYRILLIC,MONGOLIAN
mr mar Marathi 马拉地语 DEVANAGARI
ms msa,zsm Malay 马来语 LATIN
mt mlt Maltese 马耳他语 LATIN
my mya Burmese 缅甸语 MYANMAR
nl nld,dut Dutch 荷兰语 LATIN
no nor,nob,nb Norwegian 挪威语 LATIN
pl pol Polish 波兰语 LATIN
pt por Portuguese 葡萄牙语 LATIN
ro ron Romanian 罗马尼亚语 LATIN
ru rus Russian 俄语 CYRILLIC
sk slk Slovak 斯洛伐克语 LATIN
sl slv Slovenian 斯洛文尼亚语 LATIN
sr srp Serbian 塞尔维亚语 CYRILLIC,LATIN
sv swe Swedish 瑞典语 LATIN
sw swh,swa Swahili 斯瓦希里语 LATIN
ta tam Tamil 泰米尔语 TAMIL
te tel Telugu 泰卢固语 TELUGU
th tha Thai 泰语 THAI
tl tgl,fil Filipino 菲律宾语 LATIN
tr tur Turkish 土耳其语 LATIN
ug uig Uyghur 维吾尔语 ARABIC
uk ukr Ukrainian 乌克兰语 CYRILLIC
ur urd Urdu 乌尔都语 ARABIC
vi vie Vietnamese 越南语 LATIN
yue yue,zh-yue Cantonese 粤语 CJK
zh zho,chi,cmn,zh-hans,zh-cn,zh-sg Chinese 中文 CJK
zh-Hant zh-tw,zh-hk,zho-hant Traditional_Chinese 繁体中文 CJK
"""


@dataclass(frozen=True)
class Language:
    """A language.

    code     ISO 639-1 where there is one, with a script where that matters
    name     in English
    chinese  its name in Chinese
    scripts  the first words of its letters' Unicode names
    """

    code: str
    name: str
    chinese: str
    scripts: frozenset[str]

    @property
    def is_chinese(self) -> bool:
        """Whether prompts in Chinese are meant for it."""
        return self.code in ("zh", "zh-Hant", "yue")


def _read_table() -> dict[str, Language]:
    known = {}
    for line in _TABLE.split("\n")[1:-1]:
        code, others, name, chinese, scripts = line.split()
        language = Language(code, name.replace("_", " "), chinese, frozenset(scripts.split(",")))
        for each in (code, *others.split(","), language.name):
            known[each.lower()] = language
    return known


_KNOWN = _read_table()


def language(name: str) -> Language:
    """The language of a code (en, eng, eng_Latn, en-GB) or an English name; InputError that lists near ones."""
    asked = check_text("a language", name).strip().lower().replace("_", "-")
    if (found := _KNOWN.get(asked) or _KNOWN.get(asked.partition("-")[0])) is not None:
        return found
    near = difflib.get_close_matches(asked, _KNOWN, n=4, cutoff=0.5)
    meant = ", ".join(dict.fromkeys(f"{_KNOWN[each].name} ({_KNOWN[each].code})" for each in near))
    raise InputError(f"unknown language {name!r}; {f'near ones: {meant}' if meant else 'use a code such as en'}")
