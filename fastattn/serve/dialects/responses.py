"""OpenAI's responses, as far as text and calls of tools go; nothing is stored between them."""

import json
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field

from fastattn.errors import FastattnError
from fastattn.serve.conversation import Conversation
from fastattn.serve.dialects.body import Body, InjectedService
from fastattn.serve.dialects.chat import ChatMessage, Function, FunctionCall, MessageCall, ResponseFormat, Schema
from fastattn.serve.dialects.sampling import SamplingBody, error_body, head_of, usage_of
from fastattn.serve.service import ModelAnswers
from fastattn.text.tool_calls import ToolCall

router = APIRouter(prefix="/v1")


class ContentPart(Body):
    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputItem(Body):
    """A message, the call of a tool, what a tool gave, or a thought: what the output of a response has, and more."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    id: str | None = None
    status: str | None = None
    role: Literal["system", "user", "assistant", "developer"] = "user"
    content: str | list[ContentPart] | None = None
    summary: list[ContentPart] = []
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = "{}"
    output: str | list[ContentPart] = ""

    def for_template(self) -> dict[str, Any]:
        if self.type == "function_call_output":
            return ChatMessage(role="tool", content=_joined(self.output), tool_call_id=self.call_id).for_template()
        if self.type == "function_call":
            call = MessageCall(id=self.call_id, function=FunctionCall(name=self.name, arguments=self.arguments))
            return ChatMessage(role="assistant", tool_calls=[call]).for_template()
        text = _joined(self.content or "")
        if self.type == "reasoning":
            return ChatMessage(role="assistant", reasoning_content=text or _joined(self.summary)).for_template()
        return ChatMessage(role=self.role, content=text).for_template()


def _joined(parts: str | list[ContentPart]) -> str:
    return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)


def _messages(items: list[InputItem]) -> list[dict[str, Any]]:
    """The messages of items: a thought, the text behind it and the calls behind that are one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        message, last = item.for_template(), messages[-1] if messages else {}
        is_thought = last.get("reasoning_content") is not None and not last["content"] and "tool_calls" not in last
        if message["role"] == "assistant" == last.get("role") and item.type == "function_call":
            messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), *message["tool_calls"]]}
        elif message["role"] == "assistant" and item.type == "message" and is_thought:
            messages[-1] = {**last, **message}
        elif item.type != "reasoning" or message["reasoning_content"]:
            messages.append(message)
    return messages


class FlatTool(Function):
    type: Literal["function"]


class ChosenTool(Body):
    type: Literal["function"]
    name: str


class TextFormat(Schema):
    type: Literal["text", "json_object", "json_schema"] = "text"


class TextRules(Body):
    format: TextFormat = TextFormat()
    verbosity: str | None = None


class ResponsesBody(SamplingBody):
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[FlatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    text: TextRules | None = None
    n: Literal[1] | None = None
    previous_response_id: None = None  # nothing is stored

    def conversation(self) -> Conversation:
        items = [InputItem(content=self.input)] if isinstance(self.input, str) else self.input
        head = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        form = (self.text or TextRules()).format
        options = self.options() | ResponseFormat(type=form.type, json_schema=form).options()
        if self.max_output_tokens is not None:
            options["max_new_tokens"] = self.max_output_tokens
        functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in self.tools or ()]
        tools = [{"type": "function", "function": function} for function in functions]
        choice = self.tool_choice.name if isinstance(self.tool_choice, ChosenTool) else self.tool_choice
        return Conversation([*head, *_messages(items)], tools, choice or "auto", {}, options)


