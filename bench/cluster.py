"""Time and cost of a billion sentences on a cluster, computed: bench/__main__.py's command ``cluster``.

An actor's speed, start and files are measured here. A job's time is computed from that in closed form, with which a
simulation event by event, with slow machines and lost ones, agreed within 2%. What nobody measured is an assumption,
and the document says which. A block is a piece of the input; an actor is a process that holds a model and does one
block after another.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from bench.document import Section, markdown
from bench.lock import MODELS
from bench.machine import describe
from bench.sentences import sentences
from bench.timing import once
from fastattn.processes.choice import LOCK_SHARES, choose_processes, rate_under_lock

SMALLEST, LARGEST, SHARES = 128 << 10, 4 << 20, 200  # bytes of a block; blocks of a job in between
REQUESTS = 4  # to storage for a block: look, read, write the part, write its record


@dataclass(frozen=True)
class Job:
    """The sentences of a job, and how fast an actor of a machine of ordinary speed does them.

    sentences_B  of each block
    rate         sentences a second of one actor
    actors       of a machine
    start, warm  seconds until an actor computes on a new machine, and on one whose caches are full
    own_storage  seconds of the actor for a sentence of a block that is read, decoded, encoded and written
    moved        bytes of a sentence that go through the network, both ways
    """

    sentences_B: np.ndarray
    rate: float
    actors: int
    start: float
    warm: float = 0.0
    own_storage: float = 0.0
    moved: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Machines, their storage and what disturbs them.

    spread     standard deviation of the logarithm of a machine's speed
    slow       share of machines that run at half speed
    losses     how often a machine is lost, an hour
    away       seconds until another machine replaces it
    held       blocks that an actor is given at a time
    at_once    of these, blocks in progress, which share batches, and of which one is read or written. The rest wait
    handing    seconds from when an actor is given a block until it can begin with it
    laying     seconds of the driver for each block of a pass, before any is given out
    bandwidth  bytes a second of one machine to storage and from it
    latency    seconds of a request to storage
    passes     whether a second pass of new actors does the blocks of lost machines, after all other blocks; else they
               are given out next
    """

    machines: int
    spread: float = 0.1
    slow: float = 0.05
    losses: float = 0.05
    away: float = 300.0
    held: int = 3
    at_once: int = 3
    handing: float = 0.1
    laying: float = 0.00065
    bandwidth: float = 600e6
    latency: float = 0.05
    passes: bool = True

    @property
    def slow_machines(self) -> int:
        return math.floor(self.slow * self.machines + 0.5)


def calm(machines: int, held: int = 1, at_once: int = 1) -> Cluster:
    return Cluster(machines, spread=0.0, slow=0.0, losses=0.0, held=held, at_once=at_once)


@dataclass(frozen=True)
class Parts:
    """Seconds of a job, from the start of its machines on.

    start    until the first block is given out
    storage  that is not hidden behind the computing of other blocks
    last     from when the last block is given out until the last one is done, less an even share of the work then left;
             with a second pass, the sum of both passes
    """

    start: float
    work: float
    storage: float
    lost: float
    last: float

    @property
    def seconds(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))


