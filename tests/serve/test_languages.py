"""A model of many languages behind the routes: which pairs there are, and that it is told them."""

from fastattn.translation.translator import Translator
from tests.serve.serving import serving
from tests.translation.languages import write_folder


def test_a_model_of_many_languages_is_told_them(tmp_path):
    folder = write_folder(tmp_path / "model", "nllb")
    translator = Translator(folder)
    with serving(models=(("many", str(folder)),)) as asked:
        known = {one["code"]: one["targets"] for one in asked.get("/languages")[1]}
        assert known.keys() >= {"en", "fr", "zh"} and "en" in known["fr"] and "fr" not in known["fr"]
        for source, target in (("en", "fr"), ("fr", "zh")):
            wanted = translator.translate("a b c", source_lang=source, target_lang=target)
            body = {"q": "a b c", "source": source, "target": target}
            assert asked.post("/translate", body) == (200, {"translatedText": wanted})
        # a script that the model has not is no target, and a source like any other of that language
        body = {"q": "a b c", "source": "zh-TW", "target": "fr"}
        wanted = translator.translate("a b c", source_lang="zh", target_lang="fr")
        assert asked.post("/translate", body) == (200, {"translatedText": wanted})
        status, answer = asked.post("/translate", {"q": "a", "source": "en", "target": "zh-TW"})
        assert status == 400 and "no model translates to 'zh-Hant'" in answer["error"]
        status, answer = asked.post("/translate", {"q": "a", "source": "en", "target": "en"})
        assert status == 400 and "no model translates from 'en' to 'en'" in answer["error"]
