"""OpenAI's routes: vectors, conversations and the list of models."""

import base64
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field, StrictBool

from fastattn.encoders.encoder import Encoder
from fastattn.errors import FastattnError
from fastattn.generation.calls import Generation
from fastattn.generation.generator import Generator
from fastattn.serve.dialects.body import Body, Serving

router = APIRouter(prefix="/v1")
MOST_STOPS, MOST_ANSWERS = 4, 16
TokenIds = Annotated[list[Annotated[int, Field(strict=True)]], Field(min_length=1)]


class EmbeddingsBody(Body):
    input: Annotated[str | TokenIds | list[str] | list[TokenIds], Field(union_mode="left_to_right")]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class ChatMessage(Body):
    role: Literal["system", "user", "assistant", "developer"]
    content: str
    name: str | None = None


class StreamOptions(Body):
    include_usage: StrictBool = False


class ChatBody(Body):
    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ANSWERS)] = 1
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    seed: Annotated[int, Field(ge=0)] | None = None
    stop: str | Annotated[list[str], Field(max_length=MOST_STOPS)] | None = None
    user: str | None = None

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "max_new_tokens": self.max_completion_tokens or self.max_tokens,
            "sampling_temperature": self.temperature or None,
            "sampling_topp": None if self.temperature == 0 else self.top_p,
            "sampling_topk": 1 if self.temperature == 0 else None,
            "presence_penalty": self.presence_penalty or None,
            "frequency_penalty": self.frequency_penalty or None,
            "seed": self.seed,
            "stop": self.stop or None,
            "num_hypotheses": self.n if self.n > 1 else None,
        }
        return {name: value for name, value in options.items() if value is not None}


@router.post("/embeddings")
async def embeddings(body: EmbeddingsBody, service: Serving) -> dict[str, Any]:
    is_single = isinstance(body.input, str) or bool(body.input) and isinstance(body.input[0], int)
    texts: list[Any] = [body.input] if is_single else list(body.input)
    options = {"truncate_dim": body.dimensions, "normalize_embeddings": True} if body.dimensions else {}
    vectors_BD, tokens, name = await service.embed(texts, body.model, truncate=False, count=True, **options)
    encoded = (base64.b64encode(vector_D.astype("<f4").tobytes()).decode() for vector_D in vectors_BD)
    vectors: Any = encoded if body.encoding_format == "base64" else vectors_BD.tolist()
    data = [{"object": "embedding", "index": b, "embedding": vector} for b, vector in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


@router.get("/models")
async def models(service: Serving) -> dict[str, Any]:
    names = service.models.names_of((Encoder, Generator))
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "fastattn"} for name in names]}


@router.post("/chat/completions", response_model=None)
async def chat(body: ChatBody, service: Serving) -> dict[str, Any] | StreamingResponse:
    messages = [{"role": message.role, "content": message.content} for message in body.messages]
    common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": body.model}
    if body.stream:
        pieces = service.stream(body.model, messages, **body.options())
        first = await anext(pieces)  # awaited before the answer begins, so that a faulty request gets its status
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        events = _events(common | {"object": "chat.completion.chunk"}, first, pieces, with_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
    answers, common["model"] = await service.answer(body.model, messages, **body.options())
    choices = [
        {
            "index": number,
            "message": {"role": "assistant", "content": answer.text},
            "finish_reason": answer.finish_reason,
            "logprobs": None,
        }
        for number, answer in enumerate(answers)
    ]
    return {**common, "object": "chat.completion", "choices": choices, "usage": _usage(*answers)}


async def _events(common: dict[str, Any], first: Any, pieces: AsyncIterator[Any], usage: bool) -> AsyncIterator[str]:
    """Server-sent events: the pieces of an answer, its end and, on request, its counts of tokens."""
    delta, piece = {"role": "assistant", "content": ""}, first
    yield _event({**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    while not isinstance(piece, Generation):
        yield _event({**common, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        try:
            piece = await anext(pieces)
        except FastattnError as error:
            yield _event(error_body(500, str(error)))
            return
    yield _event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": piece.finish_reason}]})
    if usage:
        yield _event({**common, "choices": [], "usage": _usage(piece)})
    yield "data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


def _usage(*answers: Generation) -> dict[str, int]:
    prompt, completion = answers[0].prompt_length, sum(len(answer.tokens) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def error_body(status: int, message: str) -> dict[str, Any]:
    error_type = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return {"error": {"message": message, "type": error_type, "param": None, "code": None}}
