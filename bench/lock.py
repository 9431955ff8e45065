"""How long Python holds its lock for a sentence, and what that makes of many cores: bench/__main__.py's ``lock``.

The lock is sampled (``lock_sampling``) while one thread works, and checked by the kernels' own clock, which counts the
Python around a kernel's loop as the kernel's. From the time held, and the bytes that a sentence has read from memory,
``scaling_model`` predicts more cores. Threads that share the lock alone, on the cores at hand, check it: one for each
must wait for the lock as long as predicted, and eight must not be slower. That takes an idle machine: on a busy one,
whoever holds the lock is kept from its CPU.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.document import Section, markdown
from bench.lock_sampling import lock_word, sampled_lock
from bench.machine import describe, processors
from bench.scaling_model import Work, efficiency
from bench.sentences import sentences
from fastattn.processes.choice import chosen_processes

MODELS = {"en-pt": "en", "zh-en": "zh", "minilm": "en"}
PRECISIONS = ("int8", "float32")
MODES = ("batch", "8 callers", "one")
BYTES = {"int8": 1, "bfloat16": 2, "float32": 4}
CORES = (8, 16, 64)
CALLERS = 8
# Sentences of a call, by the size: in batches, and one at a time.
COUNTS = {"full": (256, 32), "quick": (64, 8), "toy": (8, 2)}
ROUNDS = {"full": 5, "quick": 3, "toy": 1}
SHORTLISTED = 0.05  # of the vocabulary, that a shortlist leaves of en-pt's


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
    """A model of MODELS on one thread of each of its processes, as a function of texts."""

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
        """(bytes that a sentence has read from memory, if no cache keeps any of a step; weights of the layers)."""
        from fastattn.weights import download, read

        matrices = {name: t.size for name, t in read(download.resolve(self._name)).tensors.items() if len(t.shape) == 2}
        layers = {
            part: sum(size for name, size in matrices.items() if name.startswith(part + ".layers"))
            for part in ("encoder", "decoder")
        }
        if self.translator is None:
            rows = {"batch": 1024, "one": self.tokens(texts)}.get(mode, CALLERS * self.tokens(texts))
            return layers["encoder"] * self._bytes * self.tokens(texts) / rows, layers["encoder"]
        from fastattn.decoding import jobs

        sizes = self.translator._service.model.sizes
        parts = [part for each in self.translator.translate(texts, beam_size=1, details=True) for part in each.parts]
        target = sum(len(part.tokens) + 1 for part in parts) / len(texts)
        source = sum(len(part.source) for part in parts) / len(texts)
        sharing = {"batch": jobs.most_sentences(sizes, 1), "one": 1}.get(mode, CALLERS)
        projection = matrices["decoder.projection.weight"] * (SHORTLISTED if self._name == "en-pt" else 1)
        weights = (layers["decoder"] + projection) * self._bytes * target / sharing
        weights += layers["encoder"] * self._bytes * max(source / jobs.admitted_at_once(sizes), 1 / sharing)
        width = sum(sizes.row_widths) * target / 2 * (self._name != "en-pt") + sum(sizes.memory_widths) * source
        cache = width * np.dtype(sizes.row_dtype).itemsize * target
        return weights + cache, sizes.layer_weights


def measure(name: str, precision: str, mode: str, size: str, data: Path | None) -> Row:
    """One thread's work at a sentence."""
    from bench.kernel_clock import kernel_seconds

    texts = sentences(MODELS[name], COUNTS[size][mode == "one"], data)
    model = Model(name, precision)
    model.run(texts, mode)
    found = []
    for _ in range(ROUNDS[size]):
        with sampled_lock() as sampled:
            model.run(texts, mode)
        found.append(sampled)
    seconds = float(np.median([each.seconds for each in found])) / len(texts)
    held = float(np.median([each.share for each in found])) * seconds
    begun = time.process_time()
    with kernel_seconds() as kernels:
        model.run(texts, mode)
    clock = 1 - sum(kernels.values()) / (time.process_time() - begun)
    sent = _sent(name, precision, texts, mode) if mode != "one" else 0.0
    read, weights = model.reads(texts, mode)
    return Row(f"{name} {precision}", mode, Work(seconds, held, read), clock, sent, weights)


def _sent(name: str, precision: str, texts: list[str], mode: str) -> float:
    """Seconds of this process's CPU for each text that others compute."""
    model = Model(name, precision, 1, 2)
    model.run(texts, mode)
    begun = time.process_time()
    model.run(texts, mode)
    return (time.process_time() - begun) / len(texts)


@dataclass(frozen=True)
class Contended:
    """What threads that share only the lock do together, each with a model of its own.

    rate     sentences a second; on a machine that others use, they have part of it
    seconds  of CPU for a sentence
    waiting  seconds that a thread sleeps for a sentence: it waits for the lock. Waiting for a CPU is not counted
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
    """Of all that is measured and predicted, in Markdown."""
    head = ["model", "calls", "sentence, one core", "lock held", "share (clock)"]
    head += [f"{cores} cores: threads, processes" for cores in CORES]
    lines = []
    for row in rows:
        work = row.work
        cells = [row.name, row.mode, f"{1e3 * work.seconds:.2f} ms", f"{1e6 * work.held:.0f} us"]
        cells.append(f"{work.share:.1%} ({row.clock:.1%})")
        for cores in CORES:
            count = chosen_processes(cores, row.weights)
            threads = efficiency(work, cores, 1, bandwidth)
            shared = efficiency(work, cores, count, bandwidth, row.sent)
            cells.append("" if row.mode == "one" else f"{threads:.0%}, {shared:.0%} ({count})")
        lines.append(cells)
    return markdown(head, lines)


def run(size: str, only: str, data: Path | None, bandwidth: float, document: Path | None) -> int:
    """Print the table; with a document, write it between its marks; the exit status."""
    section = Section(document, "lock")
    if section.is_missing():
        return 2
    lock_word()  # while there is one thread
    chosen = [(name, precision) for name in MODELS for precision in PRECISIONS if only in f"{name} {precision}"]
    rows = []
    for name, precision in chosen:
        for mode in MODES:
            rows.append(measure(name, precision, mode, size, data))
            print(f"{rows[-1].name} {mode}: lock held {rows[-1].work.share:.1%} of the time", file=sys.stderr)
    text = table(rows, bandwidth)
    text += f"\n\n{describe()['machine']['cpu']}, one thread; memory {bandwidth / 1e9:.0f} GB/s.\n"
    counts = (1, processors(), CALLERS)
    for name, precision in chosen:
        found = {threads: contended(name, precision, threads, size, data) for threads in counts}
        work = next(row.work for row in rows if row.name == f"{name} {precision}" and row.mode == "batch")
        rates = ", ".join(f"{each.rate:.0f}" for each in found.values())
        seconds = ", ".join(f"{1e3 * each.seconds:.2f}" for each in found.values())
        waits = ", ".join(f"{1e6 * each.waiting:.0f}" for each in found.values())
        expected = 1e6 * work.waiting(processors())
        text += (
            f"\n- {name} {precision}, batches, {', '.join(map(str, counts))} threads on {processors()} cores: {rates} "
            f"sentences a second, {seconds} ms of CPU each; a thread waits for the lock for {waits} us a sentence, "
            f"predicted for {processors()}: {expected:.0f}"
        )
    section.show(text + "\n")
    return 0
