"""OpenAI's responses, as far as text and calls of tools go; nothing is stored between them."""

import json
import uuid
from collections.abc import AsyncIterator
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
    type: Literal["input_text", "output_text", "text"]
    text: str


class InputItem(Body):
    """A message, the call of a tool, or what a tool gave."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["system", "user", "assistant", "developer"] = "user"
    content: str | list[ContentPart] = ""
    call_id: str | None = None
    name: str = ""
    arguments: str = "{}"
    output: str = ""

    def for_template(self) -> dict[str, Any]:
        if self.type == "function_call_output":
            return ChatMessage(role="tool", content=self.output, tool_call_id=self.call_id).for_template()
        if self.type == "function_call":
            call = MessageCall(id=self.call_id, function=FunctionCall(name=self.name, arguments=self.arguments))
            return ChatMessage(role="assistant", tool_calls=[call]).for_template()
        parts = self.content
        text = parts if isinstance(parts, str) else "\n".join(part.text for part in parts)
        return ChatMessage(role=self.role, content=text).for_template()


class FlatTool(Function):
    type: Literal["function"]


class ChosenTool(Body):
    type: Literal["function"]
    name: str


class TextFormat(Schema):
    type: Literal["text", "json_object", "json_schema"] = "text"


class TextRules(Body):
    format: TextFormat = TextFormat()


class ResponsesBody(SamplingBody):
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[FlatTool] = []
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    text: TextRules = TextRules()
    n: Literal[1] | None = None
    previous_response_id: None = None  # nothing is stored

    def conversation(self) -> Conversation:
        items = [InputItem(content=self.input)] if isinstance(self.input, str) else self.input
        head = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        form = self.text.format
        options = self.options() | ResponseFormat(type=form.type, json_schema=form).options()
        if self.max_output_tokens is not None:
            options["max_new_tokens"] = self.max_output_tokens
        functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in self.tools]
        tools = [{"type": "function", "function": function} for function in functions]
        choice = self.tool_choice.name if isinstance(self.tool_choice, ChosenTool) else self.tool_choice
        return Conversation([*head, *(item.for_template() for item in items)], tools, choice or "auto", {}, options)


@router.post("/responses", response_model=None)
async def respond(body: ResponsesBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    conversation = body.conversation()
    if body.stream:
        parts = service.stream(body.model, conversation)
        return _stream(body, await anext(parts), parts)
    answers = await service.converse(body.model, conversation)
    (answer,) = answers.split_answers
    items = [*_text_items(answer.text, answer.reasoning), *_call_items(answer.calls)]
    return _response(body, _id("resp"), answers, items)


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _response(body: ResponsesBody, number: str, answers: ModelAnswers | None, output: list[Any]) -> dict[str, Any]:
    """The response as an object; without answers it is in progress."""
    head = head_of("resp", body.model if answers is None else answers.model)
    is_cut = answers is not None and answers.generations[0].finish_reason == "length"
    usage: dict[str, Any] | None = None
    if answers is not None:
        counts = usage_of(answers.generations)
        usage = {"input_tokens": counts["prompt_tokens"], "output_tokens": counts["completion_tokens"]}
        usage |= {"total_tokens": counts["total_tokens"], "input_tokens_details": {"cached_tokens": 0}}
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
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools],
        "tool_choice": body.model_dump()["tool_choice"] or "auto",
        "temperature": body.temperature,
        "top_p": body.top_p,
        "metadata": {},
        "usage": usage,
    }


def _text_items(text: str, reasoning: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reasoning:
        content = [{"type": "reasoning_text", "text": reasoning}]
        items.append({"type": "reasoning", "id": _id("rs"), "summary": [], "content": content})
    return items + ([_message(_id("msg"), [_text_part(text)], "completed")] if text else [])


def _message(number: str, content: list[Any], status: str) -> dict[str, Any]:
    return {"type": "message", "id": number, "role": "assistant", "status": status, "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


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
            event = {"type": "error", "sequence_number": number, **error_body(500, str(error))["error"]}
            yield f"event: error\ndata: {json.dumps(event)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _events(body: ResponsesBody, first: Any, parts: AsyncIterator[Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of an answer; its reasoning comes whole, at the end."""
    response, message, texts, reasoning = _id("resp"), _id("msg"), list[str](), list[str]()
    position = {"item_id": message, "output_index": 0, "content_index": 0}
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": _response(body, response, None, [])}
    item = _message(message, [], "in_progress")
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.content_part.added", **position, "part": _text_part("")}
    part = first
    while not isinstance(part, ModelAnswers):
        (texts if part[0] == "content" else reasoning).append(part[1])
        if part[0] == "content":
            yield {"type": "response.output_text.delta", **position, "delta": part[1], "logprobs": []}
        part = await anext(parts)
    text = "".join(texts)
    output = [_message(message, [_text_part(text)], "completed"), *_text_items("", "".join(reasoning))]
    yield {"type": "response.output_text.done", **position, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **position, "part": _text_part(text)}
    yield {"type": "response.output_item.done", "output_index": 0, "item": output[0]}
    for index, call in enumerate(_call_items(part.split_answers[0].calls), len(output)):
        place = {"item_id": call["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": call | {"arguments": ""}}
        arguments = {"arguments": call["arguments"], "name": call["name"]}
        yield {"type": "response.function_call_arguments.done", **place, **arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": call}
        output.append(call)
    name = "incomplete" if part.generations[0].finish_reason == "length" else "completed"
    yield {"type": f"response.{name}", "response": _response(body, response, part, output)}
