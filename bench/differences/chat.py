"""Conversations by chat templates: the text of transformers' apply_chat_template, or its refusal."""

import random
import re
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, models

from bench.differences import Case
from bench.differences.snippets import statement
from fastattn.errors import FastattnError
from fastattn.text.chat import ChatTemplate

TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("templates/*.jinja")}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
LINES = """Hello
  two words
<think>||long||</think>||Short.
a<|im_end|>b</s>
é ü 你好 👋🏽
{{ a }} {% b %}
'single' & "double" <b>
<tool_response>4</tool_response>
/no_think Why?
None
0"""
TEXTS = [*(line.replace("||", "\n\n") for line in LINES.splitlines()), "", "line\r\nline\n\n", "  \n two \t"]
PARTS: list[Any] = [{"type": "text", "text": " a "}, {"type": "image"}, {"text": "b"}, {"type": "text", "text": "<é>"}]
PARTS += [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}, {"type": "video", "video": "v.mp4"}]
NUMBER, TEXT = {"type": "integer", "default": 3}, {"type": "string", "description": "Where, é", "enum": ["a", "b"]}
FIELDS: dict[str, Any] = {"n": NUMBER, "place": TEXT, "all": {"type": "array", "items": {"type": ["string", "null"]}}}
FIELDS["more"] = {"type": "object", "properties": {"x": NUMBER}, "required": ["x"]}
PARAMETERS = {"type": "object", "properties": FIELDS, "required": ["n"]}
FIND = {"name": "find", "description": "<it>", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": tool} for tool in (FIND, {"name": "now", "description": "", "return": None})]
ARGUMENTS: list[Any] = [{}, {"n": 1, "place": "é<", "all": [None, True, 1.5e-7]}, '{"n": 1}']
SETTINGS: dict[str, list[Any]] = {
    "turns": [1, 2, 4, 7],
    "system": ["", "Be brief.", "  two\n\nlines é /no_think "],
    "roles": [["user"], ["assistant", "user"], ["user", "tool", "assistant"], ["critic", "user"]],
    "parts": ["user", "all"],
    "calls": [1, 2],
    # fastattn requires the content of a user's or a tool's message, before a template sees it.
    "null": ["content", "name", "tool_calls", "reasoning_content", "no content"],
    "thinking": ["reasoning_content", "thinking", "reasoning"],
    "tools": [TOOLS, TOOLS[:1], []],
    "documents": [[{"title": "A", "text": "a"}, {"title": "A", "id": 3}], []],
    "variables": [
        {"enable_thinking": False},
        {"enable_thinking": True, "add_vision_id": True},
        {"date_string": "1 May"},
    ]
    + [{"custom_tools": TOOLS, "tools_in_user_message": False}, {"reasoning_effort": "high"}, {"bos_token": "<b>"}],
    "prompt": [False],
}
CHOICES: dict[str, dict[str, list[Any]]] = dict.fromkeys(TEMPLATES, SETTINGS)
# Half of the bases are snippets.
CHOICES |= {f"snippets {name}": {"first": [True], "second": [True], "third": [True]} for name in TEMPLATES}
ADDRESS = re.compile(" at 0x[0-9a-f]+|0x[0-9a-f]{6,}", re.IGNORECASE)


def compare(case: Case, folder: Path) -> str:
    rng, chosen = random.Random(case.seed), case.chosen
    source, messages = TEMPLATES.get(case.base), _messages(rng, chosen)
    if source is None:  # a statement for each choice, or one without a choice
        source = "\n".join(statement(random.Random(f"{case.seed} {name}")) for name in chosen or ("first",))
    variables = {"tools": chosen.get("tools"), "documents": chosen.get("documents"), **chosen.get("variables", {})}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})), **TOKENS)
    options = {"add_generation_prompt": chosen.get("prompt", True)} | variables
    try:
        expected = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **options)
    except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
        expected, refusal = None, f"{type(error).__name__}: {error}"
    try:
        ours = ChatTemplate(source, TOKENS).render(messages, **options)
    except FastattnError as error:
        ours, refusal = None, str(error)
    # Both leave nulls out; fastattn gives a template that fails without it a content that is null.
    if expected is None and ours is not None and any(message.get("content", "") is None for message in messages):
        return ""
    shown = messages if case.base in TEMPLATES else source
    if None in (ours, expected):
        return "" if ours == expected else f"{shown}: {ours!r}, theirs {expected!r}, {refusal}"
    same = ADDRESS.sub("", ours) == ADDRESS.sub("", expected)
    return "" if same else f"{shown}: {ours!r}, theirs {expected!r}"


def _messages(rng: random.Random, chosen: Any) -> list[dict[str, Any]]:
    roles = chosen.get("roles", ["user", "assistant"])
    messages: list[dict[str, Any]] = [{"role": "system", "content": chosen["system"]}] if "system" in chosen else []
    for i in range(chosen.get("turns", 3)):
        message = {"role": roles[i % len(roles)], "content": rng.choice(TEXTS)}
        is_answer = message["role"] == "assistant"
        if chosen.get("parts") in (message["role"], "all"):
            message["content"] = rng.sample(PARTS, rng.randint(0, 3))
        if message["role"] == "tool":
            message |= {"tool_call_id": "abcdef120", "name": "find"}
        if is_answer and "thinking" in chosen and rng.random() < 0.7:
            message[chosen["thinking"]] = rng.choice(TEXTS)
        if is_answer and "calls" in chosen and rng.random() < 0.7:
            message["tool_calls"] = [
                {"id": f"abcdef12{n}", "type": "function"}
                | {"function": {"name": rng.choice(["find", "now"]), "arguments": rng.choice(ARGUMENTS)}}
                for n in range(chosen["calls"])
            ]
        if is_answer and chosen.get("null") == "no content" and "tool_calls" in message:
            del message["content"]
        elif is_answer and chosen.get("null", "no content") != "no content":
            message[chosen["null"]] = None
        messages.append(message)
    return messages
