"""Parts of a language model's answer: its reasoning, its text, and the tools that it calls.

A call is a JSON object with a name and arguments. Hermes and Qwen put each between <tool_call> and </tool_call>. Llama
3 writes it alone, with "parameters" for arguments, and Mistral writes a list of calls: the marks of both are special
tokens, which the answer's text lacks.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastattn.errors import InputError

THINK, END_OF_THINK, CALL = "<think>", "</think>", "<tool_call>"
CALLS = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
BETWEEN_CALLS = re.compile(r"[\s;,]*")
LLAMA_KEY = '"parameters":'  # a template that asks for calls in Llama 3's format has this


class ToolCall(NamedTuple):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str


class SplitAnswer(NamedTuple):
    reasoning: str
    text: str
    calls: list[ToolCall]


class AnswerParts:
    """Splits an answer that comes in pieces.

    tools      the names of the tools that the model may call
    reasoning  whether the prompt ends within the model's reasoning
    calls      the answer's tool calls, after ``end``
    """

    def __init__(self, tools: Collection[str] = (), reasoning: bool = False):
        # "start": reasoning or an answer follows, "reasoning", "answer": text or calls follow, "content", "calls"
        self._tools, self._text, self._state = tools, "", "reasoning" if reasoning else "start"
        self.calls: list[ToolCall] = []

    def add(self, piece: str) -> list[tuple[str, str]]:
        """The ("reasoning" | "content", text) that the next piece completes."""
        self._text += piece
        return list(self._completed())

    def end(self) -> list[tuple[str, str]]:
        """The ("reasoning" | "content", text) behind what ``add`` has returned, without tool calls."""
        if self._state == "calls":
            self.calls, self._text = read_calls(self._text, self._tools)
        kind = "reasoning" if self._state == "reasoning" else "content"
        return [(kind, self._text)] if self._text else []

    def _completed(self) -> Iterator[tuple[str, str]]:
        if self._state == "start":
            beginning = self._text.lstrip()
            if THINK.startswith(beginning[: len(THINK)]) and len(beginning) < len(THINK):
                return
            self._state = "answer"
            if beginning.startswith(THINK):
                self._state, self._text = "reasoning", beginning.removeprefix(THINK).lstrip("\n")
        if self._state == "reasoning":
            yield from self._until(END_OF_THINK, "reasoning", "answer")
        if self._state == "answer":
            self._text = self._text.lstrip("\n") if self._text.isspace() else self._text
            if not self._text.strip():
                return
            is_call = bool(self._tools) and self._text.lstrip()[0] in "{["
            self._state = "calls" if is_call else "content"
        if self._state == "content":
            yield from self._until(CALL if self._tools else "", "content", "calls")
            if self._state == "calls":
                self._text = CALL + self._text

    def _until(self, mark: str, kind: str, following: str) -> Iterator[tuple[str, str]]:
        """(kind, the text before a mark); keeps characters that may begin the mark. The mark leads to ``following``."""
        before, separator, after = self._text.partition(mark) if mark else (self._text, "", "")
        if separator:
            self._state, self._text = following, after.lstrip("\n") if mark == END_OF_THINK else after
        else:
            overlap = next((n for n in range(min(len(mark) - 1, len(before)), 0, -1) if before.endswith(mark[:n])), 0)
            before, self._text = before[: len(before) - overlap], before[len(before) - overlap :]
        if before:
            yield kind, before


def split_answer(text: str, tools: Collection[str] = (), reasoning: bool = False) -> SplitAnswer:
    """The parts of a whole answer; arguments as in ``AnswerParts``."""
    parts = AnswerParts(tools, reasoning)
    pieces = parts.add(text) + parts.end()
    joined = {kind: "".join(piece for name, piece in pieces if name == kind) for kind in ("reasoning", "content")}
    return SplitAnswer(joined["reasoning"].strip(), joined["content"], parts.calls)


def read_calls(text: str, tools: Collection[str]) -> tuple[list[ToolCall], str]:
    """(the calls, the text around them); ([], the whole text) if a call has another format or names no known tool."""
    sources = CALLS.findall(text) or [text]
    try:
        values = [value for source in sources for value in _json_values(source)]
        calls = [_call(call, tools) for value in values for call in (value if isinstance(value, list) else [value])]
        "".join(call.arguments for call in calls).encode()  # raises a ValueError for a lone surrogate
    except (ValueError, RecursionError):
        return [], text
    if not calls:
        return [], text
    return calls, CALLS.sub("", text).strip() if CALL in text else ""


def _json_values(text: str) -> Iterator[Any]:
    decoder, position = json.JSONDecoder(), 0
    while (match := BETWEEN_CALLS.match(text, position)) and (position := match.end()) < len(text):
        value, position = decoder.raw_decode(text, position)
        yield value


def _call(value: Any, tools: Collection[str]) -> ToolCall:
    keys = set(value) - {"id", "type"} if isinstance(value, dict) else set()
    if keys not in ({"name", "arguments"}, {"name", "parameters"}) or value["name"] not in tools:
        raise ValueError("no call of a known tool")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments are no object")
    return ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False, allow_nan=False))


def call_schema(tools: Sequence[Mapping[str, Any]], name: str | None, template: str) -> dict[str, Any]:
    """The JSON schema of a call of one of the tools (OpenAI's descriptions), or of the tool ``name`` if it is given."""
    chosen_tools = [tool for tool in tools if name is None or tool["name"] == name]
    if not chosen_tools:
        raise InputError(f"tool_choice should name one of the tools, names {name!r}")
    key = "parameters" if LLAMA_KEY in template else "arguments"
    return {"anyOf": [_schema_of(tool, key) for tool in chosen_tools]}


def _schema_of(tool: Mapping[str, Any], key: str) -> dict[str, Any]:
    properties = {"name": {"const": tool["name"]}, key: tool.get("parameters") or {"type": "object"}}
    return {"type": "object", "properties": properties, "required": ["name", key], "additionalProperties": False}
