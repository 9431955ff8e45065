"""A decoding worker, with continuous batching: sentences join and leave between steps.

A sentence enters by one pass over its start and target prefix, which fills the cache and chooses its first beams; a
model without an encoder reads the prompt in chunks, one between two steps (``prompts.py``). Then the sentence is in
every step until it ends, and its room goes to a sentence that waits. Each row has its own position, and each batch its
own options, so sentences of any length and any options share a step.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from time import monotonic, perf_counter
from typing import Any, TypeAlias

import numpy as np

from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.prompts import PromptReader
from fastattn.decoding.recorded_layers import RecordedLayers
from fastattn.decoding.search import Job, Pass, stream_plan, timeout_error
from fastattn.decoding.speculation import SpeculativeBatch
from fastattn.decoding.step import ConstrainedBatch, DecodingBatch, Sentence, expected_rows, give_up
from fastattn.errors import FastattnError
from fastattn.layers.attention_inputs import Memory
from fastattn.layers.key_value_cache import DecoderSizes, KeyValueCache
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Plan, Request, Ticket, read_ahead
from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.state import WorkerSlot

# The most rows of a step. A step costs one pass over the weights, however few its rows, so each of many rows is
# cheaper; beyond this number there is no gain, and the cache grows with every row.
STEP_ROWS = 112
# The most sentences of greedy search. 128 sentences of zh-en on two threads take 1.41 s if all enter at once, 1.32 s if
# the shorter ones fill the room that becomes free; on one thread 2.3 s with 48 sentences at once and with 64.
SENTENCES = 48
# For a light model both numbers are multiplied, since its kernels are done before Python has prepared the next step.
# Firefox's en-pt spends 21% of its steps' time outside kernels with 64 sentences, 13% with 256.
LIGHT_FACTOR = 5
LIGHT_WEIGHTS = 1 << 22  # the most weights of a light model's decoder layers
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
CACHE_ROWS = 16384
# On a card sentences and cache rows are multiplied, since 48 rows fill one tile of 64, and all multiprocessors together
# have hundreds of tiles at a time. The rows take a quarter of the free memory, and half while their pool doubles.
CARD_FACTOR = 8
# Source tokens of sentences that enter together, before the worker looks at the queue again: about 50 ms of a base
# Transformer's encoder.
SOURCE_TOKENS = 1024
# Rows of a pass over whole sequences. For 65,000 words their log-softmax, which is never stored whole, has 500 MB.
PASS_ROWS = 2048
# With little room, callers with nothing in progress wait so many seconds for one another: a pass over one sentence
# costs about as much as a pass over many.
NEWCOMERS_WAIT = 0.03
# A worker hands its cache, with recorded steps, on to the next worker: the most bytes of a cache, the most caches.
SPARE_BYTES, MOST_SPARES = 1 << 23, 4
# Seconds after which, with several callers, sentences in progress get a step though there is room for more.
ADMISSION_SECONDS = 0.03


class Capacity:
    """How much a worker takes at once; ``free_bytes``: of a card's memory, None on the CPU.

    cache_rows     the most rows that the sentences in progress are expected to fill
    source_tokens  the most tokens of sentences that enter together
    """

    def __init__(self, sizes: DecoderSizes, free_bytes: int | None = None):
        self.cache_rows, self._factor = CACHE_ROWS, LIGHT_FACTOR if sizes.layer_weights <= LIGHT_WEIGHTS else 1
        if free_bytes is not None:
            row_bytes = sum((*sizes.row_widths, *sizes.memory_widths)) * np.dtype(sizes.row_dtype).itemsize
            self.cache_rows = min(CARD_FACTOR * CACHE_ROWS, free_bytes // 4 // max(row_bytes, 1))
            self._factor = max(1, self.cache_rows // CACHE_ROWS)
        self.source_tokens = min(self._factor, 2 if free_bytes is None else CARD_FACTOR) * SOURCE_TOKENS

    def sentences(self, beam: int) -> int:
        """How many sentences of this beam size may be in progress."""
        return max(1, min(self._factor * SENTENCES, self._factor * STEP_ROWS // beam))


def is_late(job: Job) -> bool:
    """Whether the time of the job's text is used up."""
    return job.allowance is not None and job.allowance.seconds <= 0


