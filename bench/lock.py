"""How long Python holds its lock for a sentence, and how that limits many cores: bench/__main__.py's ``lock``.

While one thread works, another thread, which never takes the lock, reads the lock's word all the time. It is the only
word of the interpreter's state that is 1 whenever Python code reads it, and 0 whenever compiled code without the lock
does (CPython on Linux). The kernels' clock, which counts the Python around a kernel's loop as the kernel's, checks the
result. The speed of more cores is predicted from the time that the lock is held and the bytes that a sentence reads
from memory. Threads that share only the lock check the prediction on this machine's cores: with a thread a core, each
must wait for the lock as long as predicted, and eight threads must not be slower. That needs an idle machine: on a busy
one, the thread that holds the lock may lack a CPU.
"""

import contextlib
import ctypes
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

from bench.document import Section, markdown
from bench.machine import describe, processors
from bench.sentences import sentences
from fastattn.processes.choice import choose_processes, rate_under_lock
from fastattn.runtime.pool_code import load, pause, store

PAUSES = 20  # between two reads: below a microsecond, and writers can keep the word's cache line
LOOKS, HELD, STOP = 0, 8, 16


@numba.njit(nogil=True)
def _copy(address, words_N):
    for n in range(len(words_N)):
        words_N[n] = load(address + 8 * n)


@numba.njit(nogil=True)
def _sample(address, shift, room):
    while not load(room + STOP):
        held = (load(address) >> shift) & 0xFFFFFFFF
        store(room + LOOKS, load(room + LOOKS) + 1)
        store(room + HELD, load(room + HELD) + held)
        for _ in range(PAUSES):
            pause()


