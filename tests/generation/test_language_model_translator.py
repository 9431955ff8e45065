"""LanguageModelTranslator: the trained prompt around each paragraph, answers joined, marked and independent."""

from dataclasses import replace

import numpy as np
import pytest

from fastattn.errors import FastattnError, InputError
from fastattn.generation.generator import Generator
from fastattn.generation.judging import REMARKS, remarks
from fastattn.generation.language_model_translator import LanguageModelTranslator, MarkedTranslation
from fastattn.generation.translating import TranslationPrompt, recognize_prompt
from fastattn.text.languages import language
from tests.generation.language_models import checkpoint
from tests.messages import refused
from tests.weights.native.folders import converted
from tests.weights.run_hostile import Steps

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}|"
STRUCTURED = (
    "{% set part = messages[0].content[0] %}{{ bos_token }}{{ part.source_lang_code }}>{{ part.target_lang_code }}: "
    "{{ part.text }}|"
)


def generator_of(template="", max_length=0, seed=1):
    made = checkpoint(seed, max_length=max_length)
    text = replace(made.text, chat_template=template, special_tokens={"bos_token": "<s>"})
    return Generator.from_checkpoint(replace(made, input=text))


@pytest.fixture(scope="module")
def generator():
    return generator_of()


@pytest.fixture(scope="module")
def translator(generator):
    return LanguageModelTranslator(generator, "en", "French", prompt="milmmt")


def completion(text):
    return f"Translate this from English to French:\nEnglish: {text}\nFrench:"


def test_a_paragraph_is_one_prompt_and_its_answer_the_translation(generator, translator):
    alone = generator.generate(completion("the end\nand the"), max_new_tokens=9)
    assert translator.translate("the end\nand the", max_new_tokens=9) == alone.strip()
    found = translator.translate("the end\nand the", max_new_tokens=9, details=True)
    assert isinstance(found, MarkedTranslation) and found.text == alone.strip() == found.hypotheses[0]
    assert "cut" in found.remarks and len(found.parts) == 1 and found.scores == [found.parts[0].score]
    found = translator.translate("the\n\nan", beam_size=2, num_hypotheses=2, max_new_tokens=3, details=True)
    assert len(found.hypotheses) == len(found.scores) == 2 and found.text == found.hypotheses[0]
    assert all("\n\n" in text for text in found.hypotheses)


def test_a_folder_is_opened_with_the_precision_of_the_cache(tmp_path):
    folder = converted(checkpoint(), tmp_path / "alma", "float32")
    translator = LanguageModelTranslator(folder, "en", "fr", cache_precision="int8")
    assert translator.prompt == "alma" and translator.generator._service.model.sizes.row_dtype == np.int8


def test_blank_lines_part_paragraphs_and_stay(generator, translator):
    first, second = (generator.generate(completion(text), max_new_tokens=5).strip() for text in ("the end", "an end."))
    text = "  the end\n \n\n\tan end. \n"
    assert translator.translate(text, max_new_tokens=5) == f"  {first}\n \n\n\t{second} \n"
    assert translator.translate(["", "\n\n", "the end"], max_new_tokens=5) == ["", "\n\n", first]
    empty = translator.translate(" \n", details=True)
    assert (empty.text, empty.hypotheses, empty.scores, empty.remarks, empty.parts) == (" \n", [" \n"], [0], (), [])


def test_a_translation_does_not_depend_on_the_other_texts_and_errors_take_their_places(translator):
    texts = ["the end", "and then an end.\n\nthe", "", "an"]
    together = translator.translate(texts, max_new_tokens=6)
    assert together == [translator.translate(text, max_new_tokens=6) for text in texts]
    assert translator.submit(texts, max_new_tokens=6).result() == together
    found = list(translator.translate_iter([*texts, "\ud800", "an"], max_new_tokens=6, return_exceptions=True))
    assert [*found[:4], found[5]] == [*together, together[3]] and isinstance(found[4], InputError)
    with refused(InputError, "surrogate"):
        list(translator.translate_iter(["the", "\ud800"], max_new_tokens=3))


def test_chats_go_through_the_template_and_stops_end_answers():
    pytest.importorskip("jinja2")
    chats = generator_of(TEMPLATE)
    translator = LanguageModelTranslator(chats, "en", "fr", prompt="tower")
    prompt = "Translate the following text from English into French.\nEnglish: the\nFrench:|"
    alone = chats.generate(prompt, max_new_tokens=6)  # the tokenizer begins it with <s>, once
    assert translator.translate("the", max_new_tokens=6) == alone.strip()
    structured = generator_of(STRUCTURED)
    assert LanguageModelTranslator(structured, "en", "zh-TW").translate("the", max_new_tokens=6) == (
        structured.generate("en>zh-Hant: the|", max_new_tokens=6).strip()
    )
    stop = alone[3:5]
    assert stop not in translator.translate("the", max_new_tokens=6, stop=stop)
    assert translator.translate("the", max_new_tokens=6, stop=None) == alone.strip()