def begin(
    model: Decoder, cache: KeyValueCache, sentences: Sequence[Sentence], batches: Sequence[DecodingBatch]
) -> None:
    """Start each sentence in its batch: one pass over distinct heads (shared tokens, or all inputs), one over tails."""
    heads = [sentence.inputs_T[: sentence.job.shared_tokens or None] for sentence in sentences]
    keys = [_head_key(model, sentence.job, head_T) for sentence, head_T in zip(sentences, heads)]
    memory_slots = [
        cache.memory_slot_of(key) if sentence.job.shared_tokens else None for sentence, key in zip(sentences, keys)
    ]
    leaders: dict[Hashable, int] = {}  # the first sentence with each head that the cache does not have
    for b, key in enumerate(keys):
        if memory_slots[b] is None:
            leaders.setdefault(key, b)
    memory, slot_of = None, dict[Hashable, int]()
    if leaders:
        memory = model.encode([sentences[b].job.source for b in leaders.values()])
        memory_slots_B, rows_N = cache.add_memory_slots(memory.starts_B1)
        model.keep_memory(cache, rows_N, memory)
        slot_of = dict(zip(leaders, memory_slots_B.tolist()))
    for sentence, batch, key, memory_slot in zip(sentences, batches, keys, memory_slots):
        batch.admit(sentence, slot_of[key] if memory_slot is None else memory_slot)
    attention = any(sentence.job.options.needs_attention for sentence in sentences)
    states = []
    if leaders:
        leading, distinct_heads = zip(*((sentences[b], heads[b]) for b in leaders.values()))
        states.append(_prefill(model, cache, leading, distinct_heads, attention, memory))
    key_counts = Counter(keys)
    for b, (sentence, key) in enumerate(zip(sentences, keys)):
        slot = int(sentence.slots_R[0])
        if b != leaders.get(key):
            cache.begin_with_first_pass(slot, sentence.memory_slot)
        elif key_counts[key] > 1 or sentence.job.shared_tokens:
            cache.keep_first_pass(sentence.memory_slot, slot, key)
    tails = {b: sentences[b].inputs_T[len(head_T) :] for b, head_T in enumerate(heads)}
    tails = {b: tail_T for b, tail_T in tails.items() if len(tail_T)}
    if tails:
        states.append(_prefill(model, cache, [sentences[b] for b in tails], list(tails.values()), attention, None))
    # The row behind each head and tail in the hidden states of both passes.
    ends = accumulate([*(len(heads[b]) for b in leaders.values()), *map(len, tails.values())])
    head_ends, tail_ends = dict(zip(leaders, ends)), dict(zip(tails, ends))
    rows_B = np.array([tail_ends[b] if b in tail_ends else head_ends[key] for b, key in enumerate(keys)], np.int64) - 1
    begin_in_batches(model, batches, sentences, model.ops.concatenate_rows(states), rows_B)


def begin_in_batches(
    model: Decoder, batches: Sequence[DecodingBatch], sentences: Sequence[Sentence], hidden_ND: Any, rows_B: np.ndarray
) -> None:
    """Make each sentence's first step in its batch, from row ``rows_B`` of hidden_ND, which is of its last input."""
    for batch in dict.fromkeys(batches):
        numbers = [b for b, candidate in enumerate(batches) if candidate is batch]
        batch.begin([sentences[b] for b in numbers], model.ops.take_rows(hidden_ND, rows_B[numbers]))


def _head_key(model: Decoder, job: Job, head_T: np.ndarray) -> Hashable:
    """The key of a head: sentences with equal keys share their memory and the cache's rows of their heads."""
    sample = (job.options.seed, job.salt, job.hypothesis) if model.decoder.draws and job.options.is_sampled else ()
    return job.source.tobytes(), head_T.tobytes(), job.options.needs_attention, sample


def _prefill(
    model: Decoder,
    cache: KeyValueCache,
    sentences: Sequence[Sentence],
    tokens: Sequence[np.ndarray],
    attention: bool,
    memory: Memory | None,
) -> np.ndarray:
    """hidden_ND of the sentences' next tokens; with a memory, these are the first tokens."""
    starts_B1, tokens_N = np.cumsum([0, *map(len, tokens)]), np.concatenate(tokens)
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


