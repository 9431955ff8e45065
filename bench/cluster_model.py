"""A long job on a cluster of machines: what it is made of, and its time in closed form.

A block is a piece of the input; an actor is a process that holds a model and does one block after another. A
simulation event by event, with slow machines and lost ones, agreed with these formulas within 2%.
"""

import math
from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np

SMALLEST, LARGEST, SHARES = 128 << 10, 4 << 20, 200  # bytes of a block; blocks of a job in between
REQUESTS = 4  # to storage for a block: look, read, write the part, write its record


@dataclass(frozen=True)
class Job:
    """What there is to do, and how fast an actor of a machine of ordinary speed does it.

    sentences_B  of each block
    rate         sentences a second of one actor
    actors       of a machine
    start, warm  seconds until an actor of a new machine computes, and one of a machine whose caches are full
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
    slow       share of machines that have half of their speed
    losses     of a machine, an hour
    away       seconds until another stands in its place
    held       blocks that an actor is given at a time
    at_once    of these, blocks in progress, which share batches, and of which one is read or written. The rest wait
    handing    seconds from when an actor is given a block until it can begin with it
    laying     seconds of the driver for each block of a pass, before any is given out
    bandwidth  bytes a second of one machine to storage and from it
    latency    seconds of a request to storage
    passes     whether blocks of a lost machine are done when all others are, by actors that are started for them; else
               they are the next to be given out
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
    """Machines of the same speed, none of which is lost."""
    return Cluster(machines, spread=0.0, slow=0.0, losses=0.0, held=held, at_once=at_once)


@dataclass(frozen=True)
class Parts:
    """Seconds of a job, from the start of its machines on.

    start    until the first block is given out
    storage  that is not hidden behind the computing of other blocks
    last     from when there is nothing left to give out until the last block is done, beyond an even share of what is
             left, and likewise at the end of a second pass
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
    """Sentences of each block: (B,) float64. The last one of every file is what is left of it.

    total         bytes, the same in each of the ``files``
    size          bytes of a block
    per_sentence  bytes
    """
    whole, rest = divmod(total // files, size)
    blocks = [size] * whole + [rest] * bool(rest)
    return np.tile(np.array(blocks, np.float64), files) / per_sentence


def storage_seconds(job: Job, cluster: Cluster, sentences: float) -> float:
    """Seconds of an actor for reading a block of so many sentences and writing what becomes of it.

    All actors of a machine share its bandwidth.
    """
    each = job.own_storage + job.moved * job.actors / cluster.bandwidth
    return REQUESTS * cluster.latency + sentences * each


def computed(job: Job, cluster: Cluster) -> Parts:
    """The parts of a job's time.

    Work is shared evenly, by speed. An actor is through with a block when it is computed, or, with all it may have in
    progress waiting for storage, when that is. A machine computes for 1 / losses on average and is then away, and what
    its actors were at is done again.
    """
    blocks, n = len(job.sentences_B), cluster.machines
    mean, largest = float(job.sentences_B.mean()) / job.rate, float(job.sentences_B.max()) / job.rate
    stored = storage_seconds(job, cluster, float(job.sentences_B.mean()))
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
    """How much later than an even share the last of so many blocks is done on so many machines, in blocks.

    When there is none left to give out, an actor has (held - 1/2) to do on average, and one of the slowest machine has
    ``held``. The slowest speed is the quantile to be expected of a log-normal distribution whose mean is 1.
    """
    if not machines:
        return 0.0
    held = min(cluster.held, math.ceil(blocks / (job.actors * machines)))
    slow = math.floor(cluster.slow * machines + 0.5)
    quantile = NormalDist().inv_cdf(1 / ((slow or machines) + 1))
    slowest = math.exp(cluster.spread * quantile - cluster.spread**2 / 2) / (2 if slow else 1)
    return held / slowest - (held - 0.5) * machines / (machines - slow / 2)
