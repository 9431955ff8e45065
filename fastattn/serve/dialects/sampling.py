"""What OpenAI's routes that generate share: options of sampling, events, usage, log-probabilities."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache, partial
from typing import Annotated, Any

from fastapi.responses import StreamingResponse
from pydantic import Field, StrictBool

from fastattn.errors import FastattnError
from fastattn.generation.calls import Generation
from fastattn.serve.dialects.body import Body
from fastattn.serve.metrics import token_counts
from fastattn.system.option_names import SEARCH

MOST_STOPS, MOST_ANSWERS = 4, 16
Biases = Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)]


class StreamOptions(Body):
    include_usage: StrictBool | None = None


class SamplingBody(Body):
    model: str
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ANSWERS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    logit_bias: Biases | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    stop: str | Annotated[list[str], Field(max_length=MOST_STOPS)] | None = None
    user: str | None = None

    def options(self) -> dict[str, Any]:
        """The options of ``Generator.generate``; what has no effect is left out."""
        options = sampling_options(self, self.max_tokens, self.repetition_penalty, self.seed)
        return options | ({"num_hypotheses": self.n} if self.n not in (None, 1) else {})


def sampling_options(
    body: Any, max_tokens: int | None, repetition_penalty: float | None, seed: int | None
) -> dict[str, Any]:
    """The options of ``Generator.generate`` that have an effect, for a body and fields that differ in name."""
    options: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "presence_penalty": body.presence_penalty or None,
        "frequency_penalty": body.frequency_penalty or None,
        "repetition_penalty": repetition_penalty,
        "logit_bias": getattr(body, "logit_bias", None) or None,
        "seed": seed,
        "stop": body.stop or None,
    }
    if body.temperature == 0:
        options["sampling_topk"] = 1
    else:
        options |= {SEARCH[name]: getattr(body, name) or None for name in ("temperature", "top_p", "min_p")}
        options["sampling_topk"] = None if body.top_k is None else max(0, body.top_k)
    return {name: value for name, value in options.items() if value is not None}


def head_of(prefix: str, model: str) -> dict[str, Any]:
    """The fields with which an answer, or each chunk of a stream, begins."""
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}


def usage_of(results: Sequence[Generation]) -> dict[str, Any]:
    """The numbers of tokens of prompts, whose best answers ``results`` has, and of all answers."""
    prompt_tokens, cached_tokens, tokens = token_counts(results)
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
    return {**usage, "prompt_tokens_details": {"cached_tokens": cached_tokens}}


def token_text(decode: Callable[..., str], token: int) -> tuple[str, bytes]:
    """(A token's text, in which bytes of no whole character are \\xNN; the token's bytes, none of a special token)."""
    data = decode([token], exact=True).encode(errors="surrogateescape")
    return data.decode(errors="backslashreplace"), data if decode([token, token]) else b""


def chat_log_probs(generation: Generation, decode: Callable[..., str]) -> dict[str, Any]:
    """The log-probability of each token of an answer, and of the most probable tokens in its place."""
    assert generation.log_probs is not None
    text_of = cache(partial(token_text, decode))

    def entry(token: int, log_prob: float) -> dict[str, Any]:
        text, data = text_of(token)
        return {"token": text, "logprob": log_prob, "bytes": list(data) or None}

    tops = generation.top_log_probs or [{}] * len(generation.tokens)
    entries = [
        entry(token, log_prob) | {"top_logprobs": [entry(*pair) for pair in top.items()]}
        for token, log_prob, top in zip(generation.tokens, generation.log_probs.tolist(), tops)
    ]
    return {"content": entries, "refusal": None}


def events_of(chunks: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    """Chunks as server-sent events; an error that comes after the first event is the last event."""

    async def events() -> AsyncIterator[str]:
        try:
            async for chunk in chunks:
                yield f"data: {json.dumps(chunk)}\n\n"
        except FastattnError as error:
            yield f"data: {json.dumps(error_body(500, str(error)))}\n\n"
            return
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def error_body(status: int, message: str) -> dict[str, Any]:
    error_type = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return {"error": {"message": message, "type": error_type, "param": None, "code": None}}
