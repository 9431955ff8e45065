"""OpenAI's route for continuations of plain prompts, which are sent whole or as a stream of events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from itertools import accumulate
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field, StrictBool

from fastattn.errors import InputError
from fastattn.generation.calls import Generation, TextScore
from fastattn.serve.dialects.body import InjectedService, Texts, TokenIds
from fastattn.serve.dialects.sampling import SamplingBody, events_of, head_of, token_text, usage_of
from fastattn.serve.service import ModelAnswers

router = APIRouter(prefix="/v1")
TokenIdLists = Annotated[list[TokenIds], Field(min_length=1)]
DEFAULT_TOKENS = 16  # as in OpenAI's server


class CompletionBody(SamplingBody):
    prompt: Annotated[str | TokenIds | Texts | TokenIdLists, Field(union_mode="left_to_right")]
    max_tokens: Annotated[int, Field(ge=1)] | None = DEFAULT_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: StrictBool | None = None

    def prompts(self) -> list[Any]:
        is_single = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return [self.prompt] if is_single else list(self.prompt)

    def options(self) -> dict[str, Any]:
        log_probs = {} if self.logprobs is None else {"return_log_probs": True, "top_log_probs": self.logprobs}
        return super().options() | log_probs


@router.post("/completions", response_model=None)
async def complete(body: CompletionBody, service: InjectedService) -> dict[str, Any] | StreamingResponse:
    head, prompts = head_of("cmpl", body.model) | {"object": "text_completion"}, body.prompts()
    if body.stream:
        if len(prompts) > 1 or body.echo:
            raise InputError("a stream should have one prompt, and no echo")
        pieces = service.stream_completion(body.model, prompts[0], **body.options())
        piece = await anext(pieces)  # awaited before the answer begins, so that an error has its HTTP status
        return events_of(_chunks(head, piece, pieces, body))
    with_scores = bool(body.echo) and body.logprobs is not None

    def finish(answers: ModelAnswers) -> dict[str, Any]:
        prompt_numbers = [b for b, best in enumerate(answers.results) for _ in (best, *best.alternatives)]
        choices = [_choice(answers, *numbers, body) for numbers in enumerate(prompt_numbers)]
        return {**head, "model": answers.model, "choices": choices, "usage": usage_of(answers.results)}

    return await service.complete(body.model, prompts, finish, with_scores, **body.options())


def _choice(answers: ModelAnswers, number: int, prompt_number: int, body: CompletionBody) -> dict[str, Any]:
    """The answer with a number; with ``echo`` the prompt's own text and log-probabilities come before the answer's."""
    generation, echoed_text = answers.generations[number], answers.prompts[prompt_number] if body.echo else ""
    score = answers.scores[prompt_number] if answers.scores else None
    return {
        "index": number,
        "text": echoed_text + generation.text,
        "logprobs": None if body.logprobs is None else _log_probs(generation, score, answers.decode),
        "finish_reason": generation.finish_reason,
    }


def _log_probs(generation: Generation, score: TextScore | None, decode: Callable[..., str]) -> dict[str, Any]:
    """Log-probabilities; of tokens with equal texts, the most probable. The prompt's first token has None."""
    assert generation.log_probs is not None
    ids, log_probs, tops = generation.tokens, generation.log_probs.tolist(), list[Any](generation.top_log_probs)
    if score is not None:
        ids, log_probs = [*score.tokens, *ids], [None, *score.log_probs.tolist(), *log_probs]
        tops = [*score.top_log_probs, *tops]
        tops = [None] * (len(ids) - len(tops)) + tops if tops else []
    text_of = cache(partial(token_text, decode))
    tokens = [text_of(token)[0] for token in ids]
    sizes = (sum(byte >> 6 != 0b10 for byte in text_of(token)[1]) for token in ids)  # a character's first bytes
    offsets, texts = [0, *accumulate(sizes)][: len(tokens)], list[dict[str, float] | None]()
    for token, log_prob, top in zip(ids, log_probs, tops):
        pairs = sorted(((top or {}) | {token: log_prob}).items(), key=lambda pair: pair[1])
        texts.append(None if top is None else {text_of(number)[0]: p for number, p in pairs})
    return {"tokens": tokens, "token_logprobs": log_probs, "top_logprobs": texts or None, "text_offset": offsets}


async def _chunks(
    head: dict[str, Any], piece: Any, pieces: AsyncIterator[Any], body: CompletionBody
) -> AsyncIterator[dict[str, Any]]:
    """The events of an answer, from its first piece and the others."""
    while not isinstance(piece, ModelAnswers):
        yield {**head, "choices": [{"index": 0, "text": piece, "logprobs": None, "finish_reason": None}]}
        piece = await anext(pieces)
    yield {**head, "choices": [await asyncio.to_thread(_choice, piece, 0, 0, body) | {"text": ""}]}
    if body.stream_options is not None and body.stream_options.include_usage:
        yield {**head, "choices": [], "usage": usage_of(piece.results)}
