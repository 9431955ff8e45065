"""OpenAI's conversations, whole and as a stream of events."""

import asyncio
import json
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from prometheus_client import REGISTRY
from tokenizers import AddedToken, Tokenizer, decoders, models

from fastattn import Generator
from fastattn.generation.calls import Generation
from fastattn.serve.dialects.completions import _log_probs
from fastattn.serve.dialects.sampling import chat_log_probs
from tests.generation.language_models import SPECIAL, checkpoint, tokenizer_json
from tests.serve.serving import serving
from tests.weights.native.folders import converted

pytest.importorskip("jinja2")
HELLO = [{"role": "user", "content": "the end"}]
ASKED = {"model": "lm", "messages": HELLO, "max_tokens": 12}
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}a:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = checkpoint()
    made = replace(made, input=replace(made.text, chat_template=TEMPLATE))
    return converted(made, tmp_path_factory.mktemp("served") / "lm", "float32")


@pytest.fixture(scope="module")
def talking(folder):
    with serving(models=(("lm", str(folder)),)) as asked:
        yield asked


def events(asked, body):
    status, content, headers = asked.raw("POST", "/v1/chat/completions", {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in content.decode().split("\n\n")[:-1]]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def cached_tokens():
    return REGISTRY.get_sample_value("fastattn_cached_tokens_total", {"model": "lm"}) or 0


def test_an_answer_is_the_apis(talking, folder):
    counted = cached_tokens()
    wanted = Generator(folder).generate(messages=HELLO, max_new_tokens=12, details=True)
    status, answer = talking.post("/v1/chat/completions", ASKED)
    (choice,) = answer["choices"]
    assert (status, choice["message"]["content"], choice["finish_reason"]) == (200, wanted.text, wanted.finish_reason)
    assert answer["usage"]["completion_tokens"] == len(wanted.tokens)
    streamed = events(talking, {**ASKED, "stream_options": {"include_usage": True}})
    pieces = [one["choices"][0]["delta"].get("content", "") for one in streamed[:-1]]
    assert "".join(pieces) == wanted.text and len(pieces) > 3
    assert streamed[-2]["choices"][0]["finish_reason"] == wanted.finish_reason
    counts = answer["usage"]
    assert counts["prompt_tokens_details"] == {"cached_tokens": 0}  # and all but the last of what was read before
    cached = counts["prompt_tokens"] - 1
    assert streamed[-1]["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": cached}}
    assert cached_tokens() - counted == cached
    _, cut = talking.post("/v1/chat/completions", {**ASKED, "stop": [wanted.text[2:4]]})
    assert cut["choices"][0]["message"]["content"] == wanted.text[: wanted.text.index(wanted.text[2:4])]
    assert cut["choices"][0]["finish_reason"] == "stop"


def test_biases_and_the_most_probable_tokens(talking):
    body = ASKED | {"max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    free, biased = (
        talking.post("/v1/chat/completions", body | fields)[1]["choices"][0]["logprobs"]["content"]
        for fields in ({}, {"logit_bias": {"77": 100}})
    )
    for entry in (*free, *biased):
        best, other = entry.pop("top_logprobs")
        assert best == entry and other["logprob"] < best["logprob"]
    (biased_token,) = {entry["token"] for entry in biased}
    assert biased_token not in {entry["token"] for entry in free} and biased[0]["logprob"] > -1e-6
    status, answer = talking.post("/v1/chat/completions", body | {"logit_bias": {"999": 1}})
    assert status == 400 and "ids below 265" in answer["error"]["message"]


def test_a_prompts_log_probabilities_are_its_score(talking, folder):
    """As an evaluation asks for them: whether the tokens behind the context are each the most probable."""
    prompts, fields = ["the end", "an apple"], {"max_tokens": 1, "logprobs": 2, "echo": True}
    choices = talking.post("/v1/completions", {"model": "lm", "prompt": prompts, **fields})[1]["choices"]
    for choice, score in zip(choices, Generator(folder).score(prompts, top_log_probs=2)):
        shown = choice["logprobs"]
        assert shown["token_logprobs"][0] is shown["top_logprobs"][0] is None
        assert shown["token_logprobs"][1:-1] == score.log_probs.tolist()
        pairs = zip(shown["token_logprobs"][1:], shown["top_logprobs"][1:])
        greedy = [log_prob == max(top.values()) for log_prob, top in pairs]
        assert greedy[:-1] == [[*top][0] == token for token, top in zip(score.tokens[1:], score.top_log_probs)]


