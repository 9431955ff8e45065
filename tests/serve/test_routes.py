"""Each field of each route's requests arrives in the model's call, with its value; and what is not given, does not."""

import base64
import json
from unittest.mock import AsyncMock
from urllib.parse import urlencode

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.errors import QueueFullError
from fastattn.generation.generator import Generator
from fastattn.serve.dialects import ROUTERS
from fastattn.translation.translator import Translator
from tests.cli.recorders import Seen
from tests.serve.recorders import KINDS, MODELS, WIDTH, record_models
from tests.serve.serving import FORM, serving

HERE = "127.0.0.1"
PLAIN = {"texts": ["a"], "details": True, "caller": HERE, "beam_size": 2, "return_attention": False}
SEVERAL = PLAIN | {"beam_size": 4, "num_hypotheses": 4}
PAIR = {"source": "en", "target": "pt"}
GIVEN = {"source_lang": "EN", "target_lang": "PT"}
DEEPLX = {"text": "a", **GIVEN}
# Path, body, which a form says as well, and what arrives of the translation, nothing else.
TRANSLATIONS = [
    ("/translate", {"q": "a", **PAIR}, PLAIN),
    ("/translate", {"q": ["a", "b"], **PAIR}, PLAIN | {"texts": ["a", "b"]}),
    ("/translate", {"q": "", **PAIR}, PLAIN | {"texts": [""]}),
    ("/translate", {"q": ["", "é & =+%;", ""], **PAIR}, PLAIN | {"texts": ["", "é & =+%;", ""]}),
    ("/translate", {"q": "a", **PAIR, "alternatives": 1}, PLAIN | {"num_hypotheses": 2}),
    ("/translate", {"q": "a", **PAIR, "alternatives": 3}, SEVERAL),
    ("/translate", {"text": "a", "from": "en", "to": "pt"}, PLAIN),
    ("/translate/batch", {"texts": ["a", "b"], "from": "en", "to": "pt"}, PLAIN | {"texts": ["a", "b"]}),
    ("/translate", DEEPLX, SEVERAL),
    ("/some-key/translate", DEEPLX, SEVERAL),
    ("/imme", {"text_list": ["a", ""], "source_lang": "en", "target_lang": "pt"}, PLAIN | {"texts": ["a", ""]}),
    ("/v2/translate", {"text": "a", "target_lang": "PT-BR", "source_lang": "EN"}, PLAIN),
    ("/v2/translate", {"text": ["a"], **GIVEN, "split_sentences": "1"}, PLAIN),
    ("/v2/translate", {"text": "a", **GIVEN, "split_sentences": "0"}, PLAIN | {"split": "never"}),
    ("/api/translate", {"text": "a", **PAIR}, PLAIN | {"return_attention": True}),
    ("/api/translate", {"text": "a", **PAIR, "alternatives": 3}, SEVERAL | {"return_attention": True}),
]
VECTORS = {"texts": ["a"], "caller": HERE, "long": "error"}
UNIT = VECTORS | {"normalize_embeddings": True}
EMBED = UNIT | {"truncate_dim": None, "prompt_name": None}
EMBEDDINGS = [
    ("/embed", {"inputs": "a"}, EMBED),
    ("/embed", {"inputs": ["a", "b"], "truncate": True}, EMBED | {"texts": ["a", "b"], "long": "truncate"}),
    ("/embed", {"inputs": "a", "normalize": False}, EMBED | {"normalize_embeddings": False}),
    ("/embed", {"inputs": "a", "prompt_name": "query"}, EMBED | {"prompt_name": "query"}),
    ("/embed", {"inputs": "a", "dimensions": 3}, EMBED | {"truncate_dim": 3}),
    ("/v1/embeddings", {"model": "enc", "input": "a"}, VECTORS),
    ("/v1/embeddings", {"model": "enc", "input": ["a", "b"]}, VECTORS | {"texts": ["a", "b"]}),
    ("/v1/embeddings", {"model": "enc", "input": ["2023"]}, VECTORS | {"texts": ["2023"]}),
    ("/v1/embeddings", {"model": "enc", "input": [1, 2]}, VECTORS | {"texts": ["text of [1, 2]"]}),
    ("/v1/embeddings", {"model": "enc", "input": [[1], [2]]}, VECTORS | {"texts": ["text of [1]", "text of [2]"]}),
    ("/v1/embeddings", {"model": "enc", "input": "a", "dimensions": 3}, UNIT | {"truncate_dim": 3}),
]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}]
ANSWER = {"messages": MESSAGES, "details": True, "caller": HERE}
# A field of OpenAI's conversations, and what arrives of it.
CONVERSATION = [
    ({}, {}),
    ({"max_tokens": 7}, {"max_new_tokens": 7}),
    ({"max_completion_tokens": 8}, {"max_new_tokens": 8}),
    ({"max_completion_tokens": 8, "max_tokens": 7}, {"max_new_tokens": 8}),
    ({"temperature": 0.5, "top_p": 0.9}, {"sampling_temperature": 0.5, "sampling_topp": 0.9}),
    ({"temperature": 0, "top_p": 0.9}, {"sampling_topk": 1}),
    ({"top_p": 0.9}, {"sampling_topp": 0.9}),
    ({"presence_penalty": 0.5}, {"presence_penalty": 0.5}),
    ({"frequency_penalty": -0.5}, {"frequency_penalty": -0.5}),
    ({"seed": 0}, {"seed": 0}),
    ({"stop": "b"}, {"stop": "b"}),
    ({"stop": ["b", "c"]}, {"stop": ["b", "c"]}),
    ({"n": 1, "user": "somebody", "stop": None}, {}),
]


