"""LanguageModelTranslator: the trained prompt around each paragraph, answers joined, marked and independent."""

from dataclasses import replace

import numpy as np
import pytest

from fastattn.errors import InputError
from fastattn.generation.generator import Generator
from fastattn.generation.language_model_translator import LanguageModelTranslator, MarkedTranslation
from tests.generation.language_models import checkpoint
from tests.weights.native.folders import converted

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


def test_a_translation_does_not_depend_on_the_other_texts(translator):
    texts = ["the end", "and then an end.\n\nthe", "", "an"]
    together = translator.translate(texts, max_new_tokens=6)
    assert together == [translator.translate(text, max_new_tokens=6) for text in texts]
    assert translator.submit(texts, max_new_tokens=6).result() == together
    assert list(translator.translate_iter(iter(texts), max_new_tokens=6)) == together


def test_errors_take_their_places(translator):
    found = list(translator.translate_iter(["the", "\ud800", "an"], max_new_tokens=3, return_exceptions=True))
    assert [isinstance(each, InputError) for each in found] == [False, True, False]
    with pytest.raises(InputError, match="lone surrogate"):
        list(translator.translate_iter(["the", "\ud800"], max_new_tokens=3))


def test_what_has_no_room_is_cut_at_sentences():
    small = generator_of(max_length=150)
    translator = LanguageModelTranslator(small, "en", "fr", prompt="alma")
    sentences = ["The end is the end. ", "And then an end came. ", "The."]
    expected = [small.generate(completion(each.strip()), max_new_tokens=4).strip() for each in sentences]
    assert translator.translate("".join(sentences), max_new_tokens=4) == " ".join(expected)
    with pytest.raises(InputError, match="the prompt has no room in the model's context of 50 tokens"):
        LanguageModelTranslator(generator_of(max_length=50), "en", "fr", prompt="alma").translate("a")


def test_several_hypotheses_have_their_ranks(translator):
    found = translator.translate("the\n\nan", beam_size=2, num_hypotheses=2, max_new_tokens=3, details=True)
    assert len(found.hypotheses) == len(found.scores) == 2 and found.text == found.hypotheses[0]
    assert all(text.count("\n\n") >= 1 for text in found.hypotheses)


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


def test_wrong_calls_are_refused(translator):
    for arguments, message in [
        ({"texts": 3}, "texts must be a str or several, got int"),
        ({"texts": "a", "terms": {"a": "b"}}, "models with the prompt milmmt were not trained with terms"),
        ({"texts": "a", "terms": [1]}, "terms should be a dict from str to str, a term's translation of each"),
        ({"texts": "a", "context": 3}, "context must be a str, got int"),
        ({"texts": "a", "callback": print}, "a translation by a language model takes no callback"),
        ({"texts": "a", "num_hypotheses": 2}, "num_hypotheses above 1 needs details=True"),
        ({"texts": "a", "splits": 3}, "unknown option 'splits'"),
        ({"texts": "a", "details": 1}, "details must be True or False, got 1"),
    ]:
        with pytest.raises(InputError) as caught:
            translator.translate(**arguments)
        assert str(caught.value).startswith(message)


def test_wrong_translators_are_refused(generator):
    with pytest.raises(InputError, match="unknown language 'xx'"):
        LanguageModelTranslator(generator, "xx", "fr", prompt="alma")
    with pytest.raises(InputError, match="unknown prompt 'bert'; known: hy-mt2"):
        LanguageModelTranslator(generator, "en", "fr", prompt="bert")
    with pytest.raises(InputError, match="not known with which prompt"):
        LanguageModelTranslator(generator, "en", "fr")
    with LanguageModelTranslator(generator_of(), "en", "fr", prompt="alma") as translator:
        assert translator.translate("a", max_new_tokens=1) is not None
    with pytest.raises(Exception, match="this Generator is closed"):
        translator.translate("a")
