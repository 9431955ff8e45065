"""Among how many processes work is shared, and how it is cut into chunks."""

import io
import os
import sys
import warnings
from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.errors import FastattnError
from fastattn.processes import choice
from fastattn.processes.choice import LEAST_THREADS, choose_processes, choose_sharing, rate_under_lock
from fastattn.processes.messages import PipeClosed, message_parts, read_message, write_parts
from fastattn.processes.pool import CHUNK_LIMIT, TEXT_LIMIT, Chunk, chunk_indices, stream_results
from fastattn.scheduling.request import Request
from tests.messages import refused
from tests.processes.served import chunk, dispatching, plan_of, pool_of
from tests.scheduling.by_hand import SchedulerByHand


class Echo:
    """A worker that gives back what a chunk has."""

    def __init__(self, slot):
        self._slot = slot

    def advance(self):
        tickets = self._slot.take(lambda ticket, newcomer: True)
        for ticket in tickets:
            self._slot.finish(ticket, ticket.job.content)
        return bool(tickets)

    def drop(self): ...


class OneIsDone(SchedulerByHand):
    """Of what is begun the first request alone is done."""

    def __init__(self):
        super().__init__(Echo, 1, lambda count: nullcontext(), 1, 1)
        self.begun: list[Request] = []

    def start(self, *arguments):
        self.begun.append(super().start(*arguments))
        if len(self.begun) == 1:
            self.finish_all()
        return self.begun[-1]


def of_texts(items):
    return Chunk("echo", items, len(items), sum(map(len, items)))


@pytest.mark.parametrize("text", ["", "w1 w2"])
def test_a_stream_is_read_only_ahead(text):
    read = []

    def source():
        while len(read) < 10_000:
            read.append(1)
            yield len(text), text

    assert list(islice(stream_results(OneIsDone(), 2, source(), of_texts), 3)) == [text] * 3
    assert len(read) < 2000


def test_a_stream_that_is_left_goes_no_further():
    scheduler = OneIsDone()
    results = stream_results(scheduler, 2, ((100, f"text {n}") for n in range(1000)), of_texts)
    assert next(results) == "text 0"
    results.close()
    first, *others = scheduler.begun
    assert first.done() and others and all(other.cancelled() for other in others)
    scheduler.finish_all()
    assert scheduler.is_at_rest


def test_chunks_hold_every_text_once():
    """Chunks of 16 texts or more where that gives every process one, of 256 at most, and some for each process."""
    numbers = {0: 0, 1: 1, 2: 2, 8: 8, 15: 8, 128: 8, 160: 10, 500: 32, 8192: 32, 8193: 33, 20_000: 79}
    for texts, number in numbers.items():
        chunks = chunk_indices([n % 50 for n in range(texts)], 8)
        assert sorted(place for chunk in chunks for place in chunk) == list(range(texts))
        assert len(chunks) == number, texts
        sizes = [len(chunk) for chunk in chunks]
        assert not sizes or max(sizes) - min(sizes) <= 1
    first, second = chunk_indices([5, 1, 4, 2], 2)
    assert (first, second) == ([0, 3], [2, 1]), "each has longer ones and shorter ones"


