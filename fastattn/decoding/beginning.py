"""How sentences enter: their sources are encoded, their starts and prefixes fill the cache, their first beams chosen.

Sentences that begin alike, the samples of one say, begin together: one memory, one pass, one copy of what is kept.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.decoding.batch import Batch
from fastattn.decoding.beams import Sentence
from fastattn.decoding.cache import Cache
from fastattn.decoding.jobs import Job
from fastattn.decoding.model import Model
from fastattn.models.memory import Memory
from fastattn.scheduling.request import Ticket


def begin(model: Model, cache: Cache, tickets: Sequence[Ticket], batches: Sequence[Batch]) -> None:
    """Have each ticket's sentence in progress in its batch."""
    jobs: list[Job] = [ticket.job for ticket in tickets]
    limits = [
        batch.show_prefix(ticket, job.limit(model.sizes.positions))
        for batch, ticket, job in zip(batches, tickets, jobs)
    ]
    inputs = [[*job.start, *job.prefix][: len(job.start) + limit - 1] for job, limit in zip(jobs, limits)]
    heads = [tuple(tokens[: job.shared or len(tokens)]) for tokens, job in zip(inputs, jobs)]
    attention = [job.options.needs_attention for job in jobs]
    keys = [(job.source.tobytes(), head, wanted) for job, head, wanted in zip(jobs, heads, attention)]
    joined = [cache.place_of(key) if job.shared else None for key, job in zip(keys, jobs)]

    new = {key: b for b, key in reversed([*enumerate(keys)]) if joined[b] is None}  # the first of each
    firsts = [b for b in range(len(jobs)) if new.get(keys[b]) == b]
    memory = model.encode([jobs[b].source for b in firsts])
    places_F, rows_N = cache.add_places(memory.starts_B1)
    model.keep_memory(cache, rows_N, memory)
    place_of = {keys[b]: int(place) for b, place in zip(firsts, places_F)}
    sentences = [
        batch.sentence(ticket, place_of[key] if place is None else place)
        for batch, ticket, key, place in zip(batches, tickets, keys, joined)
    ]
    hidden_BD = _fill(model, cache, sentences, heads, inputs, firsts, keys, memory, any(attention))
    for batch in dict.fromkeys(batches):
        chosen = [b for b in range(len(jobs)) if batches[b] is batch]
        own_BD = hidden_BD if len(chosen) == len(jobs) else model.ops.take_rows(hidden_BD, np.array(chosen))
        batch.begin([sentences[b] for b in chosen], np.array([limits[b] for b in chosen], np.int64), own_BD)


def _fill(
    model: Model,
    cache: Cache,
    sentences: list[Sentence],
    heads: list[tuple[int, ...]],
    inputs: list[list[int]],
    firsts: list[int],
    keys: list[Any],
    memory: Memory,
    attention: bool,
) -> np.ndarray:
    """hidden_BD: of each sentence's last input. Its slot's history holds all of them."""
    ops = model.ops
    hidden_ND = _run(model, cache, [sentences[b] for b in firsts], [heads[b] for b in firsts], attention, memory)
    ends_F = np.cumsum([len(heads[b]) for b in firsts]) - 1
    row_of = {keys[b]: int(end) for b, end in zip(firsts, ends_F)}
    begun = {keys[b]: b for b in firsts}
    several = Counter(keys)
    for key, b in begun.items():
        if several[key] > 1 or sentences[b].job.shared:
            cache.keep_beginning(sentences[b].place, int(sentences[b].slots_R[0]), key)
    for b, sentence in enumerate(sentences):
        if begun.get(keys[b]) != b:
            cache.begin_like(int(sentence.slots_R[0]), sentence.place)

    going_on = [b for b in range(len(sentences)) if len(inputs[b]) > len(heads[b])]
    if not going_on:
        return ops.take_rows(hidden_ND, np.array([row_of[key] for key in keys], np.int64))
    rest = [inputs[b][len(heads[b]) :] for b in going_on]
    rest_ND = _run(model, cache, [sentences[b] for b in going_on], rest, attention, None)
    ends = len(hidden_ND) + np.cumsum([*map(len, rest)]) - 1
    row_of_rest = dict(zip(going_on, ends.tolist()))
    rows_B = [row_of_rest[b] if b in row_of_rest else row_of[keys[b]] for b in range(len(sentences))]
    return ops.take_rows(ops.concatenate_rows([hidden_ND, rest_ND]), np.array(rows_B, np.int64))


def _run(
    model: Model,
    cache: Cache,
    sentences: list[Sentence],
    tokens: Sequence[Sequence[int]],
    attention: bool,
    memory: Memory | None,
) -> np.ndarray:
    """hidden_ND of tokens that each sentence goes on with, from its start where there is a memory."""
    starts_B1 = np.cumsum([0, *map(len, tokens)])
    tokens_N = np.array([token for each in tokens for token in each], np.int32)
    slots_B = np.array([sentence.slots_R[0] for sentence in sentences], np.int64)
    firsts_B = cache.lengths(slots_B)
    hidden_ND, attention_NS = model.prefill(
        tokens_N,
        starts_B1,
        memory,
        attention=attention,
        cache=cache,
        slots_B=slots_B,
        firsts_B=None if memory is not None else firsts_B,
    )
    if attention_NS is not None:
        lengths_B = np.diff(starts_B1)
        positions_N = np.arange(len(tokens_N)) + np.repeat(firsts_B - starts_B1[:-1], lengths_B)
        cache.keep_attention(np.repeat(slots_B, lengths_B), positions_N, attention_NS)
    return hidden_ND
