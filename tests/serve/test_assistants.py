"""The Model Context Protocol over HTTP and on stdin and stdout, and OpenAI's responses."""

import io
import json
from dataclasses import replace

import pytest

from fastattn import Generator
from fastattn.serve.dialects.mcp import run_stdio
from fastattn.serve.settings import ServerSettings
from tests.generation.language_models import checkpoint
from tests.serve.serving import serving
from tests.serve.test_conversations import TEMPLATE
from tests.weights.native.folders import converted

pytest.importorskip("jinja2")


def message(method, number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(tool, **arguments):
    return message("tools/call", name=tool, arguments=arguments)


def text_of(answer):
    assert not answer["result"]["isError"], answer
    return json.loads(answer["result"]["content"][0]["text"])


def test_a_session(asked):
    started = asked.post("/mcp", message("initialize", protocolVersion="2025-03-26"))[1]["result"]
    assert started["protocolVersion"] == "2025-03-26" and started["serverInfo"]["name"] == "fastattn"
    assert (
        asked.post("/mcp", message("initialize", protocolVersion="1"))[1]["result"]["protocolVersion"] == "2025-06-18"
    )
    assert asked.raw("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})[:2] == (202, b"")
    assert asked.post("/mcp", message("ping")) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    tools = {tool["name"]: tool for tool in asked.post("/mcp", message("tools/list"))[1]["result"]["tools"]}
    assert list(tools) == ["translate", "translate_document", "embed", "search"]
    assert tools["translate"]["inputSchema"]["required"] == ["texts", "target"]


def test_tools(asked):
    translated = text_of(asked.post("/mcp", call("translate", texts=["Good morning."], target="pt", source="en"))[1])
    assert translated == ["Bom dia."]
    page = {"content": "<p>Good <b>morning</b>.</p>", "form": "html", "source": "en", "target": "pt"}
    assert text_of(asked.post("/mcp", call("translate_document", **page))[1]) == "<p>Bom <b>dia</b>.</p>"
    (vector,) = text_of(asked.post("/mcp", call("embed", texts=["a cat"]))[1])
    assert len(vector) == 384
    texts = ["Interest rates rose.", "A cat sleeps.", "It rains."]
    found = text_of(asked.post("/mcp", call("search", query="a kitten naps", texts=texts, top_k=2))[1])
    assert [one["text"] for one in found][0] == "A cat sleeps." and found[0]["index"] == 1 and len(found) == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (message("x"), -32601),
        (call("x"), -32602),
        ([], -32600),
        ({"id": 1}, -32600),
        (message("tools/call", name="embed", arguments=[]), None),
        (call("embed"), None),
        (call("translate", texts=["a"], target="xx"), None),
        (call("translate_document", content="!", form="docx", target="pt", source="en"), None),
    ],
)
def test_wrong_messages(asked, body, code):
    status, answer = asked.post("/mcp", body)
    if code is None:
        assert status == 200 and answer["result"]["isError"] and answer["result"]["content"][0]["text"]
    else:
        assert answer["error"]["code"] == code and "result" not in answer


def test_pages_of_other_origins_may_not_ask(asked):
    assert asked.post("/mcp", message("ping"), origin="http://evil.example")[0] == 403
    assert asked.post("/mcp", message("ping"), origin=f"http://127.0.0.1:{asked.port}")[0] == 200


def test_stdin_and_stdout(pulled):
    lines = [message("ping", 1), {"method": "notifications/initialized"}, call("translate", texts=["Hi."], target="pt")]
    data = b"\n".join([*(json.dumps(line).encode() for line in lines), b"{"]) + b"\n"
    output = io.BytesIO()
    run_stdio(ServerSettings((("en-pt", str(pulled("en-pt"))),), threads=1), io.BytesIO(data), output)
    answers = [json.loads(line) for line in output.getvalue().splitlines()]
    assert len(answers) == 3 and {"jsonrpc": "2.0", "id": 1, "result": {}} in answers
    assert sorted(answer.get("error", {}).get("code", 0) for answer in answers) == [-32700, 0, 0]


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    made = checkpoint()
    made = replace(made, input=replace(made.text, chat_template=TEMPLATE))
    folder = converted(made, tmp_path_factory.mktemp("served") / "lm", "float32")
    with serving(models=(("lm", str(folder)),)) as asked:
        asked.folder = folder
        yield asked


ASKED = {"model": "lm", "input": "the end", "max_output_tokens": 12}


def test_a_response_is_the_apis(talking):
    wanted = Generator(talking.folder).generate(
        messages=[{"role": "user", "content": "the end"}], max_new_tokens=12, details=True
    )
    status, answer = talking.post("/v1/responses", ASKED)
    (item,) = answer["output"]
    assert (status, item["content"][0]["text"]) == (200, wanted.text)
    assert answer["status"] == {"length": "incomplete", "stop": "completed"}[wanted.finish_reason]
    assert answer["usage"]["output_tokens"] == len(wanted.tokens)
    as_items = [{"role": "user", "content": [{"type": "input_text", "text": "the end"}]}]
    assert talking.post("/v1/responses", ASKED | {"input": as_items})[1]["output"][0]["content"] == item["content"]
    status, content, _ = talking.raw("POST", "/v1/responses", ASKED | {"stream": True})
    blocks = [block.split("\n") for block in content.decode().split("\n\n")[:-1]]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == wanted.text and len(deltas) > 3
    assert events[-1]["response"]["output"][0]["content"] == item["content"]
    assert events[-1]["response"]["status"] == answer["status"]


@pytest.mark.parametrize(
    "change",
    [
        {"previous_response_id": "resp_1"},
        {"input": []},
        {"input": [{"type": "image"}]},
        {"tools": [{"type": "web_search"}]},
        {"text": {"format": {"type": "json_schema", "name": "x"}}},
        {"input": [{"type": "function_call", "name": "f", "arguments": "no"}]},
    ],
)
def test_wrong_responses(talking, change):
    status, answer = talking.post("/v1/responses", ASKED | change)
    assert status == 400 and answer["error"]["type"] == "invalid_request_error"


def test_calls_of_tools_go_through_the_template(talking):
    items = [
        {"role": "user", "content": "the"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "end"},
    ]
    body = ASKED | {"input": items, "instructions": "be", "text": {"format": {"type": "text"}}}
    status, answer = talking.post("/v1/responses", body)
    same = [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "the"},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "end"},
    ]
    wanted = Generator(talking.folder).generate(messages=same, max_new_tokens=12)
    assert (status, answer["output"][0]["content"][0]["text"], answer["instructions"]) == (200, wanted, "be")
