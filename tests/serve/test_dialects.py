"""Each dialect's requests and answers; what they say is what the API says."""

import base64
import json
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest

from fastattn import Encoder, Translator
from fastattn.spec.checkpoint import Checkpoint
from tests import ROOT
from tests.encoders.test_encoder import SPEC, TENSORS
from tests.encoders.test_encoder import TEXT as TEXTS
from tests.serve.serving import serving
from tests.weights.native.folders import converted

TEXT = "Good morning, my friend. How are you?"


@pytest.fixture(scope="module")
def translated(pulled):
    return Translator(pulled("en-pt")).translate(TEXT)


@pytest.fixture(scope="module")
def encoder(pulled):
    return Encoder(pulled("minilm"))


def test_a_translation_is_the_apis(asked, translated):
    immersive = {"source_lang": "auto", "target_lang": "pt", "text_list": [TEXT, TEXT]}
    for path, body, answer in (
        ("/translate", {"q": [TEXT], "source": "en", "target": "pt"}, {"translatedText": [translated]}),
        ("/translate", {"from": "en", "to": "pt-BR", "text": TEXT}, {"result": translated}),
        ("/translate/batch", {"from": "en", "to": "pt", "texts": [TEXT, ""]}, {"results": [translated, ""]}),
        (
            "/v2/translate",
            {"text": [TEXT], "target_lang": "PT-BR", "source_lang": "EN", "show_billed_characters": True},
            {"translations": [{"detected_source_language": "EN", "text": translated, "billed_characters": len(TEXT)}]},
        ),
        ("/imme", immersive, {"translations": [{"detected_source_lang": "en", "text": translated}] * 2}),
    ):
        assert asked.post(path, body) == (200, answer), path


def test_the_language_is_found_and_named(asked, translated):
    status, answer = asked.post("/translate", {"q": TEXT, "source": "auto", "target": "pt", "alternatives": 2})
    assert (status, answer["translatedText"], len(answer["alternatives"])) == (200, translated, 2)
    assert answer["detectedLanguage"]["language"] == "en" and answer["detectedLanguage"]["confidence"] > 80
    unsure = asked.post("/translate", {"q": "Добрый день, дорогие друзья.", "source": "auto", "target": "pt"})[1]
    assert unsure["detectedLanguage"] == {"confidence": 0.0, "language": "en"}  # the only one that goes to pt
    (first, *_) = asked.post("/detect", {"q": TEXT})[1]
    assert first["language"] == "en" and first["confidence"] > 80


def test_vectors_are_the_apis_in_both_encodings(asked, encoder):
    wanted_BD = encoder.encode(["a cat", "two dogs"])
    body = {"model": "minilm", "input": ["a cat", "two dogs"]}
    status, answer = asked.post("/v1/embeddings", body)
    assert status == 200 and answer["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    assert np.array_equal(np.array([one["embedding"] for one in answer["data"]], np.float32), wanted_BD)
    _, packed = asked.post("/v1/embeddings", {**body, "encoding_format": "base64"})
    found = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    assert np.array_equal(found, wanted_BD)
    assert np.array_equal(np.array(asked.post("/embed", {"inputs": ["a cat", "two dogs"]})[1], np.float32), wanted_BD)


# Path, body, status, and what the answer says.
REFUSED = [
    ("/translate", {"q": "a", "source": "en", "target": "de"}, 400, "no model translates to 'de'; to en, pt"),
    ("/translate", {"q": "a", "source": "de", "target": "pt"}, 400, "from 'de' to 'pt'; from en"),
    ("/translate", {"q": "a", "source": "en", "target": "pt", "format": "xml"}, 400, "format"),
    ("/translate", {"q": "a", "source": "en", "target": "de", "format": "html"}, 400, "to 'de'; to en, pt"),
    ("/translate", {"q": "\ud800", "source": "en", "target": "pt"}, 400, "U+D800"),
    ("/translate", {"q": 7, "source": "en", "target": "pt"}, 400, "q"),
    ("/v2/translate", {"text": "a", "target_lang": "PT", "glossary_id": "0" * 32}, 404, "nothing with this id"),
    ("/v2/translate", {"text": "a", "target_lang": "PT", "tag_handling": "rtf"}, 400, "tag_handling"),
    ("/v1/embeddings", {"model": "other", "input": "a"}, 404, "no such model; there are minilm"),
    ("/v1/embeddings", {"model": "minilm", "input": [[99999999]]}, 400, "token ids should be below"),
    ("/v1/chat/completions", {"model": "x", "messages": [{"role": "user", "content": "a"}]}, 404, "Generator"),
    ("/rerank", {"query": "a", "texts": ["b"]}, 404, "CrossEncoder"),
    ("/embed", {"inputs": []}, 400, "inputs"),
    ("/v1/embeddings", {"model": "minilm", "input": [True]}, 400, "input"),
    ("/v1/embeddings", {"model": "minilm", "input": "a", "dimensions": 385}, 400, "at most 384"),
]


def test_weights_that_give_no_numbers_are_a_refusal_that_names_them(tmp_path):
    table_VD = TENSORS["encoder.embedding.weight"].copy()
    table_VD[:] = np.inf
    damaged = Checkpoint(SPEC, {**TENSORS, "encoder.embedding.weight": table_VD}, TEXTS)
    with serving(models=(("enc", str(converted(damaged, tmp_path / "damaged", "float32"))),)) as asked:
        for path, body in (("/embed", {"inputs": "w5"}), ("/v1/embeddings", {"model": "enc", "input": "w5"})):
            status, content, _ = asked.raw("POST", path, body)
            assert status == 500 and b"not a number: encoder.embedding.weight holds NaN or infinity" in content


def test_what_cannot_be_is_one_line_in_the_dialects_form(asked):
    for path, body, status, words in REFUSED:
        found, answer = asked.post(path, body)
        told = answer["message"] if path.startswith("/v2") else answer["error"]
        told = told["message"] if path.startswith("/v1") else told
        assert found == status and words in told and "\n" not in told, (path, body)


def test_the_page_asks_nobody_else(asked):
    status, content, headers = asked.raw("GET", "/")
    assert status == 200 and b"http" not in content.replace(b"http-equiv", b"")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    _, found = asked.get("/api/models")
    assert found["pairs"] == [["en", "pt"], ["pt", "en"]] and found["encoders"] == ["minilm"]
    described = asked.get("/openapi.json")[1]["paths"]
    assert {*described} >= {"/translate", "/v2/translate", "/v1/embeddings", "/embed", "/rerank"}


def test_words_are_linked_to_those_they_look_at(asked):
    body = {"text": "The red house is old.", "source": "en", "target": "pt"}
    _, found = asked.post("/api/translate", body)
    words = {found["text"][slice(*link["target"])]: body["text"][slice(*link["source"])] for link in found["links"]}
    assert words["casa"] == "house" and words["antiga"] == "old" and words["."] == "."


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_documents_curl_lines_are_answered(asked):
    lines = re.findall(r"^curl .*$", (ROOT / "docs" / "serving.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        command = ["curl", "-sf", *shlex.split(line.replace(":5000", f":{asked.port}"))[1:]]
        answer = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        assert answer.keys() & {"translatedText", "data"}
