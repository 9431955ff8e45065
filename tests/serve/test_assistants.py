"""The Model Context Protocol over HTTP and on stdin and stdout, and OpenAI's responses."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from fastattn import Generator
from fastattn.errors import FastattnError
from fastattn.serve.dialects import mcp
from fastattn.serve.dialects.mcp import run_stdio
from fastattn.serve.dialects.responses import ResponsesBody
from fastattn.serve.settings import ServerSettings
from tests.generation.language_models import checkpoint
from tests.serve.recorders import record_models
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
        (message("tools/call", name=["embed"]), -32602),
        (message("ping", number={}), -32600),
        (message("ping", number=1.5), -32600),
        (message("tools/call", name="embed", arguments=[]), None),
        (call("embed"), None),
        (call("translate", texts=["a"], target="xx"), None),
        (call("translate_document", content="!", form="docx", target="pt", source="en"), None),
        (call("translate_document", content="\u00e9", form="docx", target="pt", source="en"), None),
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
    assert asked.post("/mcp", message("ping"), origin="http://[")[0] == 403
    # The name of another page, which leads to this server now.
    led = {"origin": f"http://evil.example:{asked.port}", "host": f"evil.example:{asked.port}"}
    assert asked.post("/mcp", message("ping"), **led)[0] == 403


def test_a_document_of_text_is_text_whatever_it_says_of_its_charset(asked):
    page = {"content": "<meta charset=iso-8859-1><p>José 你</p>", "form": "html", "source": "en", "target": "pt"}
    assert "José" in text_of(asked.post("/mcp", call("translate_document", **page))[1])
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=iso-8859-1\\n"\n\n'
    po = head + '# José\nmsgid "Good morning."\nmsgstr ""\n'
    translated = text_of(asked.post("/mcp", call("translate_document", **page | {"content": po, "form": "po"}))[1])
    assert "# José" in translated and 'msgstr "Bom dia."' in translated


def test_stdin_and_stdout(pulled):
    lines = [message("ping", 1), {"method": "notifications/initialized"}, call("translate", texts=["Hi."], target="pt")]
    data = b"\n".join([*(json.dumps(line).encode() for line in lines), b"{"]) + b"\n"
    output = io.BytesIO()
    run_stdio(ServerSettings((("en-pt", str(pulled("en-pt"))),), threads=1), io.BytesIO(data), output)
    answers = [json.loads(line) for line in output.getvalue().splitlines()]
    assert len(answers) == 3 and {"jsonrpc": "2.0", "id": 1, "result": {}} in answers
    assert sorted(answer.get("error", {}).get("code", 0) for answer in answers) == [-32700, 0, 0]


def answers_of(settings, *lines):
    output = io.BytesIO()
    run_stdio(settings, io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)), output)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_options_arrive_on_stdin(pulled, monkeypatch):
    settings = ServerSettings((("en-pt", str(pulled("en-pt"))),), threads=1, strict=True, lazy=True)
    (answer,) = answers_of(settings, call("translate", texts=["Hi."], target="pt", source="en", wished=1))
    assert answer["result"]["isError"] and "wished" in answer["result"]["content"][0]["text"]
    slow = mcp.TOOLS["embed"]._replace(call=lambda service, body: asyncio.sleep(60))
    monkeypatch.setitem(mcp.TOOLS, "embed", slow)
    (answer,) = answers_of(replace(settings, timeout=0.01), call("embed", texts=["a"]) | {"id": 7})
    assert (answer["id"], answer["error"]["code"]) == (7, -32603)


def test_a_fault_is_answered_on_stdin_and_prints_are_no_answers(monkeypatch, capsys):
    async def fault(service, body):
        sys.stdout.write("a line for people\n")
        raise RuntimeError("a fault")

    monkeypatch.setitem(mcp.TOOLS, "embed", mcp.TOOLS["embed"]._replace(call=fault))
    answers = answers_of(ServerSettings(()), message("ping", 1), call("embed", texts=["a"]) | {"id": "b"})
    assert sorted(str(answer["id"]) for answer in answers) == ["1", "b"]
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32603]
    said = capsys.readouterr()
    assert not said.out and "a line for people" in said.err and "a fault" in said.err


def test_an_idle_model_of_stdin_mode_is_put_away_and_comes_back(monkeypatch):
    seen, (reading, writing), output = record_models(monkeypatch), os.pipe(), io.BytesIO()
    settings, lines = ServerSettings((("enc", "nowhere"),), idle=0.05), os.fdopen(reading, "rb")
    server = threading.Thread(target=run_stdio, args=(settings, lines, output))
    server.start()
    with lines, os.fdopen(writing, "wb", 0) as client:
        for number in (1, 2):
            client.write(json.dumps(call("embed", texts=["a"]) | {"id": number}).encode() + b"\n")
            deadline = time.monotonic() + 60
            while len(seen.get("closed", ())) < number:
                assert server.is_alive() and time.monotonic() < deadline
                time.sleep(0.01)
        client.close()
        server.join(60)
    answers = [json.loads(line) for line in output.getvalue().splitlines()]
    assert not server.is_alive() and [answer["id"] for answer in answers] == [1, 2]
    assert not any(answer["result"]["isError"] for answer in answers)


SERVE = [sys.executable, "-m", "fastattn", "serve"]


def test_an_interrupt_ends_stdin_mode_at_once(pulled):
    command = [*SERVE, "-m", str(pulled("en-pt")), "--lazy", "--mcp"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as process:
        process.stdin.write(json.dumps(message("ping")).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"] == {}
        process.send_signal(signal.SIGINT)
        process.wait(20)  # while its input is open
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 130 and b"Traceback" not in said


@pytest.mark.parametrize("options", [["-m", "./nothing-here"], ["-m", "./nothing-here", "--keys", "k"]])
def test_what_stdin_mode_refuses(options):
    done = subprocess.run([*SERVE, *options, "--mcp"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode not in (0, 1) and not done.stdout and "Traceback" not in done.stderr


def test_closed_input(pulled):
    command = f"exec {' '.join(SERVE)} -m {pulled('en-pt')} --lazy --mcp <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode and "standard input" in done.stderr and "Traceback" not in done.stderr


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
    again = talking.post("/v1/responses", ASKED | {"input": as_items})[1]
    assert again["output"][0]["content"] == item["content"]
    cached = {"cached_tokens": answer["usage"]["input_tokens"] - 1}
    assert again["usage"] == answer["usage"] | {"input_tokens_details": cached}
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


def conversation_of(*items, **fields):
    return list(ResponsesBody.model_validate({"model": "lm", "input": list(items), **fields}).conversation().messages)


def test_an_output_may_come_back_as_input():
    """A thought, the text and the calls of an answer are one message for the template."""
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    part = {"type": "output_text", "text": "so", "annotations": []}
    text = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    calls = [
        {"type": "function_call", "id": "f", "call_id": name, "name": name, "arguments": "{}", "status": "completed"}
        for name in "gh"
    ]
    result = {"type": "function_call_output", "call_id": "g", "output": [{"type": "input_text", "text": "end"}]}
    user = {"role": "user", "content": "the"}
    messages = conversation_of(user, thought, text, *calls, result)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    answer = messages[1]
    assert (answer["content"], answer["reasoning_content"]) == ("so", "hm")
    assert [one["function"]["name"] for one in answer["tool_calls"]] == ["g", "h"] and messages[2]["content"] == "end"
    unknown = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
    assert conversation_of(user, unknown) == [user]
    assert conversation_of(user, tools=None, text=None) == [user]


THINKING = TEMPLATE + "{# <think> </think> #}{{ '<think>' }}"


def events_of(asked, body):
    content = asked.raw("POST", "/v1/responses", body | {"stream": True})[1].decode()
    return [json.loads(block.split("data: ", 1)[1]) for block in content.split("\n\n")[:-1]]


def test_every_item_of_a_stream_begins_grows_and_ends(tmp_path_factory):
    made = checkpoint()
    made = replace(made, input=replace(made.text, chat_template=THINKING))
    folder = converted(made, tmp_path_factory.mktemp("served") / "thinking", "float32")
    with serving(models=(("lm", str(folder)),)) as asked:
        body = ASKED | {"input": "the", "max_output_tokens": 4}
        whole, events = asked.post("/v1/responses", body)[1], events_of(asked, body)
    output = list[dict]()
    for event in events:  # as openai's client puts a response together
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(output)
                output.append(event["item"])
            case "content_part.added":
                output[event["output_index"]]["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta":
                output[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
    wanted = [(item["type"], item["content"], item["status"]) for item in whole["output"]]
    assert wanted[0][0] == "reasoning" and wanted[-1][2] == "incomplete"
    assert [(item["type"], item["content"]) for item in output] == [one[:2] for one in wanted]
    last = events[-1]["response"]["output"]
    assert [(item["type"], item["content"], item["status"]) for item in last] == wanted


def test_an_error_within_a_stream_is_an_event_of_its_type(talking, monkeypatch):
    async def broken(self, model, conversation):
        yield "content", "a"
        raise FastattnError("broken")

    monkeypatch.setattr("fastattn.serve.service.Service.stream", broken)
    last = events_of(talking, ASKED)[-1]
    assert (last["type"], last["message"]) == ("error", "broken")
