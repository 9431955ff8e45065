"""Which prompt a checkpoint wants and what it says for a text; languages; rules for answers that are none."""

import re

import pytest

from fastattn.errors import InputError
from fastattn.generation.judging import REMARKS, remarks
from fastattn.generation.translating import PROMPTS, TranslationPrompt, recognised
from fastattn.text.languages import language
from tests.weights.run_hostile import Steps

EN, ZH, FR, JA, RU = map(language, ("en", "zh", "fr", "ja", "ru"))


def asked(name, source, target, text="Hi {text}", template="", **rest):
    return TranslationPrompt(name, source, target, **rest).asked(text, template)


def said(*arguments, **rest):
    (message,) = asked(*arguments, **rest)
    assert message["role"] == "user"
    return message["content"]


def test_codes_and_names_are_a_language():
    for name in ["en", "EN", " eng", "eng_Latn", "en-GB", "en_US", "English", "english"]:
        assert language(name) == EN


def test_scripts_and_other_codes_are_known():
    for name, code in [
        ("zh-TW", "zh-Hant"),
        ("zho_Hant", "zh-Hant"),
        ("zho_Hans", "zh"),
        ("zh-CN", "zh"),
        ("cmn", "zh"),
        ("nob", "no"),
    ]:
        assert language(name).code == code


def test_an_unknown_language_lists_near_ones():
    with pytest.raises(InputError, match=r"unknown language 'Germn'; near ones: German \(de\)"):
        language("Germn")
    with pytest.raises(InputError, match="unknown language '\\?'; use a code such as en"):
        language("?")
    with pytest.raises(InputError, match="a language must be a str"):
        language(3)


def test_prompts_are_those_of_the_cards():
    assert (
        said("hy-mt", EN, FR)
        == "Translate the following segment into French, without additional explanation.\n\nHi {text}"
    )
    assert said("hy-mt", EN, ZH) == "将以下文本翻译为中文，注意只需要输出翻译后的结果，不要额外解释：\n\nHi {text}"
    assert said("hy-mt", ZH, EN).startswith("将以下文本翻译为英语，")
    assert said("hunyuan-mt", EN, ZH) == "把下面的文本翻译成中文，不要额外解释。\n\nHi {text}"
    assert said("hy-mt2", EN, FR).startswith("Translate the following text into French. Note that you should only")
    assert (
        said("tower", EN, FR) == "Translate the following text from English into French.\nEnglish: Hi {text}\nFrench:"
    )
    assert said("eurollm", EN, FR) == (
        "Translate the following English source text to French:\nEnglish: Hi {text}\nFrench: "
    )
    completion = "Translate this from English to French:\nEnglish: Hi {text}\nFrench:"
    assert asked("milmmt", EN, FR) == asked("alma", EN, FR) == said("x-alma", EN, FR) == completion
    assert said("translategemma", EN, FR).startswith("You are a professional English (en) to French (fr) translator. ")
    assert said("translategemma", EN, FR).endswith("translate the following English text into French:\n\n\nHi {text}")


def test_a_template_that_takes_languages_is_given_them():
    (part,) = said("translategemma", EN, language("zh-TW"), template="{{ item['source_lang_code'] }}")
    assert part == {"type": "text", "source_lang_code": "en", "target_lang_code": "zh-Hant", "text": "Hi {text}"}


def test_terms_and_context_go_where_a_model_was_trained_with_them():
    with_terms = said("hy-mt", EN, FR, terms={"cat {0}": "chat", "dog": "chien"})
    assert with_terms == (
        "参考下面的翻译：\ncat {0} 翻译成 chat\ndog 翻译成 chien\n\n"
        "将以下文本翻译为法语，注意只需要输出翻译后的结果，不要额外解释：\nHi {text}"
    )
    assert said("hy-mt2", EN, ZH, context="Before {x}.") == (
        "Before {x}.\n参考上面的信息，把下面的文本翻译成中文，注意不需要翻译上文，也不要额外解释：\nHi {text}"
    )
    for name, given in (("tower", {"terms": {"a": "b"}}), ("hunyuan-mt", {"context": "a"})):
        (what,) = given
        with pytest.raises(InputError, match=f"models with the prompt {name} were not trained with {what}"):
            TranslationPrompt(name, EN, FR, **given)
    with pytest.raises(InputError, match="terms or context, not both"):
        TranslationPrompt("hy-mt", EN, FR, {"a": "b"}, "c")


