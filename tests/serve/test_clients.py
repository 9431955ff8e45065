"""What clients send beyond plain requests: unknown fields, tools, rules for answers, pairs to score, Ollama's lines."""

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.errors import InputError
from fastattn.generation.calls import Generation, TextScore
from fastattn.generation.generator import Generator
from fastattn.serve.conversation import Conversation
from fastattn.serve.gate import KeyQuota
from fastattn.serve.models import ServedModel
from fastattn.serve.service import QUOTA, Service
from fastattn.serve.settings import ServerSettings
from fastattn.vectors.sparse import SparseVectors
from tests.serve.recorders import MODELS, record_models
from tests.serve.serving import serving

HELLO = [{"role": "user", "content": "a"}]
PARAMETERS = {"type": "object", "properties": {"x": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "does", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
BROKEN_CALL = {"function": {"name": "f", "arguments": "[1"}}
READ_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": "y"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHOSEN = {
    "type": "object",
    "properties": {"name": {"const": "f"}, "arguments": PARAMETERS},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
# Fields of OpenAI's conversations, and what arrives at the model.
CONVERSATIONS = [
    ({"store": True, "metadata": {"a": "b"}, "parallel_tool_calls": False}, {}),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
     {"messages": [{"role": "user", "content": "a\nb"}]}),
    ({"messages": [{"role": "developer", "content": "a", "name": "n"}]},
     {"messages": [{"role": "system", "content": "a", "name": "n"}]}),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "r", "x": 1},
                   {"role": "tool", "content": "z", "tool_call_id": "1"}]},
     {"messages": [{"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [READ_CALL]},
                   {"role": "tool", "content": "z", "tool_call_id": "1"}]}),
    ({"tools": [TOOL]}, {"template_variables": {"tools": [TOOL]}}),
    ({"tools": [TOOL], "tool_choice": "none"}, {}),
    ({"tools": [TOOL], "tool_choice": "required"},
     {"template_variables": {"tools": [TOOL]}, "json_schema": {"anyOf": [CHOSEN]}}),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
     {"template_variables": {"tools": [TOOL]}, "json_schema": {"anyOf": [CHOSEN]}}),
    ({"response_format": {"type": "text"}}, {}),
    ({"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
     {"json_schema": SCHEMA}),
    ({"chat_template_kwargs": {"enable_thinking": False}}, {"template_variables": {"enable_thinking": False}}),
    ({"tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}},
     {"template_variables": {"enable_thinking": False, "tools": [TOOL]}}),
    ({"min_p": 0.1, "top_k": 5, "repetition_penalty": 1.2},
     {"sampling_minp": 0.1, "sampling_topk": 5, "repetition_penalty": 1.2}),
    ({"min_p": 0.0, "top_k": -1, "presence_penalty": 0, "logit_bias": {}}, {"sampling_topk": 0}),
    ({"repetition_penalty": 1.0, "logit_bias": {"5": 1.5, "6": -100}},
     {"repetition_penalty": 1.0, "logit_bias": {5: 1.5, 6: -100.0}}),
    ({"logprobs": True, "top_logprobs": 20}, {"return_log_probs": True, "top_log_probs": 20}),
]  # fmt: skip
# Fields of Ollama's requests, and what arrives at the model.
OLLAMA = [
    ("chat", {"messages": HELLO}, {"messages": HELLO}),
    ("chat", {"messages": HELLO, "format": "json", "keep_alive": "5m"},
     {"messages": HELLO, "json_schema": {"type": "object"}}),
    ("chat", {"messages": HELLO, "format": SCHEMA, "think": False},
     {"messages": HELLO, "json_schema": SCHEMA, "template_variables": {"enable_thinking": False}}),
    ("chat", {"messages": [{"role": "assistant", "content": "", "thinking": "t", "tool_calls": [
        {"function": {"name": "f", "arguments": {"x": "y"}}}]}, {"role": "tool", "content": "z", "tool_name": "f"}],
        "tools": [TOOL]},
     {"messages": [{"role": "assistant", "content": "", "reasoning_content": "t", "tool_calls": [
         {"type": "function", "function": {"name": "f", "arguments": {"x": "y"}}}]},
         {"role": "tool", "content": "z", "name": "f"}], "template_variables": {"tools": [TOOL]}}),
    ("chat", {"messages": HELLO, "options": {"num_predict": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.9,
                                            "min_p": 0.1, "repeat_penalty": 1.2, "seed": 4, "stop": ["b"], "x": 1}},
     {"messages": HELLO, "max_new_tokens": 7, "sampling_temperature": 0.5, "sampling_topk": 3, "sampling_topp": 0.9,
      "sampling_minp": 0.1, "repetition_penalty": 1.2, "seed": 4, "stop": ["b"]}),
    ("chat", {"messages": HELLO, "options": {"num_predict": -1, "temperature": 0, "top_p": 0.9, "presence_penalty": 0.5,
                                            "frequency_penalty": 0.4}},
     {"messages": HELLO, "sampling_topk": 1, "presence_penalty": 0.5, "frequency_penalty": 0.4}),
    ("generate", {"prompt": "a", "system": "s"}, {"messages": [{"role": "system", "content": "s"}, *HELLO]}),
    ("generate", {"prompt": "a", "raw": True}, {"prompt": "a"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def seen():
    with pytest.MonkeyPatch.context() as monkeypatch:
        seen = record_models(monkeypatch)
        monkeypatch.setattr(Generator, "has_chat_template", True)
        monkeypatch.setattr(Encoder, "encode_tokens", lambda self, texts: [np.zeros((3, 4), np.float32) for _ in texts])
        monkeypatch.setattr(Generator, "max_length", 99)
        monkeypatch.setattr(Generator, "decode", lambda self, ids, exact=False: "".join(f"<{n}>" for n in ids))
        monkeypatch.setattr(Generator, "score", lambda self, texts, **options: [
            TextScore([8, 9], np.float32([-0.5])) for _ in texts])  # fmt: skip
        yield seen


@pytest.fixture(scope="module")
def asked(seen):
    with serving(models=MODELS) as asked:
        yield asked


def arrived(seen, call):
    found = {key.removeprefix(f"{call}."): value for key, value in seen.items() if key.startswith(f"{call}.")}
    return {key: value for key, value in found.items() if key not in ("details", "caller")}


def test_what_conversations_say_arrives(asked, seen):
    for stream in (False, True):
        call = f"Generator.{'stream' if stream else 'generate'}_async"
        for fields, expected in CONVERSATIONS:
            seen.clear()
            body = {"model": "lm", "messages": HELLO, "stream": stream, **fields}
            status, content, _ = asked.raw("POST", "/v1/chat/completions", body)
            assert (status, arrived(seen, call)) == (200, {"messages": HELLO} | expected), (fields, content)
    for fields, words in (
        ({"messages": [{"role": "user", "content": None}]}, "role user should have a content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "content"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1"}}]}]},
            "arguments: Invalid JSON",
        ),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "g"}}}, "names 'g'"),
        ({"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}}, "not both"),
        ({"response_format": {"type": "json_schema"}}, "with a schema"),
    ):
        status, answer = asked.post("/v1/chat/completions", {"model": "lm", "messages": HELLO, **fields})
        assert status == 400 and words in answer["error"]["message"], (fields, answer)


def answering(monkeypatch, text, with_tops=False):
    """Have the language model give this answer, a character at a time in streams."""
    tops = [{1: -0.25, 3: -2.0}, {4: -0.125, 5: -0.375}]
    generation = Generation(text, [1, 2], -1.0, "stop", 5, np.float32([-0.25, -0.5]), top_log_probs=tops * with_tops)

    async def generate(self, prompts=None, **options):
        return generation if prompts is None else [generation for _ in prompts]

    async def stream(self, *prompt, **options):
        await asyncio.sleep(0.01)  # the prompt
        for character in text:
            yield character
        yield generation

    monkeypatch.setattr(Generator, "generate_async", generate)
    monkeypatch.setattr(Generator, "stream_async", stream)


def streamed(asked, path, body):
    content = asked.raw("POST", path, {**body, "stream": True})[1].decode()
    if path.startswith("/api"):
        return [json.loads(line) for line in content.splitlines()]
    return [json.loads(line.removeprefix("data: ")) for line in content.split("\n\n")[:-2]]


def test_answers_have_reasoning_and_calls_apart(asked, monkeypatch):
    answering(monkeypatch, '<think>hm</think>So: <tool_call>{"name": "f", "arguments": {"x": "y"}}</tool_call>')
    body = {"model": "lm", "messages": HELLO, "tools": [TOOL], "logprobs": True}
    (choice,) = asked.post("/v1/chat/completions", body)[1]["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_") and call["function"] == {"name": "f", "arguments": '{"x": "y"}'}
    message = {"role": "assistant", "content": "So: ", "reasoning_content": "hm", "tool_calls": [call]}
    assert (choice["message"], choice["finish_reason"]) == (message, "tool_calls")
    first = {"token": "<1>", "logprob": -0.25, "bytes": [60, 49, 62], "top_logprobs": []}
    assert choice["logprobs"]["content"][0] == first and len(choice["logprobs"]["content"]) == 2
    chunks = [chunk["choices"][0] for chunk in streamed(asked, "/v1/chat/completions", body)]
    deltas = [chunk["delta"] for chunk in chunks]
    for kind, text in (("content", "So: "), ("reasoning_content", "hm")):
        assert "".join(delta.get(kind, "") for delta in deltas) == text
    (streamed_call,) = deltas[-2]["tool_calls"]
    assert streamed_call | {"id": call["id"]} == {"index": 0, **call} and chunks[-1]["finish_reason"] == "tool_calls"
    assert chunks[-1]["logprobs"] == choice["logprobs"]
    body = {"model": "lm:latest", "messages": HELLO, "tools": [TOOL]}
    lines = streamed(asked, "/api/chat", body)
    assert "".join(line["message"]["content"] for line in lines) == "So: "
    assert "".join(line["message"].get("thinking", "") for line in lines) == "hm"
    functions = [{"function": {"name": "f", "arguments": {"x": "y"}}}]
    assert lines[-1]["message"]["tool_calls"] == functions and [line["done"] for line in lines[-2:]] == [False, True]
    whole = asked.post("/api/chat", {**body, "stream": False})[1]
    expected = {"role": "assistant", "content": "So: ", "thinking": "hm", "tool_calls": functions}
    assert whole["message"] == expected and (whole["eval_count"], whole["done_reason"]) == (2, "stop")
    assert whole["total_duration"] >= 1e7


def test_the_most_probable_tokens(asked, monkeypatch):
    answering(monkeypatch, "bc", with_tops=True)
    body = {"model": "lm", "messages": HELLO, "logprobs": True, "top_logprobs": 2}
    first, second = asked.post("/v1/chat/completions", body)[1]["choices"][0]["logprobs"]["content"]
    entry = {"token": "<1>", "logprob": -0.25, "bytes": [60, 49, 62]}
    assert first == entry | {"top_logprobs": [entry, {"token": "<3>", "logprob": -2.0, "bytes": [60, 51, 62]}]}
    assert [top["token"] for top in second["top_logprobs"]] == ["<4>", "<5>"]
    end = streamed(asked, "/v1/chat/completions", body)[-1]["choices"][0]
    assert end["logprobs"]["content"] == [first, second]
    body = {"model": "lm", "prompt": [7], "logprobs": 2}
    tops = [{"<1>": -0.25, "<3>": -2.0}, {"<2>": -0.5, "<4>": -0.125, "<5>": -0.375}]  # with the chosen token
    assert asked.post("/v1/completions", body)[1]["choices"][0]["logprobs"]["top_logprobs"] == tops
    score = TextScore([8, 9], np.float32([-0.5]), [{7: -0.25}])
    monkeypatch.setattr(Generator, "score", lambda *given, **options: [score])
    echo = asked.post("/v1/completions", body | {"echo": True})[1]["choices"][0]["logprobs"]
    assert echo["top_logprobs"] == [None, {"<9>": -0.5, "<7>": -0.25}, *tops] and len(echo["token_logprobs"]) == 4
    monkeypatch.setattr(
        Generator, "decode", lambda *given, **options: "x"
    )  # of one text the most probable token counts
    tops = [{"x": -0.25}, {"x": -0.125}]
    assert asked.post("/v1/completions", body)[1]["choices"][0]["logprobs"]["top_logprobs"] == tops


def test_prompts_may_have_answers_in_different_numbers(asked, monkeypatch):
    """A beam may end with fewer answers than are wanted; samples of a prompt share what the cache had."""
    others = (Generation("b", [1, 2], -1.0, "stop", 5, cached_tokens=4),) * 2
    answers = [
        Generation("a", [1], -1.0, "stop", 5, alternatives=others, cached_tokens=3),
        Generation("c", [1, 2, 3], -1.0, "stop", 7, cached_tokens=2),
    ]

    async def generate(self, prompts, **options):
        return answers

    monkeypatch.setattr(Generator, "generate_async", generate)
    read = 'fastattn_cached_tokens_total{model="lm"} '
    before = asked.raw("GET", "/metrics")[1].decode().partition(read)[2].partition("\n")[0] or 0
    answer = asked.post("/v1/completions", {"model": "lm", "prompt": ["p ", "q "], "n": 3, "echo": True})[1]
    assert [choice["text"] for choice in answer["choices"]] == ["p a", "p b", "p b", "q c"]
    usage = {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}
    assert answer["usage"] == usage | {"prompt_tokens_details": {"cached_tokens": 5}}
    after = asked.raw("GET", "/metrics")[1].decode().partition(read)[2].partition("\n")[0]
    assert float(after) - float(before) == 5


def test_an_answer_is_finished_while_its_model_is_in_use(seen, monkeypatch):
    answering(monkeypatch, "bc")
    service = Service(ServerSettings(MODELS, lazy=True))

    def users(answers):
        service.models.close_unused(idle_seconds=0.0)
        return service.models.entries[answers.model].users, answers.decode([1])

    async def finish():
        QUOTA.set(KeyQuota())
        await service.models.load_all()
        chat = await service.converse("lm", Conversation(HELLO, [], "auto", {}, {}), users)
        return chat, await service.complete("lm", ["a"], users)

    assert asyncio.run(finish()) == ((1, "<1>"), (1, "<1>"))


def test_a_prompt_that_ends_in_reasoning(asked, monkeypatch):
    template = SimpleNamespace(source="<think>", render=lambda *given, **variables: "...<think>\n")
    monkeypatch.setattr(Generator, "chat_template", template)
    answering(monkeypatch, "hm</think>Yes.")
    (choice,) = asked.post("/v1/chat/completions", {"model": "lm", "messages": HELLO})[1]["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("hm", "Yes.")


def test_continuations(asked, monkeypatch):
    answering(monkeypatch, "bc")
    body = {"model": "lm", "prompt": "a"}
    answer = asked.post("/v1/completions", body)[1]
    assert answer["choices"] == [{"index": 0, "text": "bc", "logprobs": None, "finish_reason": "stop"}]
    numbers = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    assert answer["usage"] == numbers | {"prompt_tokens_details": {"cached_tokens": 0}}
    several = asked.post("/v1/completions", body | {"prompt": [[1], [2, 3]], "echo": True, "logprobs": 0})[1]
    assert [choice["text"] for choice in several["choices"]] == ["<1>bc", "<2><3>bc"]
    assert several["choices"][1]["logprobs"] == {
        "tokens": ["<8>", "<9>", "<1>", "<2>"], "token_logprobs": [None, -0.5, -0.25, -0.5], "top_logprobs": None,
        "text_offset": [0, 3, 6, 9],
    }  # fmt: skip
    assert several["usage"]["prompt_tokens"] == 10
    chunks = streamed(asked, "/v1/completions", body | {"stream_options": {"include_usage": True}})
    assert (
        "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == "bc" and chunks[-1]["usage"] == answer["usage"]
    )
    assert asked.post("/v1/completions", body | {"prompt": ["a", "b"], "stream": True})[0] == 400
    assert [line["response"] for line in streamed(asked, "/api/generate", {"model": "lm", "prompt": "a"})] == [
        "b",
        "c",
        "",
    ]
    assert asked.post("/api/generate", {"model": "lm", "prompt": "a", "stream": False})[1]["response"] == "bc"


def test_what_ollamas_clients_ask_arrives(asked, seen):
    for route, fields, expected in OLLAMA:
        seen.clear()
        assert asked.raw("POST", f"/api/{route}", {"model": "lm:latest", **fields})[0] == 200, fields
        assert arrived(seen, "Generator.stream_async") == expected, fields
    seen.clear()
    answer = asked.post("/api/embed", {"model": "enc", "input": ["a", "b"], "truncate": False})[1]
    assert len(answer["embeddings"]) == 2 and answer["prompt_eval_count"] == 6
    assert arrived(seen, "Encoder.encode_async")["long"] == "error"
    assert len(asked.post("/api/embeddings", {"model": "enc", "prompt": "a"})[1]["embedding"]) == 4
    assert [model["name"] for model in asked.get("/api/tags")[1]["models"]] == ["enc:latest", "lm:latest"]
    assert asked.get("/api/ps")[1]["models"] and asked.get("/api/version")[1]["version"]
    assert asked.post("/api/show", {"name": "lm"})[1]["capabilities"] == ["completion"]
    assert asked.post("/api/show", {"model": "nothing"}) == (404, {"error": "no such model; there are enc, lm"})


def test_ranks_and_scores(asked, seen):
    body = {"model": "rank", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True}
    for path in ("/v1/rerank", "/v2/rerank"):
        answer = asked.post(path, body)[1]
        assert answer["results"] == [{"index": 1, "relevance_score": 1.0, "document": {"text": "b"}}]
        assert arrived(seen, "CrossEncoder.predict") == {"pairs": [("q", "a"), ("q", "b")]}
        assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
        assert answer["meta"]["billed_units"] == {"search_units": 1}
    for first, second, pairs in (
        ("q", ["a", "b"], [("q", "a"), ("q", "b")]),
        (["p", "q"], ["a", "b"], [("p", "a"), ("q", "b")]),
    ):
        answer = asked.post("/score", {"text_1": first, "text_2": second})[1]
        assert [entry["score"] for entry in answer["data"]] == [0.0, 1.0] and answer["usage"]["total_tokens"] == 4
        assert arrived(seen, "CrossEncoder.predict") == {"pairs": pairs}
    assert asked.post("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]})[0] == 400
    assert 'fastattn_tokens_total{direction="in",model="rank"}' in asked.raw("GET", "/metrics")[1].decode()


def test_vectors_of_the_inference_server(monkeypatch):
    models = {"enc": Encoder, "my-splade": SparseEncoder}
    with pytest.MonkeyPatch.context() as patch:
        seen = record_models(patch)
        patch.setattr(ServedModel, "read_kind", lambda self: setattr(self, "kind", models[self.name]))
        patch.setattr(SparseEncoder, "__init__", lambda self, *given, **options: None)
        patch.setattr(SparseEncoder, "close", lambda self: None)
        sparse = SparseVectors(np.float32([2, 3]), np.int32([5, 7]), np.int64([0, 2]), (1, 9))
        patch.setattr(SparseEncoder, "encode", lambda self, texts, **options: sparse)
        patch.setattr(SparseEncoder, "dimension", 9)
        patch.setattr(Encoder, "encode_tokens", lambda self, texts: [np.zeros((3, 4), np.float32) for _ in texts])
        patch.setattr(Encoder, "similarity", lambda self, a, b: np.arange(len(b), dtype=np.float32)[None])
        patch.setattr(SparseEncoder, "max_length", 12)
        prompts = SimpleNamespace(prompts={"query": "q " * 9, "text": "t "}, default_prompt="text")
        patch.setattr(SparseEncoder, "_text", prompts, raising=False)
        for kind in (Encoder, SparseEncoder):
            patch.setattr(kind, "tokenize", lambda self, text, **options: text.split())
        with serving(models=tuple((name, "nowhere") for name in models)) as asked:
            assert np.shape(asked.post("/embed_all", {"inputs": "a"})[1]) == (1, 3, 4)
            entries = [{"index": 5, "value": 2.0}, {"index": 7, "value": 3.0}]
            assert json.dumps(asked.post("/embed_sparse", {"inputs": "a"})[1]) == json.dumps([entries])
            inputs = {"source_sentence": "a", "sentences": ["b", "c"]}
            for path in ("/similarity", "/"):
                assert asked.post(path, {"inputs": inputs})[1] == [0.0, 1.0]
            assert np.shape(asked.post("/", {"inputs": ["a", "b"]})[1]) == (2, 4)
            assert asked.post("/", {"inputs": "a", "stream": 0})[0] == 400
            assert asked.post("/decode", {"ids": [1, 2]})[1] == ["text of [1, 2]"]
            long, query = {"inputs": "a " * 13}, {"inputs": "a " * 4, "prompt_name": "query"}
            prompted = {"inputs": "a " * 12}
            for path, body in (("/embed_all", long), ("/embed_sparse", prompted), ("/embed_sparse", query)):
                for more, status in (({}, 413), ({"truncate": False}, 413), ({"truncate": True}, 200)):
                    assert asked.post(path, body | more)[0] == status, (path, more)
            for more, wanted in (({}, "error"), ({"truncate": False}, "error"), ({"truncate": True}, "truncate")):
                assert asked.post("/similarity", {"inputs": inputs, "parameters": more})[0] == 200
                assert seen["Encoder.encode_async.long"] == wanted
            info = asked.get("/info")[1]
            assert (info["model_id"], info["max_input_length"], info["model_type"]) == (
                "enc",
                12,
                {"embedding": {"pooling": "model"}},
            )
            assert asked.raw("GET", "/ping")[0] == 200


def test_unknown_fields_are_counted_and_logged_once_or_refused(seen, capfd):
    body = {"model": "enc", "input": "a", "wished": 1}
    with serving(models=MODELS) as asked:
        before = asked.raw("GET", "/metrics")[1].decode().count("fastattn_unknown_fields_total{")
        assert [asked.post("/v1/embeddings", body)[0] for _ in range(2)] == [200, 200]
        assert 'fastattn_unknown_fields_total{body="EmbeddingsBody"} ' in asked.raw("GET", "/metrics")[1].decode()
    assert capfd.readouterr().err.count('{"unknown_field": "wished", "body": "EmbeddingsBody"}') == 1 and before >= 0
    with serving(models=MODELS, strict=True) as asked:
        status, answer = asked.post("/v1/embeddings", body)
        assert status == 400 and "the field 'wished' is not known" in answer["error"]["message"]
        assert asked.post("/v1/embeddings", {"model": "enc", "input": "a"})[0] == 200
        messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
        assert asked.post("/v1/chat/completions", {"model": "lm", "messages": messages})[0] == 200


def test_every_route_takes_from_the_quota(seen, tmp_path):
    (tmp_path / "keys").write_text("bounded 40\n")
    talk = {"model": "lm", "messages": [{"role": "user", "content": "c" * 30}]}
    tools = {"model": "lm", "messages": HELLO, "tools": [TOOL]}
    ids = {"model": "lm", "prompt": [1] * 30}
    for path, body in (
        ("/v1/chat/completions", talk), ("/v1/chat/completions", talk | {"stream": True}), ("/api/chat", talk),
        ("/v1/chat/completions", tools), ("/v1/completions", ids), ("/v1/completions", ids | {"stream": True}),
        ("/v1/rerank", {"query": "q" * 15, "documents": ["d" * 15]}), ("/embed_all", {"inputs": "a" * 30}),
        ("/score", {"text_1": "q" * 15, "text_2": "d" * 15}), ("/decode", {"ids": [1] * 30}),
        ("/v1/embeddings", {"model": "enc", "input": [7] * 30}),
        ("/v2/glossaries", {"name": "n", "source_lang": "en", "target_lang": "pt", "entries": "a\t" + "b" * 30}),
    ):  # fmt: skip
        with serving(models=MODELS, keys=str(tmp_path / "keys")) as bounded:
            key = {"authorization": "Bearer bounded"}
            answers = [bounded.raw("POST", path, body, **key)[0] for _ in range(2)]
            assert answers[0] in (200, 201, 413) and answers[1] in (413, 429), (path, answers)


def test_a_fault_is_the_last_line_of_a_stream(asked, monkeypatch):
    async def stream(self, **options):
        yield "a"
        raise InputError("too much")

    monkeypatch.setattr(Generator, "stream_async", stream)
    body = {"model": "lm", "messages": HELLO, "stream": True}
    content = asked.raw("POST", "/v1/chat/completions", body)[1].decode()
    assert '"too much"' in content.split("\n\n")[-2] and "[DONE]" not in content
    assert json.loads(asked.raw("POST", "/api/chat", body)[1].splitlines()[-1]) == {"error": "too much"}


def test_an_answer_with_a_form_is_neither_reasoning_nor_a_call(asked, monkeypatch):
    template = SimpleNamespace(source="<think>", render=lambda *given, **variables: "...<think>")
    monkeypatch.setattr(Generator, "chat_template", template)
    answering(monkeypatch, '{"name": "f", "arguments": {}}')
    body = {"model": "lm", "messages": HELLO, "tools": [TOOL]}
    form = {"response_format": {"type": "json_object"}}
    (choice,) = asked.post("/v1/chat/completions", body | form)[1]["choices"]
    assert choice["message"] == {"role": "assistant", "content": '{"name": "f", "arguments": {}}'}
    (choice,) = asked.post("/v1/chat/completions", body | {"tool_choice": "required"})[1]["choices"]
    assert choice["finish_reason"] == "tool_calls"


def test_what_nothing_would_follow_is_refused(asked):
    for fields in (
        {"top_logprobs": 2}, {"top_logprobs": 21, "logprobs": True}, {"logit_bias": {"5": 101}},
        {"logit_bias": {"a": 1}}, {"logit_bias": {str(n): 1 for n in range(1025)}}, {"tool_choice": "required"},
        {"chat_template_kwargs": {"messages": []}}, {"chat_template_kwargs": {"tools": []}, "tools": [TOOL]},
    ):  # fmt: skip
        assert asked.post("/v1/chat/completions", {"model": "lm", "messages": HELLO, **fields})[0] == 400, fields
    nothing = {"stream": None, "logprobs": None, "top_logprobs": 0, "logit_bias": {}}
    assert asked.post("/v1/chat/completions", {"model": "lm", "messages": HELLO, **nothing})[0] == 200
    assert asked.post("/v1/completions", {"model": "lm", "prompt": []})[0] == 400
