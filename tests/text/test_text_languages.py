"""Languages by all their names, and what the tokens of a vocabulary say of a model of many."""

import pytest

from fastattn.errors import InputError
from fastattn.spec.text_spec import LanguageTokens
from fastattn.text.languages import Languages, language, language_tokens

NLLB = "eng_Latn fra_Latn zho_Hans zho_Hant kas_Arab kas_Deva srp_Cyrl heb_Hebr als_Latn npi_Deva nob_Latn nno_Latn"
M2M = "en fr zh sr he sq ne no ns jv"
MBART = "en_XX fr_XX zh_CN he_IL pt_XX"


def test_a_language_is_found_by_every_usual_name() -> None:
    for codes, asked, code in [
        (NLLB, "en eng eng_Latn ENG_LATN en_XX en-GB English english __en__", "eng_Latn"),
        (NLLB, "zh zho Chinese zh_CN zho_Hans cmn_Hans", "zho_Hans"),
        (NLLB, "zh-TW zh-Hant zho_Hant zh-Hant-TW zh-MO chi_HK ZHO-HANT-hk", "zho_Hant"),
        (NLLB, "zh-Hans-CN zh-SG", "zho_Hans"),
        ("srp_Cyrl srp_Latn", "sr-Latn-RS sr_Latn", "srp_Latn"),
        ("srp_Cyrl srp_Latn", "sr-Cyrl-RS srp_Cyrl", "srp_Cyrl"),
        (NLLB, "ks_Deva kas_Deva", "kas_Deva"),
        (NLLB, "iw he Hebrew", "heb_Hebr"),
        (NLLB, "sq Albanian alb", "als_Latn"),
        (NLLB, "no nb Norwegian", "nob_Latn"),
        (NLLB, "nn Norwegian_Nynorsk", "nno_Latn"),
        (M2M, "en eng eng_Latn en_XX English __en__", "en"),
        (M2M, "srp_Cyrl sr-RS", "sr"),
        (M2M, "nso nso_Latn", "ns"),
        (M2M, "jw jav_Latn Javanese", "jv"),
        (MBART, "en eng_Latn en_US English", "en_XX"),
        (MBART, "pt pt_BR por_Latn", "pt_XX"),
        ("pt_PT pt pt_BR", "por Portuguese pt_AO", "pt"),
        ("xx_new other", "XX-NEW xx_new", "xx_new"),
    ]:
        languages = Languages({each: f"__{each}__" for each in codes.split()})
        assert {name: languages.code(name.replace("n_N", "n N")) for name in asked.split()} == dict.fromkeys(
            asked.split(), code
        )


def test_another_language_is_refused_with_those_that_may_be_meant() -> None:
    for asked, fault in [
        ("ks", "language 'ks' should be one of kas_Arab (Kashmiri), kas_Deva (Kashmiri)"),
        ("sr_Latn", "language 'sr_Latn' should be one of srp_Cyrl (Serbian)"),
        ("Frensh", "unknown language 'Frensh'; near ones: fra_Latn (French)"),
        (
            "zz",
            "unknown language 'zz'; this model knows 12: eng_Latn (English), fra_Latn (French), ",
        ),
        ("", "unknown language ''; this model knows 12: "),
    ]:
        with pytest.raises(InputError) as caught:
            Languages({each: each for each in NLLB.split()}).code(asked)
        assert str(caught.value).startswith(fault)


def test_four_digits_are_no_script() -> None:
    assert Languages({"de": "<de>", "de_AT": "<de_AT>"}).code("de-1996") == "de"


def test_one_table_serves_prompts_and_models() -> None:
    assert language("ckb").name == "Central Kurdish" and language("zho_Hant").chinese == "繁体中文"
    assert Languages({"kmr_Latn": "", "toki": ""}).names == {"kmr_Latn": "Northern Kurdish", "toki": "toki"}


def test_the_forms_of_tokens_tell_the_model() -> None:
    for tokens, told in [
        ("__en__ __ast__", LanguageTokens({"en": "__en__", "ast": "__ast__"}, "before", "first")),
        ("eng_Latn fra_Latn", LanguageTokens({"eng_Latn": "eng_Latn", "fra_Latn": "fra_Latn"}, "before", "first")),
        ("en_XX fr_XX", LanguageTokens({"en_XX": "en_XX", "fr_XX": "fr_XX"}, "before", "first")),
        (
            "<2en> <2ta_Latn> <2back_translated>",
            LanguageTokens({"en": "<2en>", "ta_Latn": "<2ta_Latn>"}, prefix="{target}"),
        ),
        (">>por<< >>pt_br<<", LanguageTokens({"por": ">>por<<", "pt_br": ">>pt_br<<"}, prefix="{target}")),
        (">>por<<", None),
        ("__en__ <2en> de_DE", None),
        ("_e <s> >> << <2> de_de DE_DE", None),
    ]:
        assert language_tokens(["<unk>", "▁a", "</s>", *tokens.split()]) == told
