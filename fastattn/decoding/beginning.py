"""Admits sentences: encodes their sources, fills the cache with starts and prefixes, chooses the first beams.

Sentences with the same beginning, such as the samples of one, share one memory, one pass and one copy in the cache.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.decoding.batch import Batch
from fastattn.decoding.beams import Sentence
from fastattn.decoding.jobs import Job
from fastattn.decoding.key_value_cache import KeyValueCache
from fastattn.decoding.model import Model
from fastattn.models.memory import Memory
from fastattn.scheduling.request import Ticket


def begin(model: Model, cache: KeyValueCache, tickets: Sequence[Ticket], batches: Sequence[Batch]) -> None:
    """Start each ticket's sentence in its batch."""
    jobs: list[Job] = [ticket.job for ticket in tickets]
    limits = [
        batch.show_prefix(ticket, job.limit(model.sizes.max_positions))
        for batch, ticket, job in zip(batches, tickets, jobs)
    ]
    inputs = [[*job.start, *job.prefix][: len(job.start) + limit - 1] for job, limit in zip(jobs, limits)]
    heads = [tuple(tokens[: job.shared or len(tokens)]) for tokens, job in zip(inputs, jobs)]
    attention = [job.options.needs_attention for job in jobs]
    keys = [(job.source.tobytes(), head, wanted) for job, head, wanted in zip(jobs, heads, attention)]
    joined = [cache.place_of(key) if job.shared else None for key, job in zip(keys, jobs)]

    new = {key: b for b, key in reversed([*enumerate(keys)]) if joined[b] is None}  # the first of each
    firsts = [b for b in range(len(jobs)) if new.get(keys[b]) == b]
    memory, place_of = None, {}
    if firsts:
        memory = model.encode([jobs[b].source for b in firsts])
        places_F, rows_N = cache.add_places(memory.starts_B1)
        model.keep_memory(cache, rows_N, memory)
        place_of = dict(zip([keys[b] for b in firsts], places_F.tolist()))
    sentences = [
        batch.sentence(ticket, place_of[key] if place is None else place)
        for batch, ticket, key, place in zip(batches, tickets, keys, joined)
    ]
    hidden_BD = _fill(model, cache, sentences, heads, inputs, firsts, keys, memory, any(attention))
    for batch in dict.fromkeys(batches):
        chosen = [b for b in range(len(jobs)) if batches[b] is batch]
        chosen_BD = hidden_BD if len(chosen) == len(jobs) else model.ops.take_rows(hidden_BD, np.array(chosen))
        batch.begin([sentences[b] for b in chosen], np.array([limits[b] for b in chosen], np.int64), chosen_BD)


def _fill(
    model: Model,
    cache: KeyValueCache,
    sentences: list[Sentence],
    heads: list[tuple[int, ...]],
    inputs: list[list[int]],
    firsts: list[int],
    keys: list[Any],
    memory: Memory | None,
    attention: bool,
) -> np.ndarray:
    """hidden_BD of each sentence's last input; writes all inputs to the histories of the slots."""
    parts: list[np.ndarray] = []
    rows_B = np.zeros(len(sentences), np.int64)  # where each sentence's last input is in the parts, end to end
    if memory is not None:
        begun = [heads[b] for b in firsts]
        parts.append(_run(model, cache, [sentences[b] for b in firsts], begun, attention, memory))
        row_of = dict(zip([keys[b] for b in firsts], np.cumsum([*map(len, begun)]) - 1))
        rows_B[:] = [row_of.get(key, 0) for key in keys]
    several = Counter(keys)
    for b in firsts:
        if several[keys[b]] > 1 or sentences[b].job.shared:
            cache.keep_beginning(sentences[b].place, int(sentences[b].slots_R[0]), keys[b])
    for b in set(range(len(sentences))) - set(firsts):
        cache.begin_like(int(sentences[b].slots_R[0]), sentences[b].place)

    longer = [b for b in range(len(sentences)) if len(inputs[b]) > len(heads[b])]
    if longer:
        tails = [inputs[b][len(heads[b]) :] for b in longer]
        rows_B[longer] = sum(map(len, parts)) + np.cumsum([*map(len, tails)]) - 1
        parts.append(_run(model, cache, [sentences[b] for b in longer], tails, attention, None))
    return model.ops.take_rows(model.ops.concatenate_rows(parts), rows_B)


def _run(
    model: Model,
    cache: KeyValueCache,
    sentences: list[Sentence],
    tokens: Sequence[Sequence[int]],
    attention: bool,
    memory: Memory | None,
) -> np.ndarray:
    """hidden_ND of the sentences' next tokens; with a memory, the first ones of whole sentences."""
    starts_B1 = np.cumsum([0, *map(len, tokens)])
    tokens_N = np.array([token for sequence in tokens for token in sequence], np.int32)
    slots_B = np.array([sentence.slots_R[0] for sentence in sentences], np.int64)
    firsts_B = np.array([cache.length(slot) for slot in slots_B], np.int64)
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