def test_processes_are_chosen_for_many_threads_and_light_models():
    light, heavy = 1 << 20, 1 << 26
    assert all(choose_processes(threads, light) == 1 for threads in range(1, LEAST_THREADS))
    assert choose_processes(64, light) > choose_processes(64, heavy) > choose_processes(8, heavy) >= 1
    for threads in (LEAST_THREADS, 16, 64):
        (most, first), (_, second) = choice.LOCK_SHARES
        for weights, share in ((light, first), (heavy, second), (most, 0.25)):
            each = -(-threads // choose_processes(threads, weights))
            assert rate_under_lock(1.0, share, each) >= choice.LEAST_SPEED * each, "threads keep their speed"
    assert choose_processes(LEAST_THREADS, light) > 1
    assert choose_sharing(4, None, 9, light) == choice.Sharing(4, 2, 1)
    assert (choose_sharing(4, None, 2, light).threads, choose_sharing(None, None, 2, light).processes) == (1, 1)
    assert choose_sharing(4, None, 8, light) == choose_sharing(4, 2, 2, light)
    assert choose_sharing(None, None, 16, light).least_texts == choice.LEAST_TEXTS * choose_processes(16, light)


def test_the_rate_under_a_lock_is_between_its_limits():
    assert rate_under_lock(1.0, 0.0, 8) == 8
    assert rate_under_lock(1.0, 1.0, 8) == pytest.approx(1.0)
    rates = [rate_under_lock(1.0, 0.2, threads) for threads in (1, 2, 8, 64)]
    assert rates == sorted(rates) and rates[0] == 1 and rates[-1] == pytest.approx(5)


class Asked:
    """A process that notes what it is asked for, and what of it is left."""

    is_usable = has_loaded = True

    def __init__(self):
        self.asked, self.left, self.askers_left, self.answers = {}, [], [], None
        self.cancel, self.cancel_all = self.left.append, self.askers_left.append

    def request(self, owner, answers, what, content, caller):
        self.answers = answers
        self.asked[number := len(self.asked) + 1] = [what, *content]
        return number

    def numbers(self):
        return {content: number for number, (_, content) in self.asked.items()}


@pytest.fixture
def process():
    return Asked()


@pytest.fixture
def warned():
    return []


@pytest.fixture
def scheduler(process, warned):
    return dispatching(SimpleNamespace(process=lambda index: process, check_open=lambda: None, warn=warned.append))


CASES = [(1, TEXT_LIMIT), (TEXT_LIMIT // 4, 4), (TEXT_LIMIT, CHUNK_LIMIT), (10 * TEXT_LIMIT, CHUNK_LIMIT)]


@pytest.mark.parametrize(("texts", "most"), CASES)
def test_a_process_has_a_few_chunks_or_many_small_ones(scheduler, process, texts, most):
    scheduler.submit(plan_of(*[Chunk("echo", [n], texts, 1) for n in range(2 * TEXT_LIMIT)]), "one")
    scheduler.tick()
    assert len(process.asked) == most
    scheduler.submit(plan_of(Chunk("echo", ["newcomer"], texts, 1)), "other")
    scheduler.tick()
    assert len(process.asked) == most + 1 and process.asked[most + 1] == ["echo", "newcomer"]


def test_each_answer_goes_to_its_own_chunk(scheduler, process, warned):
    done: list[str] = []
    chunks = [Chunk("echo", [name], 1, 1, lambda name=name: done.append(name)) for name in "abc"]
    together, alone = (scheduler.submit(plan_of(*some), name) for name, some in enumerate((chunks[:2], chunks[2:])))
    scheduler.tick()
    assert len(process.askers_left) == 1, "what an interrupt left there"
    numbers = process.numbers()
    failure = [numbers["c"], "failed", FastattnError("no c")]
    for answer in ([numbers["b"], "done", "of b"], failure, [0, "warning", "odd"], [numbers["a"], "done", "of a"]):
        process.answers.put(answer)
    while not together.done():
        scheduler.tick()
    assert together.result(0) == ["of a", "of b"] and done == ["b", "a"] and warned == ["odd"]
    with pytest.raises(FastattnError, match="no c"):
        alone.result(0)
    assert not scheduler.tick() and scheduler.is_at_rest


def test_what_is_cancelled_is_left_and_its_answer_is_nobodys(scheduler, process):
    waiting = scheduler.submit(plan_of(chunk("echo", "waits")), "one")
    kept = scheduler.submit(plan_of(chunk("echo", "kept")), "other")
    scheduler.tick()
    numbers = process.numbers()
    assert waiting.cancel() and not process.left
    scheduler.tick()
    assert process.left == [numbers["waits"]]
    for answer in ([numbers["waits"], "done", "too late"], [numbers["kept"], "done", "in time"]):
        process.answers.put(answer)
    while not kept.done():
        scheduler.tick()
    assert kept.result(0) == ["in time"] and waiting.cancelled()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX sessions")
def test_a_warning_is_told_once_and_a_terminals_interrupt_is_the_programs_own(monkeypatch):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    with pool_of(1, monkeypatch) as (pool, scheduler), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert scheduler.submit(plan_of(chunk("say"))).result(60) == [[0.5, "1"]]
        assert [str(warning.message) for warning in caught] == ["warned of"]
        assert os.getsid(pool.process(0).pid) != os.getsid(0)


def test_a_file_that_takes_the_number_of_a_closed_pipe_gets_nothing():
    """A pool is closed by any thread, also by one that comes between two steps of the thread that writes."""

    class Numberless(io.FileIO):
        def fileno(self):
            raise AssertionError("it may be another file's by now")

    reading, writing = os.pipe()
    with Numberless(writing, "wb") as stream:
        write_parts(stream, [b"some", memoryview(b"thing")])
    assert os.read(reading, 99) == b"something"
    with pytest.raises(PipeClosed):
        write_parts(stream, [b"more"])
    os.close(reading)


def test_what_is_cut_is_closed_and_what_is_none_says_so():
    whole = b"".join(map(bytes, message_parts([1, "done", np.arange(3, dtype=np.float32)])))
    number, kind, array = read_message(io.BytesIO(whole))
    assert (number, kind, array.tolist(), array.dtype) == (1, "done", [0, 1, 2], np.float32)
    for size in range(len(whole)):
        with pytest.raises(PipeClosed):
            read_message(io.BytesIO(whole[:size]))
    for other in (b"F" + whole[1:], whole[:8] + b"\2" + whole[9:]):
        with refused(FastattnError):
            read_message(io.BytesIO(other))