Spares: TypeAlias = list[tuple[RecordedLayers | None, KeyValueCache, DecodingBatch | None]]


class DecodingWorker:
    """Decodes Jobs, and does Passes.

    end_id, unk_id  the end token and the unknown token of the model's vocabulary
    spares          caches that workers of the model hand on to one another, some with an empty batch
    """

    def __init__(self, model: Decoder, end_id: int, unk_id: int, scheduler: WorkerSlot, spares: Spares | None = None):
        self.model, self.end_id, self.unk_id, self.scheduler = model, end_id, unk_id, scheduler
        self._capacity = Capacity(model.sizes, model.ops.free_memory())  # before this worker's cache takes memory
        self._spares: Spares = [] if spares is None else spares
        self._spare_batch: DecodingBatch | None = None  # the empty batch that came with this worker's cache
        self.batches: list[DecodingBatch] = []
        self.cache: KeyValueCache | None = None
        self._recorded_layers: RecordedLayers | None = None  # for the cache; None: nothing can be recorded
        self._admitted_at = 0.0  # when sentences were last admitted
        self._is_timed = False  # whether sentences in progress may have an allowance
        self._pass_seconds = 0.0  # of Passes in this call of ``advance``; no sentence's allowance pays for them
        self._reader = PromptReader(model)
        self.prompts = self._reader.prompts  # sentences whose prompts are not read whole; [] with an encoder

    def advance(self) -> bool:
        """Admit waiting sentences, then make a step of all in progress; False if there was nothing to do."""
        start, self._pass_seconds = monotonic(), 0.0
        has_arrivals = False
        for tickets in self._arrivals() if self.scheduler.waiting() else ():
            has_arrivals = True
            if tickets:
                cache = self._cache_for(tickets)
                sentences = [Sentence(ticket, self.scheduler, self.model.sizes.max_positions) for ticket in tickets]
                if self.model.sizes.memory_widths:
                    begin(self.model, cache, sentences, [self._batch_of(sentence.job) for sentence in sentences])
                else:
                    self._reader.add(cache, sentences)
                self._drop_empty()
        if not self.batches and not self.prompts:
            return has_arrivals
        if self.prompts:
            self._read_prompts()
        if self.batches:
            self._step()
        self._charge_time(start)
        return True

    def sentences(self) -> list[Sentence]:
        """All sentences in progress, also those whose prompts are not read whole."""
        return [*self.prompts, *(sentence for batch in self.batches for sentence in batch.sentences())]

    def drop(self) -> None:
        """Give up the sentences whose requests are over."""
        self._remove({sentence for sentence in self.sentences() if sentence.ticket.is_over})

    def _arrivals(self) -> Iterator[list[Ticket]]:
        """Take tickets while there is room: do Passes at once, yield the tickets of sentences, some at a time."""
        start = perf_counter()
        while self.scheduler.waiting() and (tickets := self._take_tickets()):
            self._admitted_at = perf_counter()
            self._do_passes([ticket for ticket in tickets if isinstance(ticket.job, Pass)])
            self._pass_seconds += perf_counter() - self._admitted_at
            searches = [ticket for ticket in tickets if isinstance(ticket.job, Job)]
            for ticket in searches:
                if is_late(ticket.job):
                    self.scheduler.finish(ticket, [])
            self._is_timed |= any(ticket.job.allowance is not None for ticket in searches)
            yield [ticket for ticket in searches if not ticket.is_done]
            callers = {
                ticket.request.caller for ticket in (*tickets, *(sentence.ticket for sentence in self.sentences()))
            }
            if self._admitted_at > start + ADMISSION_SECONDS and (len(callers) > 1 or not searches):
                break

    def _take_tickets(self) -> list[Ticket]:
        """Take tickets that there is room for."""
        capacity = self._capacity
        used_share = sum(len(batch.sentences()) / capacity.sentences(batch.beam) for batch in self.batches)
        used_share += sum(1 / capacity.sentences(prompt.beam) for prompt in self.prompts)
        # Admitting few sentences at a time would make small products; so room is filled a quarter at a time.
        is_crowded = used_share > 0.75
        if is_crowded and (perf_counter() < self._admitted_at + NEWCOMERS_WAIT or not self.scheduler.newcomers()):
            return []
        rows_of_each = [sentence.cache_rows for sentence in self.sentences()]
        cache_rows, longest, source_tokens, pass_rows = sum(rows_of_each), max(rows_of_each, default=0), 0, 0

        def has_room(ticket: Ticket, is_newcomer: bool) -> bool:
            nonlocal used_share, cache_rows, longest, source_tokens, pass_rows
            job = ticket.job
            if isinstance(job, Pass):
                pass_rows += job.length
                return pass_rows == job.length or pass_rows <= PASS_ROWS
            rows, share = expected_rows(job), 1 / capacity.sentences(job.options.beam_size)
            # The longest sentence does not count, so that it keeps no other sentence out.
            if cache_rows and cache_rows + rows - max(longest, rows) > capacity.cache_rows:
                return False
            if source_tokens and source_tokens + len(job.source) > capacity.source_tokens:
                return False
            if used_share and used_share + share > (2 if is_newcomer else 1) + 1e-9 or is_crowded and not is_newcomer:
                return False
            used_share, cache_rows = used_share + share, cache_rows + rows
            source_tokens, longest = source_tokens + len(job.source), max(longest, rows)
            return True

        return self.scheduler.take(has_room)

    def _read_prompts(self) -> None:
        """Read a chunk of the prompts; sentences whose prompt is whole now begin."""
        assert self.cache is not None
        sentences, hidden_BD = self._reader.read_on(self.cache, self._recorded_layers, self.scheduler)
        batches = [self._batch_of(sentence.job) for sentence in sentences]
        for sentence, batch in zip(sentences, batches):
            batch.admit(sentence)
        begin_in_batches(self.model, batches, sentences, hidden_BD, np.arange(len(sentences)))
        self._drop_empty()

    def _do_passes(self, tickets: list[Ticket]) -> None:
        while tickets:
            job: Pass = tickets[0].job
            pass_tickets = [ticket for ticket in tickets if ticket is tickets[0] or job.fits_with(ticket.job)]
            results = job.run(self.model, [ticket.job for ticket in pass_tickets], self.end_id, self.unk_id)
            for ticket, result in zip(pass_tickets, results):
                self.scheduler.finish(ticket, result)
            tickets = [ticket for ticket in tickets if ticket not in pass_tickets]

    def _cache_for(self, tickets: list[Ticket]) -> KeyValueCache:
        """The cache, of about the size that these tickets and the sentences in progress need."""
        jobs, in_progress, capacity = [ticket.job for ticket in tickets], self.sentences(), self._capacity
        # The cache gets room also for waiting jobs that may join the tickets.
        expected_jobs = min(capacity.sentences(jobs[0].options.beam_size), len(jobs) + self.scheduler.waiting())
        factor = max(1, expected_jobs // len(jobs))
        rows, memory_rows = sum(map(expected_rows, jobs)), sum(len(job.source) for job in jobs)
        rows, memory_rows = (max(n, min(capacity.cache_rows, n * factor)) for n in (rows, memory_rows))
        rows += sum(sentence.cache_rows for sentence in in_progress)
        memory_rows += sum(len(sentence.job.source) for sentence in in_progress)
        if self.cache is None and self._spares:
            with suppress(IndexError):  # another worker was quicker
                self._recorded_layers, self.cache, self._spare_batch = self._spares.pop()
        if self.cache is None:
            self.cache, self._recorded_layers = KeyValueCache(self.model.ops, self.model.sizes, rows, memory_rows), None
        else:
            self.cache.shrink(rows, memory_rows)
        if self._recorded_layers is not None:
            self._recorded_layers.forget_replaced()
        elif (recorder := self.model.ops.recorder()) is not None:
            self._recorded_layers = RecordedLayers(self.model, self.cache, recorder)
        return self.cache

    def _batch_of(self, job: Job) -> DecodingBatch:
        for batch in self.batches:
            if batch.suits(job):
                return batch
        assert self.cache is not None
        spare, self._spare_batch = self._spare_batch, None
        if spare is not None and spare.suits(job):
            batch = spare
            batch.scheduler = self.scheduler
        else:
            batch_class = SpeculativeBatch if job.speculate is not None else DecodingBatch
            batch_class = ConstrainedBatch if job.constraint is not None else batch_class
            batch = batch_class(self.model, self.cache, self.scheduler, job, self.end_id, self.unk_id)
        self.batches.append(batch)
        return batch

    def _step(self) -> None:
        """Make a step of all batches; a batch that is alone may make several."""
        cache, batches = self.cache, self.batches
        assert cache is not None
        if len(batches) == 1 and batches[0].run():
            self._drop_empty()
            return
        inputs = [batch.inputs() for batch in batches]
        slots_R, tokens_N, positions_N, counts_R = map(np.concatenate, zip(*inputs))
        attention = any(batch.options.needs_attention for batch in batches)
        hidden_ND = attention_NS = None
        if self._recorded_layers is not None and not attention:
            hidden_ND = self._recorded_layers.step(np.repeat(slots_R, counts_R), tokens_N, positions_N)
        if hidden_ND is None:
            hidden_ND, attention_NS = self.model.step(cache, slots_R, tokens_N, positions_N, attention, counts_R)
        if attention_NS is not None:
            cache.keep_attention(slots_R, positions_N, attention_NS)
        ends = [0, *accumulate(len(tokens) for _, tokens, *_ in inputs)]
        for batch, first, end in zip(batches, ends, ends[1:]):
            rows_ND = hidden_ND if len(batches) == 1 else self.model.ops.take_rows(hidden_ND, np.arange(first, end))
            batch.advance(rows_ND)
        self._drop_empty()

    def _charge_time(self, start: float) -> None:
        """Charge the time since ``start`` to the sentences' texts; give up sentences whose time is used up."""
        if self._is_timed:
            sentences = self.sentences()
            self._is_timed = any(sentence.job.allowance is not None for sentence in sentences)
            seconds = monotonic() - start - self._pass_seconds
            for sentence in sentences:  # equal shares, so that a text does not pay for the other texts of a step
                if sentence.job.allowance is not None:
                    sentence.job.allowance.seconds -= seconds / len(sentences)
            self._remove({sentence for sentence in sentences if is_late(sentence.job)})

    def _remove(self, sentences: set[Sentence]) -> None:
        for batch in self.batches if sentences else ():
            batch.remove(sentences)
        for prompt in [prompt for prompt in self.prompts if prompt in sentences]:
            self.prompts.remove(prompt)
            assert self.cache is not None
            give_up(prompt, self.cache, self.scheduler)
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Drop batches without sentences; hand a cache without sentences on to the next worker.

        The next worker gets the beginnings that the cache keeps, and the last batch with its recorded steps.
        """
        empty_batches = [batch for batch in self.batches if batch.beams is None]
        if empty_batches:
            self.batches = [batch for batch in self.batches if batch.beams is not None]
        cache, batch = self.cache, empty_batches[-1] if empty_batches else None
        if self.batches or self.prompts or cache is None or not (empty_batches or cache.shares_rows):
            return
        steps, layers = None if batch is None else batch.recorded_steps, self._recorded_layers
        if cache.shares_rows:
            cache.shrink(0, 0)
        recordings = [one for one in (steps, layers) if one is not None]
        for one in recordings:
            one.forget_replaced()
        recorded_bytes = sum(one.size for one in recordings)
        is_small = (steps is not None or recorded_bytes > 0) and cache.size + recorded_bytes <= SPARE_BYTES
        if len(self._spares) < (1 if cache.shares_rows else MOST_SPARES) and (is_small or cache.shares_rows):
            self.cache = self._recorded_layers = self._spare_batch = None
            drops_batch = batch is None or isinstance(batch.speculate, Decoder)  # the draft model may be closed by then
            self._spares.append((layers, cache, None if steps is None or drops_batch else batch))


# With at least so many sentences a thread, each thread has its own sentences; with fewer, threads share each product.
SENTENCES_A_THREAD = 4


class DecodingService:
    """A scheduler whose workers decode, and a separate one for each call that must run in the caller's thread.

    end_id, unk_id  the end token and the unknown token of the model's vocabulary
    threads         how many threads all callers use together
    """

    def __init__(self, model: Decoder, end_id: int, unk_id: int, threads: int):
        self.model = model
        self._make_worker = partial(DecodingWorker, model, end_id, unk_id, spares=[])
        self.threads = threads
        # A step of a model without an encoder takes as long as reading the weights, which one slot reads for all calls.
        self._scheduler = self._make_scheduler(threads if model.sizes.memory_widths else 1)

    def _make_scheduler(self, slots: int) -> Scheduler:
        return Scheduler(self._make_worker, self.threads, self.model.ops.use_threads, SENTENCES_A_THREAD, slots)

    def scheduler(self, options: DecodingOptions | None = None) -> Scheduler:
        """The scheduler for a call with these options: a separate one if the call has a callback."""
        return self._scheduler if options is None or options.callback is None else self._make_scheduler(1)

    def stream(self, job: Job) -> Iterator[Step]:
        """Yield the tokens of one sentence's greedy search, or of its samples, each as soon as it is known.

        Nothing runs between two tokens, so closing the iterator ends the work. Raises as ``search_plan`` does, and
        SearchTimeout.
        """
        steps: list[Step] = []
        job = replace(job, options=replace(job.options, callback=steps.append))
        in_time = False

        def plan() -> Plan:
            nonlocal in_time
            in_time = yield from stream_plan(job, self.model.sizes)

        for _ in self._make_scheduler(1).steps(plan):
            yield from steps
            steps.clear()
        if not in_time:
            raise timeout_error(job.options)


# Streams of texts are read ahead in windows of so many source tokens: memory is bounded for any number of texts. The
# first window is short, so that the first results come soon; each window is twice as long as the one before, up to
# LAST_WINDOW, or WINDOW_A_THREAD for each thread if that is more.
FIRST_WINDOW, LAST_WINDOW, WINDOW_A_THREAD = 1024, 16384, 8192
WINDOWS = 2  # in progress at once


def in_windows(
    service: DecodingService,
    source: Iterator[tuple[int, Any]],
    make_plan: Callable[[list[Any], int], Plan],
    options: DecodingOptions,
    return_exceptions: bool,
) -> Iterator[Any]:
    """Yield the result of each text of a source of (how many tokens, text), in order.

    make_plan  (texts, the number of the first) -> the plan of their results
    An error is raised behind all earlier results; with return_exceptions a text's error is yielded in its place.
    The results of the first window come as soon as they can. A later window's results are yielded when the window
    behind it has begun, so that neither the search nor the caller waits for the other.
    """
    scheduler, source_end = service.scheduler(options), None  # source_end: the StopIteration or error of the source
    window, number = FIRST_WINDOW, 0
    longest_window = max(LAST_WINDOW, WINDOW_A_THREAD * service.threads)
    requests: deque[Request] = deque()
    try:
        while source_end is None or requests:
            results: list[Any] = []
            if source_end is None:
                texts, _, source_end = read_ahead(source, window)
                plan = partial(make_plan, texts, number)
                # This thread calls a callback itself, and computes the first window, and a window that is alone.
                if options.callback is not None or not number or source_end is not None and not requests:
                    results = scheduler.run(plan)
                elif texts:
                    requests.append(scheduler.start(plan))
                window, number = min(2 * window, longest_window), number + len(texts)
            if requests and (source_end is not None or len(requests) == WINDOWS):
                results = requests[0].result()
                requests.popleft()
            for result in results:
                if isinstance(result, FastattnError) and not return_exceptions:
                    raise result
                yield result
    finally:
        for request in requests:
            request.cancel()
    if not isinstance(source_end, StopIteration):
        raise source_end


def read_each(texts: Iterable[Any], read: Callable[[int, Any], tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """A source for ``in_windows``: what ``read`` returns for each (number, text), or (1, the error that it raises)."""
    for number, text in enumerate(texts):
        try:
            item: tuple[int, Any] = read(number, text)
        except FastattnError as error:
            item = 1, error
        yield item
