"""A model of many languages behind the routes: which pairs there are, and that it is told them."""

from fastattn.translation.capitals import CapitalsTranslator
from fastattn.translation.translator import Translator
from tests.serve.serving import serving
from tests.translation.languages import write_folder


def test_a_model_of_many_languages_is_told_them(tmp_path, pulled):
    folder = write_folder(tmp_path / "model", "nllb")
    translator = CapitalsTranslator(Translator(folder).guarded())  # random weights repeat themselves
    with serving(models=(("many", str(folder)), ("pt-fr", str(pulled("pt-en"))))) as asked:
        known = {one["code"]: one["targets"] for one in asked.get("/languages")[1]}
        assert known.keys() >= {"en", "fr", "zh"} and "en" in known["fr"] and "fr" not in known["fr"]
        # a script that the model has not is no target, and a source like any other of that language
        for source, target in (("en", "fr"), ("fr", "zh"), ("zh-TW", "fr")):
            wanted = translator.translate("a b c", source_lang=source[:2], target_lang=target)
            body = {"q": "a b c", "source": source, "target": target}
            assert asked.post("/translate", body) == (200, {"translatedText": wanted})
        for target, told in (("zh-TW", "to 'zh-Hant'"), ("en", "from 'en' to 'en'")):
            status, answer = asked.post("/translate", {"q": "a", "source": "en", "target": target})
            assert status == 400 and f"no model translates {told}" in answer["error"]
        body = {"q": ["Good morning, my friend.", "Bom dia, meu amigo."], "target": "fr", "format": "html"}
        status, answer = asked.post("/translate", body)  # by two models, the second of which takes no languages
        assert status == 200 and answer["translatedText"][1] == "Good morning, my friend."
        assert [language["language"] for language in answer["detectedLanguage"]] == ["en", "pt"]
