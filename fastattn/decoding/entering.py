"""Sentences that enter: one pass over their start and target prefix, with the memory of their sources."""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import accumulate, chain

import numpy as np

from fastattn.decoding.batch import DecodingBatch
from fastattn.decoding.jobs import Job, Sentence
from fastattn.layers.attention_inputs import Memory
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Ticket


class _Entry:
    """A sentence that enters.

    head, tail  its inputs: those that sentences with the same ``key`` share, and the others
    memory_slot  of the cache, which keeps a beginning with that key
    head_row, tail_row  of their last inputs, among all hidden states
    """

    sentence: Sentence

    def __init__(self, ticket: Ticket, batch: DecodingBatch, max_positions: int):
        job: Job = ticket.job
        self.ticket, self.job, self.batch = ticket, job, batch
        self.limit = batch.show_prefix(ticket, job.limit(max_positions))
        inputs = [*job.start, *job.prefix][: len(job.start) + self.limit - 1]
        shared = job.shared or len(inputs)
        self.head, self.tail = tuple(inputs[:shared]), inputs[shared:]
        self.key = job.source.tobytes(), self.head, job.options.needs_attention
        self.memory_slot: int | None = None
        self.head_row = self.tail_row = 0


def begin(model: Decoder, cache: KeyValueCache, tickets: Sequence[Ticket], batches: Sequence[DecodingBatch]) -> None:
    """Start each ticket's sentence in its batch."""
    entries = [_Entry(ticket, batch, model.sizes.max_positions) for ticket, batch in zip(tickets, batches)]
    leaders: dict[Hashable, _Entry] = {}  # the first with each key whose beginning the cache does not have
    for entry in entries:
        entry.memory_slot = cache.memory_slot_of(entry.key) if entry.job.shared else None
        if entry.memory_slot is None:
            leaders.setdefault(entry.key, entry)
    first = list(leaders.values())
    attention = any(entry.job.options.needs_attention for entry in entries)
    parts: list[np.ndarray] = []
    memory = model.encode([entry.job.source for entry in first]) if first else None
    if memory is not None:
        memory_slots_B, rows_N = cache.add_memory_slots(memory.starts_B1)
        model.keep_memory(cache, rows_N, memory)
        for entry, memory_slot in zip(first, memory_slots_B.tolist()):
            entry.memory_slot = memory_slot
    for entry in entries:
        if entry.memory_slot is None:
            entry.memory_slot = leaders[entry.key].memory_slot
        assert entry.memory_slot is not None
        entry.sentence = entry.batch.sentence(entry.ticket, entry.memory_slot)
    if first:
        parts.append(_run(model, cache, first, [entry.head for entry in first], attention, memory))
    _share_heads(cache, entries, leaders)
    longer = [entry for entry in entries if entry.tail]
    if longer:
        parts.append(_run(model, cache, longer, [entry.tail for entry in longer], attention, None))
    ends = accumulate(chain((len(entry.head) for entry in first), (len(entry.tail) for entry in longer)))
    for entry in first:
        entry.head_row = next(ends) - 1
    for entry in longer:
        entry.tail_row = next(ends) - 1
    hidden_ND = model.ops.concatenate_rows(parts)
    for batch in dict.fromkeys(batches):
        chosen = [entry for entry in entries if entry.batch is batch]
        rows = [entry.tail_row if entry.tail else leaders[entry.key].head_row for entry in chosen]
        hidden_BD = model.ops.take_rows(hidden_ND, np.array(rows, np.int64))
        limits_B = np.array([entry.limit for entry in chosen], np.int64)
        batch.begin([entry.sentence for entry in chosen], limits_B, hidden_BD)


def _share_heads(cache: KeyValueCache, entries: list[_Entry], leaders: dict[Hashable, _Entry]) -> None:
    """Have the cache keep heads that several sentences have, and the others' histories begin with them."""
    count = Counter(entry.key for entry in entries)
    for entry in entries:
        slot = int(entry.sentence.slots_R[0])
        if entry is not leaders.get(entry.key):
            cache.begin_like(slot, entry.sentence.memory_slot)
        elif count[entry.key] > 1 or entry.job.shared:
            cache.keep_beginning(entry.sentence.memory_slot, slot, entry.key)


def _run(
    model: Decoder,
    cache: KeyValueCache,
    entries: list[_Entry],
    tokens: Sequence[Sequence[int]],
    attention: bool,
    memory: Memory | None,
) -> np.ndarray:
    """hidden_ND of the entries' next tokens; with a memory, the first ones of whole sentences."""
    starts_B1 = np.cumsum([0, *map(len, tokens)])
    tokens_N = np.array([token for sequence in tokens for token in sequence], np.int32)
    slots_B = np.array([entry.sentence.slots_R[0] for entry in entries], np.int64)
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
