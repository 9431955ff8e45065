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
# A job is a part of a text to translate, an answer to generate, or a batch of texts to encode.
STEP = Histogram("fastattn_step_jobs", "Jobs of all requests in a step.", ["model"], buckets=SIZES)
WAITING = Gauge("fastattn_jobs_waiting", "Jobs that waited at a step.", ["model"], multiprocess_mode="livesum")
FIRST_TOKEN = Histogram("fastattn_first_token_seconds", "From a stream's request to its first text.", ["model"])
NEXT_TOKEN = Histogram("fastattn_next_token_seconds", "Time of each later token of a stream.", ["model"])


def count_step(step_metric: Histogram, waiting_metric: Gauge, jobs: int, waiting: int) -> None:
    """Count a step that had so many jobs, 0 where their callers are gone, while others waited; by a model's metrics."""
    if jobs:
        step_metric.observe(jobs)
    waiting_metric.set(waiting)


def count_tokens(model: str, read: int, written: int) -> None:
    TOKENS.labels(model, "in").inc(read)
    TOKENS.labels(model, "out").inc(written)


def count_generations(model: str, results: Sequence[Generation]) -> None:
    """Count the tokens of a request: the best answer to each prompt, and its alternatives."""
    BATCH.labels(model).observe(len(results))
    read, cached, written = token_counts(results)
    CACHED.labels(model).inc(cached)
    count_tokens(model, read, written)


def token_counts(results: Sequence[Generation]) -> tuple[int, int, int]:
    """(tokens of the prompts, how many of them were cached, tokens of the answers), from each prompt's best answer.

    A prompt's samples share rows: what was cached before is what all of them, the first too, took from the cache.
    """
    answers_B = [(best, *best.alternatives) for best in results]
    cached = sum(min(answer.cached_tokens for answer in answers) for answers in answers_B)
    written = sum(len(answer.tokens) for answers in answers_B for answer in answers)
    return sum(best.prompt_length for best in results), cached, written


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
