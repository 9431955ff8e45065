"""A decoding worker, with continuous batching: sentences join and leave between steps.

A sentence enters by one pass over its start and target prefix, which fills the cache and chooses its first beams; where
there is no encoder, its prompt is read in chunks, one between two steps (``prompts.py``). Then
it takes part in every step until it ends, and its room goes to one that waits. Each row has its own position, and each
batch its own options, so sentences of any age and any options share a step.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from time import monotonic, perf_counter
from typing import Any, TypeAlias

import numpy as np

from fastattn.decoding.batch import DecodingBatch, leave
from fastattn.decoding.constrained import ConstrainedBatch
from fastattn.decoding.jobs import (
    Job,
    Pass,
    Sentence,
    admitted_at_once,
    charge,
    expected_rows,
    is_over,
    most_sentences,
    most_tokens,
)
from fastattn.decoding.prompts import Prompt, PromptReader
from fastattn.decoding.speculation import SpeculativeBatch
from fastattn.layers.attention_inputs import Memory
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Ticket
from fastattn.scheduling.state import WorkerSlot

# Rows of a pass over whole sequences; at 65,000 words their log-softmax would fill 500 MB were it ever stored whole.
PASS_ROWS = 2048
# Seconds that callers with nothing in progress wait for one another if there is little room: a pass over one sentence
# costs about as much as over many.
PATIENCE = 0.03
# What a worker leaves to the next one: a cache and recorded steps of so many bytes at most, of so many workers.
LEFT_BYTES, LEFT = 1 << 23, 4
# Seconds after which, with several callers, sentences in progress get a step though there is room for more.
TURN = 0.03


class _Entry:
    """A sentence that enters.

    head, tail  its inputs: those that sentences with the same ``key`` share, and the others
    memory_slot  of the cache, which keeps a beginning with that key
    head_row, tail_row  of their last inputs, among all hidden states
    """

    sentence: Sentence

    def __init__(self, ticket: Ticket, batch: DecodingBatch, model: Decoder):
        job: Job = ticket.job
        self.ticket, self.job, self.batch = ticket, job, batch
        self.limit = batch.show_prefix(ticket, job.limit(model.sizes.max_positions))
        inputs = [*job.start, *job.prefix][: len(job.start) + self.limit - 1]
        shared = job.shared or len(inputs)
        self.head, self.tail = tuple(inputs[:shared]), inputs[shared:]
        own = (job.options.seed, job.salt, job.hypothesis) if model.decoder.draws and job.options.sampled else ()
        self.key = job.source.tobytes(), self.head, job.options.needs_attention, own
        self.memory_slot: int | None = None
        self.head_row = self.tail_row = 0


def begin(model: Decoder, cache: KeyValueCache, tickets: Sequence[Ticket], batches: Sequence[DecodingBatch]) -> None:
    """Start each ticket's sentence in its batch."""
    entries = [_Entry(ticket, batch, model) for ticket, batch in zip(tickets, batches)]
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


Left: TypeAlias = tuple[KeyValueCache, DecodingBatch | None]


