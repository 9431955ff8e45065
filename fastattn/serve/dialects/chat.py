"""OpenAI's route for conversations, with tools and rules for the answer: whole or as a stream of events."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field, Json, StrictBool

from fastattn.errors import InputError
from fastattn.serve.conversation import Conversation
from fastattn.serve.dialects.body import Body, InjectedService
from fastattn.serve.dialects.sampling import SamplingBody, chat_log_probs, events_of, head_of, usage_of
from fastattn.serve.service import ModelAnswers
from fastattn.text.tool_calls import ToolCall

router = APIRouter(prefix="/v1")
EMPTY_IS_NONE = AfterValidator(lambda items: items or None)


class TextPart(Body):
    type: Literal["text"]
    text: str


class FunctionCall(Body):
    name: str
    arguments: Json[dict[str, Any]] = {}


class MessageCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


def join_parts(parts: Any) -> Any:
    """A content's text: that of its parts, if it has parts."""
    return "\n".join(part.text for part in parts) if isinstance(parts, list) else parts


class ChatMessage(Body):
    role: Literal["system", "user", "assistant", "developer", "tool"]
    content: Annotated[str | list[TextPart] | None, AfterValidator(join_parts)] = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[MessageCall] | None, EMPTY_IS_NONE] = None
    tool_call_id: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The message as templates read it."""
        if self.content is None and self.role != "assistant":
            raise InputError(f"a message of role {self.role} should have a content")
        return {"content": "", **self.model_dump(exclude_none=True)}


class Function(Body):
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"] = "function"
    function: Function


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
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None
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
        choice = self.tool_choice.function.name if isinstance(self.tool_choice, Tool) else self.tool_choice
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
    return [{"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": call._asdict()} for call in calls]


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