@pytest.fixture(scope="module")
def seen():
    """What arrived at models that note it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield record_models(monkeypatch)


@pytest.fixture(scope="module")
def asked(seen):
    with serving(models=MODELS, threads=3, precision="int8") as asked:
        yield asked


def arrived(seen: Seen, call: str) -> dict[str, object]:
    found = {key.removeprefix(f"{call}."): value for key, value in seen.items() if key.startswith(f"{call}.")}
    seen.clear()
    return found


def test_models_are_made_with_their_options(asked, seen):
    for name, kind in (("en-pt", "Translator"), ("enc", "Encoder"), ("rank", "CrossEncoder"), ("lm", "Generator")):
        made = {key: seen[f"{kind}.__init__.{key}"] for key in ("path", "precision", "threads")}
        assert made == {"path": f"path of {name}", "precision": "int8", "threads": 3}
        assert seen.get(f"{kind}.__init__.processes") == (1 if kind in ("Translator", "Encoder") else None)


def test_what_is_asked_of_a_translation_arrives(asked, seen):
    for path, body, expected in TRANSLATIONS:
        for sent, kind in ((body, {}), (urlencode(body, doseq=True), FORM)):
            seen.clear()
            assert asked.raw("POST", path, sent, **kind)[0] == 200, (path, sent)
            assert arrived(seen, "Translator.translate_async") == expected, (path, sent)
    told = {"code": 200, "id": 0, "data": "a 0", "alternatives": ["a 1", "a 2", "a 3"], "method": "Free"}
    assert asked.post("/translate", DEEPLX)[1] == told | GIVEN
    for form in ("q=%ff", "&".join(["q=a"] * 10_001)):
        status, content, _ = asked.raw("POST", "/translate", form, **FORM)
        assert status == 400 and b"the form cannot be read" in content


def test_a_language_that_is_found_is_told_in_percent(asked, monkeypatch):
    looked = []

    def likely(text, among):
        looked.append(among)
        return [(code, share) for code, share in (("en", 0.92376), ("pt", 0.0714)) if code in (among or ("en", "pt"))]

    monkeypatch.setattr("fastattn.serve.service.likely_languages", likely)
    sure, unsure = {"confidence": 92.4, "language": "en"}, {"confidence": 7.1, "language": "pt"}
    assert asked.post("/detect", {"q": "a"}) == (200, [sure, unsure])
    to = {"target": "pt"}
    for path, body, expected in (
        ("/translate", {"q": "a", **to}, {"detectedLanguage": sure}),
        ("/translate", {"q": ["a", "b"], **to, "source": "auto"}, {"detectedLanguage": [sure, sure]}),
        ("/translate", {"text": "a", "target_lang": "PT"}, {"source_lang": "EN"}),
        ("/api/translate", {"text": "a", **to}, {"source": "en"}),
    ):
        assert asked.post(path, body)[1].items() >= expected.items(), (path, body)
    for path, body, name, code in (
        ("/imme", {"text_list": ["a"], "target_lang": "pt"}, "detected_source_lang", "en"),
        ("/v2/translate", {"text": "a", "target_lang": "PT"}, "detected_source_language", "EN"),
    ):
        assert asked.post(path, body)[1]["translations"][0][name] == code, path
    assert looked == [(), *[("en",)] * 7]  # a translation's among those that go to its target


def test_languages_and_models_are_told_apart(asked, seen):
    source = [{"language": "EN", "name": "English"}]
    target = [{"language": "PT", "name": "Portuguese", "supports_formality": False}]
    for more, languages in (("", source), ("?type=source", source), ("?type=target", target)):
        assert asked.get(f"/v2/languages{more}")[1] == languages
    assert json.loads(asked.raw("GET", "/v2/languages", b"type=target", **FORM)[1]) == target
    assert asked.get("/languages")[1] == [{"code": "en", "name": "English", "targets": ["pt"]}]
    assert [one["id"] for one in asked.get("/v1/models")[1]["data"]] == ["enc", "lm"]
    models = asked.get("/api/models")[1]
    assert models == {"pairs": [["en", "pt"]], "names": {"en": "English", "pt": "Portuguese"}, "encoders": ["enc"]}
    limits = asked.get("/frontend/settings")[1]
    assert (limits["charLimit"], limits["batchLimit"], limits["keyRequired"]) == (50_000, 1000, False)


def test_what_is_asked_of_vectors_arrives(asked, seen):
    for path, body, expected in EMBEDDINGS:
        seen.clear()
        assert asked.post(path, body)[0] == 200
        assert arrived(seen, "Encoder.encode_async") == expected, (path, body)
    answer = asked.post("/v1/embeddings", {"model": "enc", "input": ["a", "b"], "encoding_format": "base64"})[1]
    assert answer["usage"] == {"prompt_tokens": 6, "total_tokens": 6} and answer["model"] == "enc"
    assert [one["index"] for one in answer["data"]] == [0, 1]
    assert base64.b64decode(answer["data"][1]["embedding"]) == bytes(4 * WIDTH)
    assert np.shape(asked.post("/embed", {"inputs": ["a", "b"]})[1]) == (2, WIDTH)


def test_what_is_asked_of_scores_arrives(asked, seen):
    texts = [f"t{number}" for number in range(18)]  # more than are scored between two looks
    for more, activation in (({}, {}), ({"raw_scores": True}, {"activation_fn": "none"})):
        seen.clear()
        ranked = asked.post("/rerank", {"query": "q", "texts": texts, **more})[1]
        assert arrived(seen, "CrossEncoder.predict") == {"pairs": [("q", text) for text in texts[16:]]} | activation
        best = [{"index": number, "score": float(number)} for number in range(15, 1, -1)]
        assert ranked == best + [
            {"index": n, "score": score} for n, score in ((1, 1.0), (17, 1.0), (0, 0.0), (16, 0.0))
        ]
    for one in asked.post("/rerank", {"query": "q", "texts": texts, "return_text": True})[1]:
        assert one["text"] == f"t{one['index']}"
    for inputs, arrives, labels in (
        ("a", ["a"], ["a"]),
        (["a", "b"], [("a", "b")], ["('a', 'b')"]),
        ([["a"], ["b", "c"], ["d"]], [("b", "c")], [["a"], ["('b', 'c')"], ["d"]]),
    ):
        answer = asked.post("/predict", {"inputs": inputs})[1]
        assert arrived(seen, "TextClassifier.classify") == {"texts": arrives}
        assert [one["label"] if "label" in one else [one[0]["label"]] for one in answer] == labels
    assert asked.post("/predict", {"inputs": ["a", "b", "c"]})[0] == 400
    fits = "a b c d e"  # with a query or a first text; alone with one word more
    for path, body in (
        ("/rerank", {"query": "q", "texts": [fits]}),
        ("/predict", {"inputs": fits + " f"}),
        ("/predict", {"inputs": ["q", fits]}),
    ):
        assert asked.post(path, body)[0] == 200
        long = json.loads(json.dumps(body).replace(fits, fits + " g"))
        for more, status in (({}, 413), ({"truncate": False}, 413), ({"truncate": True}, 200)):
            assert asked.post(path, long | more)[0] == status


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_asked_of_an_answer_arrives(asked, seen, stream):
    call = "Generator.stream_async" if stream else "Generator.generate_async"
    always = {"messages": MESSAGES, "caller": HERE} if stream else ANSWER
    for body, expected in CONVERSATION if stream else [*CONVERSATION, ({"n": 2}, {"num_hypotheses": 2})]:
        seen.clear()
        asked_for = {"model": "lm", "messages": MESSAGES, "stream": stream, **body}
        status, content, _ = asked.raw("POST", "/v1/chat/completions", asked_for)
        assert status == 200 and arrived(seen, call) == always | expected, body
    if not stream:
        answer = json.loads(content)
        told = [(one["index"], one["message"]["content"], one["finish_reason"]) for one in answer["choices"]]
        assert told == [(0, "answer", "stop"), (1, "other", "length")]
        assert answer["usage"] == {
            "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10,  # of both
            "prompt_tokens_details": {"cached_tokens": 3},  # the first that was read had no more
        }  # fmt: skip
        return
    usage = b'"total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 2}}'
    assert usage not in content and b'"finish_reason": "length"' in content
    body = asked_for | {"stream_options": {"include_usage": True}}
    assert usage in asked.raw("POST", "/v1/chat/completions", body)[1]


def test_the_caller_is_a_key(seen, tmp_path):
    """Callers get equal shares of the work."""
    (tmp_path / "keys").write_text("first\nsecond\n")
    models = tuple(one for one in MODELS if KINDS[one[0]] in (Translator, Encoder, Generator))
    with serving(models=models, keys=str(tmp_path / "keys")) as asked:
        for number, key in enumerate(("first", "second")):
            for path, body, call in (
                ("/translate", {"q": "a", **PAIR}, "Translator.translate_async"),
                ("/embed", {"inputs": "a"}, "Encoder.encode_async"),
                ("/v1/chat/completions", {"model": "lm", "messages": MESSAGES}, "Generator.generate_async"),
            ):
                assert asked.post(path, body, authorization=f"Bearer {key}")[0] == 200
                assert arrived(seen, call)["caller"] == number
        for more, special in (({}, True), ({"add_special_tokens": False}, False)):
            found = asked.post("/tokenize", {"inputs": "a"} | more, authorization="Bearer first")[1]
            assert found == [[{"id": 7, "text": "a", "special": False, "start": 0, "stop": 1}]]
            assert arrived(seen, "Encoder.tokenize") == {"text": "a", "special_tokens": special}


def test_a_client_is_its_own_address_unless_a_proxy_says_whose_it_is(seen):
    """Callers have shares and files by their addresses, which a request must not choose."""
    for proxies, caller in (((), HERE), (("10.0.0.1",), HERE), ((HERE,), "192.0.2.7"), (("*",), "192.0.2.7")):
        with serving(models=MODELS, proxies=proxies) as asked:
            seen.clear()
            assert asked.post("/embed", {"inputs": "a"}, x_forwarded_for="192.0.2.7")[0] == 200
            assert arrived(seen, "Encoder.encode_async")["caller"] == caller


def test_a_full_queue_says_when_to_come_again(asked, monkeypatch):
    full = AsyncMock(side_effect=QueueFullError("9 jobs wait already, 8 may"))
    monkeypatch.setattr(Translator, "translate_async", full)
    status, content, headers = asked.raw("POST", "/translate", {"q": "a", **PAIR})
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(content) == {"error": "9 jobs wait already, 8 may"}


def test_what_is_asked_most_often_is_tried_first():
    """The server tries one route behind another."""
    paths = [route.path for router in ROUTERS for route in router.routes]
    frequent = {"/v1/embeddings", "/translate", "/health", "/ping"}
    assert frequent <= set(paths[:15]) and paths[-1] == "/{token}/translate"