def test_wrong_calls_are_refused(translator):
    for arguments in (
        *({"terms": terms, "texts": "a"} for terms in ({"a": "b"}, [1])),
        {"context": 3, "texts": "a"},
        {"callback": print, "texts": "a"},
        {"num_hypotheses": 2, "texts": "a"},
        {"splits": 3, "texts": "a"},
        {"details": 1, "texts": "a"},
    ):
        with refused(InputError, next(iter(arguments))):
            translator.translate(**arguments)


def test_wrong_translators_are_refused(generator):
    for source, prompt in (("xx", {"prompt": "alma"}), ("en", {"prompt": "bert"}), ("en", {})):
        with refused(InputError, *prompt.values() if source == "en" else ["xx"]):
            LanguageModelTranslator(generator, source, "fr", **prompt)
    with LanguageModelTranslator(generator_of(max_length=50), "en", "fr", prompt="alma") as translator:
        with refused(InputError, "50"):  # which has no room for the prompt
            translator.translate("a")
    with refused(FastattnError, "Generator"):
        translator.generator.generate("a")


EN, ZH, FR, JA, RU = map(language, ("en", "zh", "fr", "ja", "ru"))


def asked(name, source, target, text="Hi {text}", template="", **rest):
    return TranslationPrompt(name, source, target, **rest).render(text, template)


def said(*arguments, **rest):
    (message,) = asked(*arguments, **rest)
    assert message["role"] == "user"
    return message["content"]


def test_codes_and_names_are_a_language():
    codes = {"zh-TW": "zh-Hant", "zho_Hant": "zh-Hant", "zho_Hans": "zh", "zh-CN": "zh", "cmn": "zh", "nob": "no"}
    codes |= dict.fromkeys(["en", "EN", " eng", "eng_Latn", "en-GB", "en_US", "English", "english"], "en")
    assert {name: language(name).code for name in codes} == codes
    for name in ("Germn", "?", 3):
        with refused(InputError, "language"):
            language(name)


def test_prompts_are_those_of_the_cards():
    completion = "Translate this from English to French:\nEnglish: Hi {text}\nFrench:"
    assert asked("milmmt", EN, FR) == asked("alma", EN, FR) == said("x-alma", EN, FR) == completion
    for name, (source, target), prompt in [
        (
            "hy-mt",
            (EN, FR),
            "Translate the following segment into French, without additional explanation.\n\nHi {text}",
        ),
        ("hy-mt", (EN, ZH), "将以下文本翻译为中文，注意只需要输出翻译后的结果，不要额外解释：\n\nHi {text}"),
        ("hy-mt", (ZH, EN), "将以下文本翻译为英语，"),
        ("hunyuan-mt", (EN, ZH), "把下面的文本翻译成中文，不要额外解释。\n\nHi {text}"),
        ("hy-mt2", (EN, FR), "Translate the following text into French. Note that you should only"),
        ("tower", (EN, FR), "Translate the following text from English into French.\nEnglish: Hi {text}\nFrench:"),
        ("eurollm", (EN, FR), "Translate the following English source text to French:\nEnglish: Hi {text}\nFrench: "),
        ("translategemma", (EN, FR), "You are a professional English (en) to French (fr) translator. "),
    ]:
        made = said(name, source, target)
        assert made == prompt if "{text}" in prompt else made.startswith(prompt)
    assert made.endswith("translate the following English text into French:\n\n\nHi {text}")


def test_a_template_that_takes_languages_is_given_them():
    (part,) = said("translategemma", EN, language("zh-TW"), template="{{ item['source_lang_code'] }}")
    assert part == {"type": "text", "source_lang_code": "en", "target_lang_code": "zh-Hant", "text": "Hi {text}"}


def test_terms_and_context_go_where_a_model_was_trained_with_them():
    assert said("hy-mt", EN, FR, terms={"cat {0}": "chat", "dog": "chien"}) == (
        "参考下面的翻译：\ncat {0} 翻译成 chat\ndog 翻译成 chien\n\n"
        "将以下文本翻译为法语，注意只需要输出翻译后的结果，不要额外解释：\nHi {text}"
    )
    assert said("hy-mt2", EN, ZH, context="Before {x}.") == (
        "Before {x}.\n参考上面的信息，把下面的文本翻译成中文，注意不需要翻译上文，也不要额外解释：\nHi {text}"
    )
    terms, context = {"terms": {"a": "b"}}, {"context": "c"}
    for name, given in (("tower", terms), ("hunyuan-mt", context), ("hy-mt", terms | context)):
        with refused(InputError, *given):
            TranslationPrompt(name, EN, FR, **given)


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
        assert recognize_prompt(names, "") == prompt


def test_a_template_with_languages_is_translategemmas():
    assert recognize_prompt(["model"], "{% if content['source_lang_code'] %}") == "translategemma"
    with refused(InputError, "hy-mt2"):
        recognize_prompt(["llama", "malmal"], "{{ messages }}")


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
