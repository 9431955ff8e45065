"""OpenAI's route for conversations, with tools and rules for the answer: whole or as a stream of events."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field, StrictBool

from fastattn.errors import InputError
from fastattn.serve.conversation import Conversation
from fastattn.serve.dialects.body import Body, InjectedService
from fastattn.serve.dialects.sampling import SamplingBody, chat_log_probs, events_of, head_of, usage_of
from fastattn.serve.service import ModelAnswers
from fastattn.text.tool_calls import ToolCall

router = APIRouter(prefix="/v1")


class TextPart(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str
    arguments: str = "{}"


class MessageCall(Body):
    id: str | None = None
    function: FunctionCall

    def for_template(self) -> dict[str, Any]:
        function = {"name": self.function.name, "arguments": _call_arguments(self.function.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatMessage(Body):
    role: Literal["system", "user", "assistant", "developer", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The message as templates read it."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text for part in content)
        if content is None and self.role != "assistant":
            raise InputError(f"a message of role {self.role} should have a content")
        message: dict[str, Any] = {"role": self.role, "content": content or ""}
        for field in ("name", "reasoning_content", "tool_call_id"):
            if getattr(self, field) is not None:
                message[field] = getattr(self, field)
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        return message


class Function(Body):
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class ChosenFunction(Body):
    name: str


class ToolChoice(Body):
    type: Literal["function"] = "function"
    function: ChosenFunction


class Schema(Body):
    name: str = ""
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None

    def options(self) -> dict[str, Any]:
        if self.type == "text":
            return {}
        if self.type == "json_object":
            return {"json_schema": {"type": "object"}}
        if self.json_schema is None or self.json_schema.schema_ is None:
            raise InputError("response_format of type json_schema should have a json_schema with a schema")
        return {"json_schema": self.json_schema.schema_}


class ChatBody(SamplingBody):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    response_format: ResponseFormat | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def conversation(self) -> Conversation:
        options = self.options()
        if self.max_completion_tokens is not None:
            options["max_new_tokens"] = self.max_completion_tokens
        if self.response_format is not None:
            options |= self.response_format.options()
        if self.top_logprobs and not self.logprobs:
            raise InputError("top_logprobs needs logprobs, which should be true")
        if self.logprobs:
            options |= {"return_log_probs": True, "top_log_probs": self.top_logprobs or 0}
        choice = self.tool_choice.function.name if isinstance(self.tool_choice, ToolChoice) else self.tool_choice
        return Conversation(
            [message.for_template() for message in self.messages],
            [tool.model_dump(exclude_none=True) for tool in self.tools or ()],
            choice or "auto",
            self.chat_template_kwargs or {},
            options,
        )


@router.post("/chat/completions", response_model=None)
async def chat(body: ChatBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    head, conversation = head_of("chatcmpl", body.model), body.conversation()
    if body.stream:
        pieces = service.stream(body.model, conversation)
        piece = await anext(pieces)  # awaited before the answer begins, so that an error has its HTTP status
        return events_of(_chunks(head | {"object": "chat.completion.chunk"}, piece, pieces, body))

    def finish(answers: ModelAnswers) -> dict[str, Any]:
        choices = [_choice(answers, number, body) for number in range(len(answers.generations))]
        named = head | {"object": "chat.completion", "model": answers.model}
        return {**named, "choices": choices, "usage": usage_of(answers.results)}

    return await service.converse(body.model, conversation, finish)


def _choice(answers: ModelAnswers, number: int, body: ChatBody) -> dict[str, Any]:
    generation, split_answer = answers.generations[number], answers.split_answers[number]
    message: dict[str, Any] = {"role": "assistant", "content": split_answer.text}
    if split_answer.reasoning:
        message["reasoning_content"] = split_answer.reasoning
    if split_answer.calls:
        message |= {"content": split_answer.text or None, "tool_calls": calls_of(split_answer.calls)}
    return {
        "index": number,
        "message": message,
        "finish_reason": "tool_calls" if split_answer.calls else generation.finish_reason,
        "logprobs": chat_log_probs(generation, answers.decode) if body.logprobs else None,
    }


def calls_of(calls: list[ToolCall]) -> list[dict[str, Any]]:
    """An answer's calls as messages have them."""
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return [{"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function} for function in functions]


async def _chunks(head: dict[str, Any], piece: Any, pieces: AsyncIterator[Any], body: ChatBody) -> AsyncIterator[Any]:
    """The events of an answer, from its first piece and the others: texts, then calls, the end and perhaps usage."""

    def chunk(delta: dict[str, Any], finish_reason: str | None = None, **log_probs: Any) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, **log_probs}]}

    yield chunk({"role": "assistant", "content": ""})
    while not isinstance(piece, ModelAnswers):
        kind, text = piece
        yield chunk({"content" if kind == "content" else "reasoning_content": text})
        piece = await anext(pieces)
    (generation,), calls = piece.generations, piece.split_answers[0].calls
    if calls:
        yield chunk({"tool_calls": [{"index": n, **call} for n, call in enumerate(calls_of(calls))]})
    log_probs = {"logprobs": await asyncio.to_thread(chat_log_probs, generation, piece.decode)} if body.logprobs else {}
    yield chunk({}, "tool_calls" if calls else generation.finish_reason, **log_probs)
    if body.stream_options is not None and body.stream_options.include_usage:
        yield {**head, "choices": [], "usage": usage_of(piece.results)}


def _call_arguments(text: str) -> Any:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InputError(f"the arguments of a tool call should be a JSON object, are {text[:80]!r}")
    return arguments