def test_checkpoints_are_known_by_their_names():
    for names, prompt in [
        (["Hy-MT2-1.8B-Q4_K_M.gguf"], "hy-mt2"),
        (["HY-MT1.5-1.8B"], "hy-mt"),
        (["snapshot", "tencent/Hunyuan-MT-7B", "hunyuan_v1_dense"], "hunyuan-mt"),
        (["snapshot", "", "hunyuan_v1_dense"], "hy-mt"),
        (["translategemma-4b-it"], "translategemma"),
        (["MiLMMT-46-4B-v1.0"], "milmmt"),
        (["GemmaX2-28-2B"], "milmmt"),
        (["ALMA-7B-R"], "alma"),
        (["haoranxu/X-ALMA"], "x-alma"),
        (["TowerInstruct-7B-v0.2"], "tower"),
        (["EuroLLM-9B-Instruct"], "eurollm"),
    ]:
        assert recognised(names, "") == prompt


def test_a_template_with_languages_is_translategemmas():
    assert recognised(["model"], "{% if content['source_lang_code'] %}") == "translategemma"
    with pytest.raises(InputError, match="not known with which prompt this model translates; name one: hy-mt2, hy-mt"):
        recognised(["llama", "malmal"], "{{ messages }}")


def test_every_prompt_says_where_it_is_from():
    assert all(prompt.source and re.compile(prompt.hints) for prompt in PROMPTS.values())


SOURCE = "The committee will meet again on Monday to vote on the budget."
ANSWERS = [
    ((EN, ZH), SOURCE, "委员会将于周一再次开会，就预算进行表决。", ()),
    ((EN, FR), SOURCE, "Le comité se réunira à nouveau lundi pour voter le budget.", ()),
    ((EN, FR), SOURCE, SOURCE, ("echo",)),
    ((EN, FR), SOURCE, " " + SOURCE.replace("budget", "Budgets") + "\n", ("echo",)),
    ((EN, ZH), "Hello, my friend.", "Hello, my friend.\n\n智慧谈说意想赞赏是你的朋友们", ("echo", "paragraphs")),
    ((EN, FR), SOURCE, "The committee will gather again on Monday to vote on a budget.", ()),
    ((EN, FR), SOURCE, "The committees would meet again on Mondays to vote on the budgets.", ("echo",)),
    ((EN, RU), SOURCE, "абвг abcd", ()),
    ((EN, RU), SOURCE, "абв abcde", ("script",)),
    ((EN, RU), SOURCE, "абв abcd", ()),
    ((EN, FR), "Come to Paris", "Viens à « Come to Paris »", ()),
    ((EN, FR), SOURCE, "Le comité.\n \nCela veut dire que tous se réunissent.", ("paragraphs",)),
    ((EN, FR), "One.\n\nTwo.", "Un.\n\nDeux.", ()),
    ((EN, FR), "Paris", "Paris", ()),
    ((EN, ZH), SOURCE, SOURCE, ("echo", "script")),
    ((ZH, EN), "我们走吧", "我们走吧", ("echo",)),
    ((EN, JA), "GPU", "GPU", ("echo",)),
    ((EN, ZH), "12,000", "12,000", ("echo",)),
    ((EN, ZH), "!?", "!?", ()),
    ((EN, FR), SOURCE, "", ("empty",)),
    ((EN, FR), "  ", "", ()),
    ((EN, FR), SOURCE, "Here is the translation: Le comité se réunira.", ("explanation",)),
    ((EN, FR), SOURCE, "Sure! Here's the translation of your text:\nLe comité se réunira.", ("explanation",)),
    ((EN, FR), SOURCE, "The French translation is: Le comité se réunira.", ("explanation",)),
    ((EN, FR), SOURCE, "Le comité se réunira.\n\n(Note: formal register.)", ("explanation", "paragraphs")),
    ((EN, ZH), SOURCE, "以下是翻译：委员会将于周一再次开会。", ("explanation",)),
    ((EN, ZH), SOURCE, "委员会将于周一再次开会。\n注：此处从简。", ("explanation",)),
    ((FR, EN), "La traduction est bonne :\nNote : rien.", "The translation is good:\nNote: nothing.", ("explanation",)),
    ((EN, EN), "Sure, go!", "Sure, go!", ()),
    ((EN, FR), SOURCE, "« Le comité se réunira. »", ("quotes",)),
    ((EN, FR), f'"{SOURCE}"', '"Le comité se réunira."', ()),
    ((EN, FR), SOURCE, '"Le comité" et "le budget"', ()),
    ((EN, RU), SOURCE, "The committee meets, Комитет", ("script",)),
    ((EN, JA), SOURCE, "委員会は月曜日にまた集まります。", ()),
    ((EN, FR), SOURCE, "Translate it into French, please.\nLe comité.", ("prompt",)),
]  # fmt: skip


def test_answers_that_are_no_translations_are_marked():
    for languages, source, answer, expected in ANSWERS:
        assert remarks(source, answer, languages, "Translate it into French, please.") == expected
        assert set(expected) <= set(REMARKS)


def test_of_long_answers_little_is_compared():
    text = " ".join(map(str, range(20_000)))
    with Steps(300_000):
        assert remarks(text, text[:-3] + "xyz", (EN, FR), "Translate it") == ("echo",)
