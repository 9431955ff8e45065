"""What /metrics says of each model: tokens, and the times of streams."""

import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from fastattn.generation.calls import Generation

TOKENS = Counter("fastattn_tokens", "Tokens that a model has read and written.", ["model", "direction"])
CACHED = Counter("fastattn_cached_tokens", "Tokens of prompts that came from the cache.", ["model"])
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH = Histogram("fastattn_request_texts", "Texts of a request.", ["model"], buckets=SIZES)
STEP = Histogram("fastattn_step_texts", "Texts, or their parts, of all requests in a step.", ["model"], buckets=SIZES)
WAITING = Gauge("fastattn_texts_waiting", "Texts that waited at a step.", ["model"], multiprocess_mode="livesum")
FIRST_TOKEN = Histogram("fastattn_first_token_seconds", "From a stream's request to its first text.", ["model"])
NEXT_TOKEN = Histogram("fastattn_next_token_seconds", "Time of each later token of a stream.", ["model"])


def count_step(model: str, jobs: int, waiting: int) -> None:
    """Count a step that had so many jobs, while others waited."""
    STEP.labels(model).observe(jobs)
    WAITING.labels(model).set(waiting)


def count_tokens(model: str, read: int, written: int) -> None:
    TOKENS.labels(model, "in").inc(read)
    TOKENS.labels(model, "out").inc(written)


def count_generations(model: str, generations: Sequence[Generation], prompts: int = 1) -> None:
    """Count the tokens of so many prompts, each with as many answers as the others."""
    BATCH.labels(model).observe(prompts)
    read, cached = prompt_counts(generations, prompts)
    CACHED.labels(model).inc(cached)
    count_tokens(model, read, sum(len(generation.tokens) for generation in generations))


def prompt_counts(generations: Sequence[Generation], prompts: int) -> tuple[int, int]:
    """(tokens of so many prompts, how many of them the cache had: the least of each prompt's samples).

    A prompt's samples share its rows, so the cache has them for all samples but the first.
    """
    count = max(1, len(generations) // prompts)
    groups = [generations[first : first + count] for first in range(0, len(generations), count)]
    cached = sum(min(generation.cached_tokens for generation in group) for group in groups)
    return sum(group[0].prompt_length for group in groups), cached


def count_translations(model: str, results: Sequence[Any]) -> None:
    BATCH.labels(model).observe(len(results))
    parts = [part for result in results for part in result.parts]
    count_tokens(model, sum(len(part.source) for part in parts), sum(len(part.tokens) for part in parts))


class StreamTimer:
    """The times of one stream."""

    def __init__(self, model: str):
        self._model, self._begun, self._first = model, time.perf_counter(), 0.0

    def tick(self) -> None:
        """A piece has come."""
        if not self._first:
            self._first = time.perf_counter()
            FIRST_TOKEN.labels(self._model).observe(self._first - self._begun)

    def end(self, generation: Generation) -> None:
        count_generations(self._model, [generation])
        if self._first and len(generation.tokens) > 1:
            seconds = (time.perf_counter() - self._first) / (len(generation.tokens) - 1)
            NEXT_TOKEN.labels(self._model).observe(seconds)