def block_bytes(total: int) -> int:
    """The size of the blocks that an input of so many bytes is cut into."""
    return min(max(total // SHARES, SMALLEST), LARGEST)


def cut(total: int, files: int, size: int, per_sentence: float) -> np.ndarray:
    """Sentences of each block: (B,) float64. The last block of every file has the rest of it.

    total         bytes, the same in each of the ``files``
    size          bytes of a block
    per_sentence  bytes
    """
    whole, rest = divmod(total // files, size)
    blocks = [size] * whole + [rest] * bool(rest)
    return np.tile(np.array(blocks, np.float64), files) / per_sentence


def computed(job: Job, cluster: Cluster) -> Parts:
    """The parts of a job's time.

    Actors share the work in proportion to their speed. An actor finishes a block when it is computed, or, if all its
    blocks in progress wait for storage, when storage is done. A machine computes for 1 / losses on average and is then
    away, and the blocks of its actors are done again.
    """
    blocks, n = len(job.sentences_B), cluster.machines
    mean, largest = float(job.sentences_B.mean()) / job.rate, float(job.sentences_B.max()) / job.rate
    # All actors of a machine share its bandwidth.
    a_sentence = job.own_storage + job.moved * job.actors / cluster.bandwidth
    stored = REQUESTS * cluster.latency + float(job.sentences_B.mean()) * a_sentence
    waiting = cluster.handing if cluster.held == cluster.at_once else 0.0
    hidden = max(0.0, (mean + stored + waiting) / cluster.at_once - mean)
    work = blocks * mean / (job.actors * (n - cluster.slow_machines / 2))
    storage = blocks * hidden / (job.actors * n)
    per_second = cluster.losses / 3600
    useful = (1 - per_second * mean / 2) / (1 + per_second * (cluster.away + job.start))
    lost = (work + storage) * (1 / useful - 1)
    last = _last(job, cluster, blocks, n) * largest + stored / 2
    if cluster.passes:
        losses = n * per_second * (work + storage + lost)
        again = losses * job.actors * cluster.held  # blocks
        used = min(n, math.ceil(again / job.actors))
        last += -math.expm1(-losses) * (job.warm + _last(job, cluster, again, used) * largest + stored)
    return Parts(cluster.laying * blocks + job.start, work, storage, lost, last)


def _last(job: Job, cluster: Cluster, blocks: float, machines: int) -> float:
    """How much later than with an even share the last block is done, in units of a block.

    When all blocks are given out, an actor has (held - 1/2) blocks to do on average, and one of the slowest machine has
    ``held``. The slowest speed is the expected quantile of a log-normal distribution whose mean is 1.
    """
    if not machines:
        return 0.0
    held = min(cluster.held, math.ceil(blocks / (job.actors * machines)))
    slow = math.floor(cluster.slow * machines + 0.5)
    quantile = NormalDist().inv_cdf(1 / ((slow or machines) + 1))
    slowest = math.exp(cluster.spread * quantile - cluster.spread**2 / 2) / (2 if slow else 1)
    return held / slowest - (held - 0.5) * machines / (machines - slow / 2)


THREADS = 2
COUNTS = {"full": 512, "quick": 128, "toy": 4}
ROUNDS = {"full": 3, "quick": 1, "toy": 1}
_START = """
import sys
from fastattn import Encoder, Translator
model, path, threads = sys.argv[1:]
if model == "minilm":
    Encoder(path, "int8", threads=int(threads)).encode(["One sentence."])
else:
    Translator(path, "int8", threads=int(threads)).translate(["One sentence."])
"""


@dataclass(frozen=True)
class Figures:
    """What one model in int8 does here.

    rate         sentences a second of THREADS threads
    weights      of the layers that a step goes through
    warm, cold   seconds of a process until it has done one sentence, with a cache of compiled kernels and without
    bytes_in     of a sentence, with its line end
    bytes_out    of a row that is written: the sentence and its result
    own_storage  seconds to read a sentence from a file of a block's size, and to write its row to another
    """

    name: str
    rate: float
    weights: int
    warm: float
    cold: float
    bytes_in: float
    bytes_out: float
    own_storage: float


def measure(name: str, size: str, data: Path | None) -> Figures:
    texts = sentences(MODELS[name], COUNTS[size], data)
    call, weights = _model(name)
    results = call(texts)
    seconds = float(np.median([once(lambda: call(texts)) for _ in range(ROUNDS[size])]))
    lines = "".join(f"{text}\n" for text in texts).encode()
    outputs = results.tobytes() if isinstance(results, np.ndarray) else "\n".join([*results, ""]).encode()
    warm = float(np.median([_start(name, {}) for _ in range(ROUNDS[size])]))
    with tempfile.TemporaryDirectory() as folder:
        cold = warm if size == "toy" else _start(name, {"FASTATTN_CACHE": folder})
    sizes = len(lines) / len(texts), len(lines + outputs) / len(texts)
    own_storage = _files(lines, lines + outputs, len(texts))
    return Figures(name, len(texts) / seconds, weights, warm, cold, *sizes, own_storage)


def _model(name: str) -> tuple[Callable[[list[str]], Any], int]:
    """(the call of an actor for a block, with the API's own options; weights as ``processes.choice`` counts them)."""
    from fastattn import Encoder, Translator

    if name == "minilm":
        encoder = Encoder(name, "int8", THREADS)
        stack = encoder._spec
        width = 2 * stack.feed_forward.inner_width + 4 * stack.attention.query_width
        return encoder.encode, stack.layers * stack.width * width
    translator = Translator(name, "int8", THREADS)
    return translator.translate, translator._service.model.sizes.layer_weights


def _start(name: str, environment: dict[str, str]) -> float:
    from fastattn.weights import download

    command = [sys.executable, "-c", _START, name, str(download.resolve(name)), str(THREADS)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | environment)
    return time.perf_counter() - begun


def _files(lines: bytes, rows: bytes, count: int) -> float:
    """Seconds a sentence, of ``count``, to read, split and decode a block and to write its output."""
    from fastattn.system.atomic_files import write_whole

    times = -(-LARGEST // len(lines))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "block.txt"), Path(folder, "part.txt")
        source.write_bytes(lines * times)
        begun = time.perf_counter()
        source.read_bytes().decode().splitlines()
        write_whole(target, lambda stream: stream.writelines([rows] * times))
        return (time.perf_counter() - begun) / (times * count)


SENTENCES, INPUTS = 10**9, 1000  # the latter are files
CORES, MACHINES = 16, (1, 10, 100)
WORTH_NAMING = 0.03  # of the time; with less of anything else, the work is the limit
# Dollars: a thousand requests that write, and that read (list prices of an object store).
WRITES, READS = 0.005, 0.0004


def job_of(figures: Figures, size: int | None = None) -> Job:
    """The job of SENTENCES on machines of CORES, whose actors are as many as a Translator's processes would be.

    size  bytes of a block; None: ``block_bytes`` of the input
    """
    input_bytes = int(SENTENCES * figures.bytes_in)
    actors, threads = shared(figures)
    share = next(share for most, share in LOCK_SHARES if figures.weights <= most)
    faster = rate_under_lock(1.0, share, threads) / rate_under_lock(1.0, share, THREADS)
    return Job(
        cut(input_bytes, INPUTS, size or block_bytes(input_bytes), figures.bytes_in),
        figures.rate * faster,
        actors,
        figures.cold,
        figures.warm,
        figures.own_storage,
        figures.bytes_in + figures.bytes_out,
    )


def shared(figures: Figures) -> tuple[int, int]:
    """(actors of a machine, threads of each)."""
    actors = choose_processes(CORES, figures.weights)
    return actors, CORES // actors


def dollars(seconds: float, machines: int, price: float, blocks: int) -> float:
    """The cost of machines from their start to the job's end, and of requests, half of which write."""
    return machines * seconds / 3600 * price + blocks * REQUESTS / 2 * (WRITES + READS) / 1000


def limit(parts: Parts) -> str:
    names = {"start": parts.start, "storage": parts.storage, "lost machines": parts.lost, "last blocks": parts.last}
    name, seconds = max(names.items(), key=lambda item: item[1])
    share = seconds / parts.seconds
    return f"{name}, {share:.0%}" if share >= WORTH_NAMING else f"cores ({name}, {share:.1%})"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def measured_table(models: list[Figures]) -> str:
    head = ["model, int8", f"{THREADS} threads", "actors, threads", "a machine", "start, warm", "cold", "block"]
    head.append("its files")
    lines = []
    for figures in models:
        job, (actors, threads) = job_of(figures), shared(figures)
        count = float(job.sentences_B.max())
        lines.append([
            figures.name,
            f"{figures.rate:.0f} a second",
            f"{actors} x {threads}",
            f"{actors * job.rate:.0f} a second",
            f"{figures.warm:.2f} s",
            f"{figures.cold:.1f} s",
            f"{count:.0f} sentences, {duration(count / job.rate)}",
            f"{1e3 * count * figures.own_storage:.0f} ms",
        ])  # fmt: skip
    return markdown(head, lines)


def cluster_table(models: list[Figures], price: float) -> str:
    head = ["model, machines", "time", "cost", "start", "work", "storage", "lost", "last blocks", "limited by"]
    lines = []
    for figures in models:
        job = job_of(figures)
        for machines in MACHINES:
            parts = computed(job, Cluster(machines))
            lines.append([
                f"{figures.name}, {machines}",
                duration(parts.seconds),
                f"{dollars(parts.seconds, machines, price, len(job.sentences_B)):.2f} $",
                *(duration(each) for each in (parts.start, parts.work, parts.storage, parts.lost, parts.last)),
                limit(parts),
            ])  # fmt: skip
    return markdown(head, lines)


def disturbances(machines: int) -> dict[str, Cluster]:
    even, full = calm(machines), Cluster(machines)
    three = replace(even, held=3, at_once=3)
    spread = replace(three, spread=full.spread)
    slow = replace(spread, slow=full.slow)
    return {
        "machines of one speed, none lost; an actor has 1 block": even,
        "3 blocks, all in progress": three,
        f"and speeds that differ by {full.spread:.0%}": spread,
        f"and {full.slow_machines} machines of half speed": slow,
        "4 blocks, of which 1 waits": replace(slow, held=4),
        "6 blocks, of which 3 wait": replace(slow, held=6),
        f"3 blocks; and {full.losses:g} losses a machine-hour": full,
        "the same, lost blocks being the next to be given out": replace(full, passes=False),
    }


def disturbance_table(figures: Figures) -> str:
    job, machines = job_of(figures), MACHINES[-1]
    larger = job_of(figures, size=4 * int(job.sentences_B.max() * figures.bytes_in))
    rows = [(name, job, cluster) for name, cluster in disturbances(machines).items()]
    rows.append((f"{len(larger.sentences_B)} blocks, four times as large", larger, Cluster(machines)))
    lines = [[name, duration(computed(work, cluster).seconds)] for name, work, cluster in rows]
    return markdown([f"{figures.name} on {machines} machines", "time"], lines)


def assumptions(price: float) -> str:
    base = Cluster(1)
    return (
        f"Assumed: {CORES} cores a machine, each as fast as one here; {price:.2f} dollars a machine-hour; speeds of\n"
        f"machines that differ by {base.spread:.0%} (log-normal), {base.slow:.0%} of them at half speed;\n"
        f"{base.losses:g} losses a machine-hour, another machine in its place {duration(base.away)} later; storage\n"
        f"of {base.bandwidth / 1e6:.0f} MB/s a machine, {1e3 * base.latency:.0f} ms for each of {REQUESTS} requests "
        f"a block, {WRITES} and {READS} dollars\na thousand writes and reads; {INPUTS} input files. "
        f"Ray 2.60 lays out a block in {1e3 * base.laying:.2g} ms, as was measured with two cores."
    )


def run(size: str, only: str, data: Path | None, price: float, document: Path | None) -> int:
    section = Section(document, "cluster")
    if section.is_missing():
        return 2
    models = []
    for name in (name for name in MODELS if only in f"{name} int8"):
        models.append(measure(name, size, data))
        print(f"measured: {models[-1]}", file=sys.stderr)
    if not models:
        print(f"no model's name contains {only!r}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    parts = [
        f"{SENTENCES:,} sentences. Measured on {describe()['machine']['cpu']}, {THREADS} threads:",
        measured_table(models),
        assumptions(price),
        cluster_table(models, price),
        disturbance_table(models[0]),
    ]
    section.show("\n\n".join(parts) + "\n")
    return 0