@router.post("/responses", response_model=None)
async def respond(body: ResponsesBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    conversation = body.conversation()
    if body.stream:
        parts = service.stream(body.model, conversation)
        return _stream(body, await anext(parts), parts)
    return await service.converse(body.model, conversation, partial(_answer, body))


def _answer(body: ResponsesBody, answers: ModelAnswers) -> dict[str, Any]:
    (answer,) = answers.split_answers
    items = [_item_of(kind, text) for kind, text in (("reasoning", answer.reasoning), ("content", answer.text)) if text]
    items += _call_items(answer.calls)
    return _response(body, _id("resp"), answers, _cut(items, answers))


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _response(body: ResponsesBody, number: str, answers: ModelAnswers | None, output: list[Any]) -> dict[str, Any]:
    """The response as an object; without answers it is in progress."""
    head = head_of("resp", body.model if answers is None else answers.model)
    is_cut = answers is not None and answers.generations[0].finish_reason == "length"
    usage: dict[str, Any] | None = None
    if answers is not None:
        counts = usage_of(answers.results)
        usage = {"input_tokens": counts["prompt_tokens"], "output_tokens": counts["completion_tokens"]}
        usage |= {"total_tokens": counts["total_tokens"], "input_tokens_details": counts["prompt_tokens_details"]}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
    return {
        "id": number,
        "object": "response",
        "created_at": head["created"],
        "model": head["model"],
        "status": "in_progress" if answers is None else "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "instructions": body.instructions,
        "output": output,
        "parallel_tool_calls": True,
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        "tool_choice": body.model_dump()["tool_choice"] or "auto",
        "temperature": body.temperature,
        "top_p": body.top_p,
        "metadata": {},
        "usage": usage,
    }


def _item_of(kind: str, text: str | None = None) -> dict[str, Any]:
    """A message or, of kind "reasoning", a thought; without text it is in progress."""
    status = "in_progress" if text is None else "completed"
    content = [] if text is None else [_part_of(kind, text)]
    if kind == "reasoning":
        return {"type": "reasoning", "id": _id("rs"), "status": status, "summary": [], "content": content}
    return {"type": "message", "id": _id("msg"), "role": "assistant", "status": status, "content": content}


def _part_of(kind: str, text: str) -> dict[str, Any]:
    is_thought = kind == "reasoning"
    return {"type": "reasoning_text", "text": text} if is_thought else _text_part(text)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _cut(items: list[dict[str, Any]], answers: ModelAnswers) -> list[dict[str, Any]]:
    """The items of an answer, the last one incomplete if the answer was cut."""
    if items and answers.generations[0].finish_reason == "length":
        items[-1]["status"] = "incomplete"
    return items


def _call_items(calls: list[ToolCall]) -> list[dict[str, Any]]:
    head = {"type": "function_call", "status": "completed"}
    return [
        {**head, "id": _id("fc"), "call_id": _id("call"), "name": call.name, "arguments": call.arguments}
        for call in calls
    ]


def _stream(body: ResponsesBody, first: Any, parts: AsyncIterator[Any]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        number = 0
        try:
            async for event in _events(body, first, parts):
                yield f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': number})}\n\n"
                number += 1
        except FastattnError as error:
            event = {**error_body(500, str(error))["error"], "type": "error", "sequence_number": number}
            yield f"event: error\ndata: {json.dumps(event)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _events(body: ResponsesBody, first: Any, parts: AsyncIterator[Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of an answer: the response begins, each item begins, grows and ends, the response ends."""
    response, output, texts, kind, part = _id("resp"), list[dict[str, Any]](), list[str](), "", first
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": _response(body, response, None, [])}
    while not isinstance(part, ModelAnswers):
        if part[0] != kind:
            if kind:
                for event in _end_of(output, kind, "".join(texts)):
                    yield event
            kind, texts = part[0], []
            output.append(_item_of(kind))
            yield {"type": "response.output_item.added", "output_index": len(output) - 1, "item": output[-1]}
            yield {"type": "response.content_part.added", **_place(output), "part": _part_of(kind, "")}
        texts.append(part[1])
        yield {"type": f"response.{_NAMES[kind]}.delta", **_place(output), "delta": part[1], **_log_probs(kind)}
        part = await anext(parts)
    calls = _call_items(part.split_answers[0].calls)
    if kind:
        output[-1] = output[-1] | {"status": "completed"}
        if not calls:
            _cut(output, part)
        for event in _end_of(output, kind, "".join(texts)):
            yield event
    for call in _cut(calls, part):
        output.append(call)
        place = {"item_id": call["id"], "output_index": len(output) - 1}
        begun = call | {"arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": place["output_index"], "item": begun}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": call["arguments"]}
        arguments = {"arguments": call["arguments"], "name": call["name"]}
        yield {"type": "response.function_call_arguments.done", **place, **arguments}
        yield {"type": "response.output_item.done", "output_index": place["output_index"], "item": call}
    name = "incomplete" if part.generations[0].finish_reason == "length" else "completed"
    yield {"type": f"response.{name}", "response": _response(body, response, part, output)}


_NAMES = {"content": "output_text", "reasoning": "reasoning_text"}  # kind of a part -> as events name it


def _log_probs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "content" else {}


def _place(output: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the last item's text is."""
    return {"item_id": output[-1]["id"], "output_index": len(output) - 1, "content_index": 0}


def _end_of(output: list[dict[str, Any]], kind: str, text: str) -> list[dict[str, Any]]:
    """The events with which the last item ends, which gets its text."""
    status = output[-1]["status"].replace("in_progress", "completed")
    output[-1] = output[-1] | {"status": status, "content": [_part_of(kind, text)]}
    return [
        {"type": f"response.{_NAMES[kind]}.done", **_place(output), "text": text, **_log_probs(kind)},
        {"type": "response.content_part.done", **_place(output), "part": _part_of(kind, text)},
        {"type": "response.output_item.done", "output_index": len(output) - 1, "item": output[-1]},
    ]