class DecodingWorker:
    """Decodes Jobs, and does Passes.

    end_id, unk_id  of the model's vocabulary
    left            caches, each with an empty batch perhaps, which workers of the model leave to one another
    """

    def __init__(self, model: Decoder, end_id: int, unk_id: int, scheduler: WorkerSlot, left: list[Left] | None = None):
        self.model, self.end_id, self.unk_id, self.scheduler = model, end_id, unk_id, scheduler
        self._free = model.ops.free_memory()  # before its own cache
        self._left: list[Left] = [] if left is None else left
        self._found: DecodingBatch | None = None  # of those, with this worker's cache
        self.batches: list[DecodingBatch] = []
        self.cache: KeyValueCache | None = None
        self._admitted = 0.0  # when sentences were last admitted
        self._is_timed = False  # whether some may have an allowance
        self._passing = 0.0  # seconds that passes took in this call, which are no sentence's
        self.reader = None if model.sizes.memory_widths else PromptReader(model)
        self.prompts: list[Prompt] = [] if self.reader is None else self.reader.prompts  # that are being read

    def advance(self) -> bool:
        """Admit waiting sentences, then one token for all in progress; False if there was nothing to do."""
        start, self._passing = monotonic(), 0.0
        came = False
        for tickets in self._arrivals() if self.scheduler.waiting() else ():
            came = True
            if tickets:
                cache = self._cache_for(tickets)
                if self.reader is None:
                    begin(self.model, cache, tickets, [self._batch_of(ticket.job) for ticket in tickets])
                else:
                    self.reader.add(cache, tickets, self._batch_of)
                self._leave_empty()
        if not self.batches and not self.prompts:
            return came
        if self.reader is not None and self.prompts:
            self._read_on(self.reader)
        if self.batches:
            self._step()
        self._give_up_late(start)
        return True

    def sentences(self) -> list[Sentence | Prompt]:
        """All sentences in progress, and prompts that are to be."""
        return [*self.prompts, *(sentence for batch in self.batches for sentence in batch.sentences())]

    def drop(self) -> None:
        """Leave the sentences whose requests are over."""
        self._leave({one for one in self.sentences() if one.ticket.is_over})

    # admitting sentences

    def _arrivals(self) -> Iterator[list[Ticket]]:
        """Yield waiting sentences, some at a time, as far as there is room; waiting passes are done at once."""
        start = perf_counter()
        while self.scheduler.waiting() and (tickets := self._take()):
            self._admitted = perf_counter()
            self._do_passes([ticket for ticket in tickets if isinstance(ticket.job, Pass)])
            self._passing += perf_counter() - self._admitted
            searches = [ticket for ticket in tickets if isinstance(ticket.job, Job)]
            for ticket in searches:
                if is_over(ticket.job):
                    self.scheduler.finish(ticket, [])
            self._is_timed |= any(ticket.job.allowance is not None for ticket in searches)
            yield [ticket for ticket in searches if not ticket.done]
            callers = {
                ticket.request.caller for ticket in (*tickets, *(sentence.ticket for sentence in self.sentences()))
            }
            if self._admitted > start + TURN and (len(callers) > 1 or not searches):
                break

    def _take(self) -> list[Ticket]:
        """Take tickets that there is room for."""
        used = sum(len(batch.sentences()) / self._most_sentences(batch.beam) for batch in self.batches)
        used += sum(1 / self._most_sentences(prompt.beam) for prompt in self.prompts)
        # Admitting few sentences at a time would make small products; so room is filled a quarter at a time.
        crowded = used > 0.75
        if crowded and (perf_counter() < self._admitted + PATIENCE or not self.scheduler.newcomers()):
            return []
        rows_of_each = [sentence.expected for sentence in self.sentences()]
        expected, longest = sum(rows_of_each), max(rows_of_each, default=0)
        tokens, most_admitted, rows = 0, admitted_at_once(self.model.sizes, self._free), 0
        room = most_tokens(self.model.sizes, self._free)

        def has_room(ticket: Ticket, newcomer: bool) -> bool:
            nonlocal used, expected, longest, tokens, rows
            job = ticket.job
            if isinstance(job, Pass):
                fits = not rows or rows + job.length <= PASS_ROWS
                rows += job.length
                return fits
            needed, part = expected_rows(job), 1 / self._most_sentences(job.options.beam_size)
            # The longest does not count, which shall not keep others out.
            if expected and expected + needed - max(longest, needed) > room:
                return False
            if tokens and tokens + len(job.source) > most_admitted:
                return False
            if used and used + part > (2 if newcomer else 1) + 1e-9 or crowded and not newcomer:
                return False
            used, expected, tokens = used + part, expected + needed, tokens + len(job.source)
            longest = max(longest, needed)
            return True

        return self.scheduler.take(has_room)

    def _most_sentences(self, beam: int) -> int:
        return most_sentences(self.model.sizes, beam, self._free)

    def _read_on(self, reader: PromptReader) -> None:
        """Read a chunk of the prompts; the sentences of those that are read whole begin."""
        assert self.cache is not None
        whole, hidden_BD = reader.read_on(self.cache, self.scheduler)
        batches = [self._batch_of(prompt.job) for prompt in whole]
        for batch in dict.fromkeys(batches):
            chosen = [b for b in range(len(whole)) if batches[b] is batch]
            hidden_bD = self.model.ops.take_rows(hidden_BD, np.array(chosen, np.int64))
            given = [(whole[b].ticket, whole[b].memory_slot, whole[b].slots_R) for b in chosen]
            limits_b = np.array([whole[b].limit for b in chosen], np.int64)
            batch.begin([batch.sentence(*each) for each in given], limits_b, hidden_bD)
        self._leave_empty()

    def _do_passes(self, tickets: list[Ticket]) -> None:
        while tickets:
            first: Pass = tickets[0].job
            similar = [ticket for ticket in tickets if ticket is tickets[0] or first.fits_with(ticket.job)]
            results = first.run(self.model, [ticket.job for ticket in similar], self.end_id, self.unk_id)
            for ticket, result in zip(similar, results):
                self.scheduler.finish(ticket, result)
            tickets = [ticket for ticket in tickets if ticket not in similar]

    def _cache_for(self, tickets: list[Ticket]) -> KeyValueCache:
        """The cache, of about the size that these tickets and the sentences in progress need."""
        rows, memory_rows = self._expected_rows(tickets)
        if self.cache is None and self._left:
            with suppress(IndexError):  # another worker was quicker
                self.cache, self._found = self._left.pop()
        if self.cache is None:
            self.cache = KeyValueCache(self.model.ops, self.model.sizes, rows, memory_rows)
        else:
            self.cache.shrink(rows, memory_rows)
        return self.cache

    def _expected_rows(self, tickets: list[Ticket]) -> tuple[int, int]:
        """About how many rows the two pools need for sentences in progress, these tickets, and waiting ones."""
        jobs = [ticket.job for ticket in tickets]
        rows, memory_rows = sum(map(expected_rows, jobs)), sum(len(job.source) for job in jobs)
        most = self._most_sentences(jobs[0].options.beam_size)
        factor = max(1, min(most, len(jobs) + self.scheduler.waiting()) // len(jobs))
        in_progress = self.sentences()
        room = most_tokens(self.model.sizes, self._free)
        rows = sum(sentence.expected for sentence in in_progress) + max(rows, min(room, rows * factor))
        memory = sum(len(sentence.job.source) for sentence in in_progress)
        return rows, memory + max(memory_rows, min(room, memory_rows * factor))

    def _batch_of(self, job: Job) -> DecodingBatch:
        for batch in self.batches:
            if batch.takes(job):
                return batch
        assert self.cache is not None
        found, self._found = self._found, None
        if found is not None and found.takes(job):
            batch = found.taken_up(self.scheduler)
        else:
            kind = SpeculativeBatch if job.speculate is not None else DecodingBatch
            kind = ConstrainedBatch if job.constraint is not None else kind
            batch = kind(self.model, self.cache, self.scheduler, job, self.end_id, self.unk_id)
        self.batches.append(batch)
        return batch

    # a step

    def _step(self) -> None:
        """One token for every beam of every sentence in progress, or several for a batch that is alone."""
        cache, batches = self.cache, self.batches
        assert cache is not None
        if len(batches) == 1 and batches[0].run():
            self._leave_empty()
            return
        inputs = [batch.inputs() for batch in batches]
        slots_R, tokens_N, positions_N, counts_R = (_end_to_end(parts) for parts in zip(*inputs))
        wants_attention = any(batch.wants_attention for batch in batches)
        hidden_ND, attention_NS = self.model.step(cache, slots_R, tokens_N, positions_N, wants_attention, counts_R)
        if attention_NS is not None:
            cache.keep_attention(slots_R, positions_N, attention_NS)
        ends = [0, *accumulate(len(tokens) for _, tokens, *_ in inputs)]
        for batch, first, end in zip(batches, ends, ends[1:]):
            rows_ND = hidden_ND if len(batches) == 1 else self.model.ops.take_rows(hidden_ND, np.arange(first, end))
            batch.advance(rows_ND)
        self._leave_empty()

    # leaving early

    def _give_up_late(self, start: float) -> None:
        """Charge the time since ``start`` to the sentences; close, with no hypotheses, those whose time is over."""
        if self._is_timed:
            sentences = self.sentences()
            self._is_timed = any(sentence.job.allowance is not None for sentence in sentences)
            charge([sentence.job for sentence in sentences], monotonic() - start - self._passing)
            self._leave({sentence for sentence in sentences if is_over(sentence.job)})

    def _leave(self, left: set[Any]) -> None:
        for batch in self.batches if left else ():
            batch.leave(left)
        for prompt in [prompt for prompt in self.prompts if prompt in left]:
            self.prompts.remove(prompt)
            assert self.cache is not None
            leave(prompt, self.cache, self.scheduler)
        self._leave_empty()

    def _leave_empty(self) -> None:
        empty = [batch for batch in self.batches if batch.beams is None]
        if empty:
            self.batches = [batch for batch in self.batches if batch.beams is not None]
        cache = self.cache
        if not self.batches and not self.prompts and cache is not None and (empty or cache.keeps):
            self._leave_cache(cache, empty[-1] if empty else None)

    def _leave_cache(self, cache: KeyValueCache, batch: DecodingBatch | None) -> None:
        """Leave what nothing is in, with the beginnings that are kept and recorded steps, to the next worker."""
        steps = None if batch is None else batch.recorded
        if cache.keeps:
            cache.shrink(0, 0)
        small = steps is not None and cache.size + steps.size <= LEFT_BYTES
        if len(self._left) < (1 if cache.keeps else LEFT) and (small or cache.keeps):
            self.cache = self._found = None
            lets_go = batch is None or isinstance(batch.speculate, Decoder)  # of the draft model, which may be closed
            self._left.append((cache, None if steps is None or lets_go else batch))


def _end_to_end(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
