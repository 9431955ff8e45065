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
LLAMA = '"parameters":'  # in a template that asks for calls in Llama 3's form


class ToolCall(NamedTuple):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class SplitAnswer(NamedTuple):
    """An answer's parts."""

    reasoning: str
    text: str
    calls: list[ToolCall]


class AnswerParts:
    """Splits an answer that comes in pieces.

    tools      the names of the tools that the model may call
    reasoning  whether the prompt ends within the model's reasoning
    calls      after ``end``, what the answer calls
    """

    def __init__(self, tools: Collection[str] = (), reasoning: bool = False):
        self._tools, self._text, self._state = tools, "", "reasoning" if reasoning else "start"
        self.calls: list[ToolCall] = []

    def add(self, piece: str) -> list[tuple[str, str]]:
        """The ("reasoning" | "content", text) that the next piece completes."""
        self._text += piece
        return list(self._completed())

    def end(self) -> list[tuple[str, str]]:
        """The last parts."""
        if self._state == "calls":
            self.calls, self._text = read_calls(self._text, self._tools)
        kind = "reasoning" if self._state == "reasoning" else "content"
        return [(kind, self._text)] if self._text else []

    def _completed(self) -> Iterator[tuple[str, str]]:
        if self._state == "start":
            beginning = self._text.lstrip()
            if THINK.startswith(beginning[: len(THINK)]) and len(beginning) < len(THINK):
                return
            self._state = "begun"
            if beginning.startswith(THINK):
                self._state, self._text = "reasoning", beginning.removeprefix(THINK).lstrip("\n")
        if self._state == "reasoning":
            yield from self._until(END_OF_THINK, "reasoning", "begun")
        if self._state == "begun":
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
        """The text before a mark, without an end that may begin it; behind the mark comes the following state."""
        before, found, after = self._text.partition(mark) if mark else (self._text, "", "")
        if found:
            self._state, self._text = following, after.lstrip("\n") if mark == END_OF_THINK else after
        else:
            held = next((n for n in range(min(len(mark) - 1, len(before)), 0, -1) if before.endswith(mark[:n])), 0)
            before, self._text = before[: len(before) - held], before[len(before) - held :]
        if before:
            yield kind, before


def answer_parts(text: str, tools: Collection[str] = (), reasoning: bool = False) -> SplitAnswer:
    """The parts of a whole answer; arguments as in ``AnswerParts``."""
    parts = AnswerParts(tools, reasoning)
    pieces = parts.add(text) + parts.end()
    joined = {kind: "".join(piece for name, piece in pieces if name == kind) for kind in ("reasoning", "content")}
    return SplitAnswer(joined["reasoning"].strip(), joined["content"], parts.calls)


def read_calls(text: str, tools: Collection[str]) -> tuple[list[ToolCall], str]:
    """(the calls, the text around them); (none, the whole text) where one has another form or an unknown name."""
    sources = CALLS.findall(text) or [text]
    try:
        values = [value for source in sources for value in _json_values(source)]
        calls = [_call(call, tools) for value in values for call in (value if isinstance(value, list) else [value])]
        encoded = [call.arguments.encode() for call in calls]
    except (ValueError, RecursionError):
        return [], text
    if not encoded:
        return [], text
    return calls, CALLS.sub("", text).strip() if CALL in text else ""


def _json_values(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(parse_constant=_refuse), 0
    while (match := BETWEEN_CALLS.match(text, at)) and (at := match.end()) < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _call(value: Any, tools: Collection[str]) -> ToolCall:
    keys = set(value) - {"id", "type"} if isinstance(value, dict) else set()
    if keys not in ({"name", "arguments"}, {"name", "parameters"}) or value["name"] not in tools:
        raise ValueError("no call of a known tool")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments are no object")
    return ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False))


def call_schema(tools: Sequence[Mapping[str, Any]], name: str | None, template: str) -> dict[str, Any]:
    """The JSON schema of a call of one of the tools, as OpenAI describes functions, or of that with the name."""
    chosen = [tool for tool in tools if name is None or tool["name"] == name]
    if not chosen:
        raise InputError(f"tool_choice should name one of the tools, names {name!r}")
    key = "parameters" if LLAMA in template else "arguments"
    return {"anyOf": [_schema_of(tool, key) for tool in chosen]}


def _schema_of(tool: Mapping[str, Any], key: str) -> dict[str, Any]:
    properties = {"name": {"const": tool["name"]}, key: tool.get("parameters") or {"type": "object"}}
    return {"type": "object", "properties": properties, "required": ["name", key], "additionalProperties": False}