def sentencepiece_json():
    """A tokenizer.json of pieces and bytes, as Llama 2 has it."""
    pieces = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "the", "▁", *"abcd"]
    tokenizer = Tokenizer(models.BPE({piece: n for n, piece in enumerate(pieces)}, [], byte_fallback=True))
    steps = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence(list(steps))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer.to_str().encode()


@pytest.mark.parametrize("tokenizer", [tokenizer_json(), sentencepiece_json()], ids=["letters", "pieces"])
def test_tokens_have_texts_and_bytes_of_their_own(tokenizer):
    made = checkpoint()
    generator = Generator.from_checkpoint(replace(made, input=replace(made.text, tokenizer=tokenizer)))
    index = generator._tokenizer._tokenizer.index
    names = [("</s>",), ("Ġthe", "▁the"), ("the",), ("â", "<0xE2>"), ("Ĥ", "<0x82>"), ("¬", "<0xAC>"), ("a", "<0x61>")]
    ids = [next(n for name in several if (n := index(name)) is not None) for several in names]
    texts = ["</s>", " the", "the", "\\xe2", "\\x82", "\\xac", "a"]
    tops = [dict.fromkeys(ids, -1.0)] * len(ids)
    answer = Generation("", ids, 0.0, "stop", 1, np.zeros(len(ids), np.float32), top_log_probs=tops)
    content = chat_log_probs(answer, generator.decode)["content"]
    assert [entry["token"] for entry in content] == texts and content[0]["bytes"] is None
    assert bytes(chain.from_iterable(entry["bytes"] or () for entry in content)).decode() == " thethe€a"
    shown = _log_probs(answer, None, generator.decode)
    assert (shown["tokens"], shown["text_offset"]) == (texts, [0, 0, 4, 7, 8, 8, 8])
    assert [sorted(top) for top in shown["top_logprobs"]] == [sorted(texts)] * len(ids)


def test_wrong_requests_have_their_status(talking):
    wrong = [({"messages": []}, 400), ({"n": 0}, 400), ({"tools": [{}]}, 400), ({"model": "gpt"}, 404)]
    for change, status in (*wrong, ({"n": 2, "stream": True}, 400), *((one | {"stream": True}, s) for one, s in wrong)):
        found, answer = talking.post("/v1/chat/completions", {**ASKED, **change})
        assert found == status and answer["error"]["type"] == "invalid_request_error", change


STRICT = "{% for m in messages if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endfor %}a:"


def test_a_template_that_takes_no_system_message_says_so(tmp_path):
    made = checkpoint()
    folder = converted(replace(made, input=replace(made.text, chat_template=STRICT)), tmp_path / "lm", "float32")
    with serving(models=(("lm", str(folder)),)) as asked:
        for stream in (False, True):
            body = ASKED | {"messages": [{"role": "system", "content": "be"}, *HELLO], "stream": stream}
            status, answer = asked.post("/v1/chat/completions", body)
            assert status == 400 and answer["error"]["message"].endswith("messages: System role not supported")


@pytest.mark.parametrize("pattern", [r"^hello\!$", "^(hello$"])
def test_a_pattern_holds_or_is_refused(talking, pattern):
    """No answer is free text in place of what the pattern demands."""
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": pattern}}}
    status, answer = talking.post("/v1/chat/completions", ASKED | {"response_format": form})
    if status == 200:
        assert answer["choices"][0]["message"]["content"] == '"hello!"'
    else:
        assert (status, answer["error"]["message"]) == (400, "json_schema: unclosed group")


def test_a_stream_that_takes_too_long_ends_with_an_error(folder, monkeypatch):
    async def endless(self, model, messages, **options):
        for number in range(1000):
            yield f"{number} "
            await asyncio.sleep(0.02)

    monkeypatch.setattr("fastattn.serve.service.Service.stream", endless)
    with serving(models=(("lm", str(folder)),), timeout=0.2) as asked:
        status, content, _ = asked.raw("POST", "/v1/chat/completions", {**ASKED, "stream": True})
    *pieces, last, end = content.decode().split("\n\n")
    assert status == 200 and pieces and end == ""
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "no answer within 0.2 s"