@functools.cache
def lock_word() -> tuple[int, int]:
    """(address of the aligned int64 that holds the lock's word, how many bits the word lies above its end).

    The process must have one Python thread. Raises RuntimeError if no word fits, such as in a Python without the lock.
    """
    start = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    end = next(int(last, 16) for first, last in ranges if int(first, 16) <= start < int(last, 16))
    is_word = np.ones((end - start) // 4, np.bool_)
    free_N = np.zeros(len(is_word) // 2, np.int64)
    for _ in range(5):
        _copy(start, free_N)
        held_N = np.frombuffer(ctypes.string_at(start, free_N.nbytes), np.int32)
        is_word[: len(held_N)] &= (free_N.view(np.int32) == 0) & (held_N == 1)
    places = np.flatnonzero(is_word[: 2 * len(free_N)])
    if len(places) != 1:
        raise RuntimeError(f"expected one word that shows the interpreter's lock, found {len(places)}")
    return start + int(places[0]) // 2 * 8, 32 * (int(places[0]) % 2)


@dataclass
class Sampled:
    """share    of the time that the lock was held
    seconds  of CPU that the process took, without the sampling thread's
    """

    share: float = 0.0
    seconds: float = 0.0


@contextlib.contextmanager
def sampled_lock() -> Iterator[Sampled]:
    room_N, own = np.zeros(3, np.int64), [0.0]
    address, shift = lock_word()

    def work() -> None:
        begun = time.thread_time()
        _sample(address, shift, room_N.ctypes.data)
        own[0] = time.thread_time() - begun

    _sample.compile((numba.int64,) * 3)
    sampler, sampled = threading.Thread(target=work, daemon=True), Sampled()
    sampler.start()
    while not room_N[LOOKS // 8]:
        time.sleep(0.001)
    room_N[:2] = 0
    seconds = time.process_time()
    try:
        yield sampled
    finally:
        looks, held = room_N[0], room_N[1]
        room_N[STOP // 8] = 1
        sampler.join()
        sampled.seconds = time.process_time() - seconds - own[0]
        sampled.share = float(held) / max(1, int(looks))


@dataclass(frozen=True)
class Work:
    """The costs of a sentence.

    seconds  of one core
    held     part of them, with the interpreter's lock held
    bytes    read from memory, if caches keep nothing from one step to the next
    """

    seconds: float
    held: float
    bytes: float

    @property
    def share(self) -> float:
        return self.held / self.seconds

    def rate(self, threads: int) -> float:
        """Sentences a second of threads, each with a core, that share one lock."""
        return rate_under_lock(self.seconds, self.held, threads)

    def waiting(self, threads: int) -> float:
        """Seconds that each of these threads waits for the lock, for a sentence."""
        return threads / self.rate(threads) - self.seconds


def predicted(work: Work, cores: int, processes: int = 1, bandwidth: float = float("inf"), sent: float = 0.0) -> float:
    """Sentences a second of ``cores``, split evenly among processes with a lock each.

    bandwidth  bytes a second that all cores together read from memory
    sent       seconds that the calling process holds its own lock for a sentence that another computes
    """
    fewer, more = divmod(cores, processes)  # threads of a process, and how many processes have one more
    own = more * work.rate(fewer + 1) + (processes - more) * work.rate(fewer)
    passed_on = 1 / sent if sent and processes > 1 else float("inf")
    from_memory = bandwidth / work.bytes if work.bytes else float("inf")
    return min(own, passed_on, from_memory)


def efficiency(work: Work, cores: int, processes: int = 1, bandwidth: float = float("inf"), sent: float = 0.0) -> float:
    """``predicted`` as a share of ``cores`` times one core's speed."""
    return predicted(work, cores, processes, bandwidth, sent) * work.seconds / cores


MODELS = {"en-pt": "en", "zh-en": "zh", "minilm": "en"}
PRECISIONS = ("int8", "float32")
MODES = ("batch", "8 callers", "one")
BYTES = {"int8": 1, "bfloat16": 2, "float32": 4}
CORES = (8, 16, 64)
CALLERS = 8
# Size -> sentences of a call: in batches, and one at a time.
COUNTS = {"full": (256, 32), "quick": (64, 8), "toy": (8, 2)}
ROUNDS = {"full": 5, "quick": 3, "toy": 1}
SHORTLISTED = 0.05  # share of en-pt's vocabulary in a shortlist


@dataclass(frozen=True)
class Row:
    """clock  the share of the time outside kernels, by their own clock
    sent     seconds of the calling process's CPU for a sentence that another process computes
    weights  of the layers that a step goes through
    """

    name: str
    mode: str
    work: Work
    clock: float
    sent: float
    weights: int


class Model:
    def __init__(self, name: str, precision: str, threads: int = 1, processes: int = 1):
        from fastattn import Encoder, Translator

        if name == "minilm":
            encoder = Encoder(name, precision, threads, processes)
            self.call: Callable[[Any], Any] = encoder.encode
            self.tokens: Callable[[list[str]], float] = lambda texts: float(encoder.count_tokens(texts).mean())
            self.translator = None
        else:
            translator = Translator(name, precision, threads, processes)
            self.call = lambda texts: translator.translate(texts, beam_size=1)
            self.translator = translator
        self._name, self._bytes = name, BYTES[precision]

    def run(self, texts: list[str], mode: str) -> None:
        if mode == "batch":
            self.call(texts)
        elif mode == "one":
            for text in texts:
                self.call(text)
        else:
            threads = [
                threading.Thread(target=lambda own=texts[n::CALLERS]: list(map(self.call, own))) for n in range(CALLERS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def reads(self, texts: list[str], mode: str) -> tuple[float, int]:
        """(bytes that a sentence reads from memory, if no cache keeps any of a step; weights of the layers)."""
        from fastattn.weights import download, read

        matrices = {name: t.size for name, t in read(download.resolve(self._name)).tensors.items() if len(t.shape) == 2}
        layers = {
            part: sum(size for name, size in matrices.items() if name.startswith(part + ".layers"))
            for part in ("encoder", "decoder")
        }
        if self.translator is None:
            rows = {"batch": 1024, "one": self.tokens(texts)}.get(mode, CALLERS * self.tokens(texts))
            return layers["encoder"] * self._bytes * self.tokens(texts) / rows, layers["encoder"]
        from fastattn.decoding.worker import Capacity

        sizes = self.translator._service.model.sizes
        capacity = Capacity(sizes)
        parts = [part for each in self.translator.translate(texts, beam_size=1, details=True) for part in each.parts]
        target = sum(len(part.tokens) + 1 for part in parts) / len(texts)
        source = sum(len(part.source) for part in parts) / len(texts)
        sharing = {"batch": capacity.sentences(1), "one": 1}.get(mode, CALLERS)
        projection = matrices["decoder.projection.weight"] * (SHORTLISTED if self._name == "en-pt" else 1)
        weights = (layers["decoder"] + projection) * self._bytes * target / sharing
        weights += layers["encoder"] * self._bytes * max(source / capacity.source_tokens, 1 / sharing)
        width = sum(sizes.row_widths) * target / 2 * (self._name != "en-pt") + sum(sizes.memory_widths) * source
        cache = width * np.dtype(sizes.row_dtype).itemsize * target
        return weights + cache, sizes.layer_weights


def measure(name: str, precision: str, mode: str, size: str, data: Path | None) -> Row:
    from bench.kernel_clock import kernel_seconds

    texts = sentences(MODELS[name], COUNTS[size][mode == "one"], data)
    model = Model(name, precision)
    model.run(texts, mode)
    samples = []
    for _ in range(ROUNDS[size]):
        with sampled_lock() as sampled:
            model.run(texts, mode)
        samples.append(sampled)
    seconds = float(np.median([each.seconds for each in samples])) / len(texts)
    held = float(np.median([each.share for each in samples])) * seconds
    begun = time.process_time()
    with kernel_seconds() as kernels:
        model.run(texts, mode)
    clock = 1 - sum(kernels.values()) / (time.process_time() - begun)
    sent = 0.0
    if mode != "one":
        workers = Model(name, precision, 1, 2)
        workers.run(texts, mode)
        begun = time.process_time()
        workers.run(texts, mode)
        sent = (time.process_time() - begun) / len(texts)
    read, weights = model.reads(texts, mode)
    return Row(f"{name} {precision}", mode, Work(seconds, held, read), clock, sent, weights)


@dataclass(frozen=True)
class Contended:
    """Measures of threads that share only the lock; each has a model of its own.

    rate     sentences a second of all threads; other load on the machine lowers it
    seconds  of CPU for a sentence
    waiting  seconds of a sentence in which a thread sleeps, waiting for the lock; waiting for a CPU is not counted
    """

    rate: float
    seconds: float
    waiting: float


def contended(name: str, precision: str, threads: int, size: str, data: Path | None) -> Contended:
    count = COUNTS[size][0]
    texts = sentences(MODELS[name], count, data)
    models = [Model(name, precision) for _ in range(threads)]
    models[0].run(texts, "batch")
    ready, slept = threading.Barrier(threads + 1), []

    def work(model: Model) -> None:
        model.run(texts[:8], "batch")
        ready.wait()
        begun, before = time.perf_counter(), _scheduled()
        model.run(texts, "batch")
        slept.append(time.perf_counter() - begun - (_scheduled() - before))

    workers = [threading.Thread(target=work, args=(model,)) for model in models]
    for worker in workers:
        worker.start()
    ready.wait()
    begun, used = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.join()
    done = threads * count
    return Contended(
        done / (time.perf_counter() - begun), (time.process_time() - used) / done, float(np.mean(slept)) / count
    )


def _scheduled() -> float:
    """Seconds that this thread has run, or waited for a CPU."""
    running, waiting, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()
    return (int(running) + int(waiting)) / 1e9


def table(rows: list[Row], bandwidth: float) -> str:
    head = ["model", "calls", "sentence, one core", "lock held", "share (clock)"]
    head += [f"{cores} cores: threads, processes" for cores in CORES]
    lines = []
    for row in rows:
        work = row.work
        cells = [row.name, row.mode, f"{1e3 * work.seconds:.2f} ms", f"{1e6 * work.held:.0f} us"]
        cells.append(f"{work.share:.1%} ({row.clock:.1%})")
        for cores in CORES:
            count = choose_processes(cores, row.weights)
            threads = efficiency(work, cores, 1, bandwidth)
            shared = efficiency(work, cores, count, bandwidth, row.sent)
            cells.append("" if row.mode == "one" else f"{threads:.0%}, {shared:.0%} ({count})")
        lines.append(cells)
    return markdown(head, lines)


def run(size: str, only: str, data: Path | None, bandwidth: float, document: Path | None) -> int:
    section = Section(document, "lock")
    if section.is_missing():
        return 2
    lock_word()  # needs a process with one thread
    models = [(name, precision) for name in MODELS for precision in PRECISIONS if only in f"{name} {precision}"]
    rows = []
    for name, precision in models:
        for mode in MODES:
            rows.append(measure(name, precision, mode, size, data))
            print(f"{rows[-1].name} {mode}: lock held {rows[-1].work.share:.1%} of the time", file=sys.stderr)
    text = table(rows, bandwidth)
    text += f"\n\n{describe()['machine']['cpu']}, one thread; memory {bandwidth / 1e9:.0f} GB/s.\n"
    counts = (1, processors(), CALLERS)
    for name, precision in models:
        results = {threads: contended(name, precision, threads, size, data) for threads in counts}
        work = next(row.work for row in rows if row.name == f"{name} {precision}" and row.mode == "batch")
        rates = ", ".join(f"{each.rate:.0f}" for each in results.values())
        seconds = ", ".join(f"{1e3 * each.seconds:.2f}" for each in results.values())
        waits = ", ".join(f"{1e6 * each.waiting:.0f}" for each in results.values())
        expected = 1e6 * work.waiting(processors())
        text += (
            f"\n- {name} {precision}, batches, {', '.join(map(str, counts))} threads on {processors()} cores: {rates} "
            f"sentences a second, {seconds} ms of CPU each; a thread waits for the lock for {waits} us a sentence, "
            f"predicted for {processors()}: {expected:.0f}"
        )
    section.show(text + "\n")
    return 0
