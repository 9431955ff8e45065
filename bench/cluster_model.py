"""A long job on a cluster of machines: what it is made of, and its time in closed form.

A block is a piece of the input; an actor is a process that holds a model and does one block after another.
``cluster_simulation`` plays the same job event by event; what the formulas leave out is seen in the difference.
"""

import math
from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np

SMALLEST, LARGEST, SHARES = 128 << 10, 4 << 20, 200  # bytes of a block; blocks of a job in between
REQUESTS = 4  # to storage for a block: look, read, write the part, write its record
FILES = 2  # of these, files that stay


@dataclass(frozen=True)
class Job:
    """What there is to do, and how fast an actor of a machine of ordinary speed does it.

    sentences_B  of each block
    rate         sentences a second of one actor
    actors       of a machine
    start        seconds until an actor of a new machine computes
    own_storage  seconds of the actor for a sentence of a block that is read, decoded, encoded and written
    moved        bytes of a sentence that go through the network, both ways
    """

    sentences_B: np.ndarray
    rate: float
    actors: int
    start: float
    own_storage: float = 0.0
    moved: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Machines, their storage and what disturbs them.

    spread     standard deviation of the logarithm of a machine's speed
    slow       share of machines that have half of their speed
    losses     of a machine, an hour
    away       seconds until another stands in its place
    held       blocks that an actor is given at a time, of which it computes one and the others wait
    handing    seconds from when an actor is given a block until it can begin with it
    bandwidth  bytes a second of one machine to storage and from it
    latency    seconds of a request to storage
    elsewhere  whether blocks of a lost machine are given to others; else they wait for the next one in its place
    """

    machines: int
    spread: float = 0.1
    slow: float = 0.05
    losses: float = 0.05
    away: float = 300.0
    held: int = 2
    handing: float = 0.1
    bandwidth: float = 600e6
    latency: float = 0.05
    elsewhere: bool = False

    @property
    def slow_machines(self) -> int:
        return math.floor(self.slow * self.machines + 0.5)


def calm(machines: int, held: int = 1) -> Cluster:
    """Machines of the same speed, none of which is lost."""
    return Cluster(machines, spread=0.0, slow=0.0, losses=0.0, held=held)


@dataclass(frozen=True)
class Parts:
    """Seconds of a job, from the start of its machines on.

    last  from when there is nothing left to give out until the last block is done, beyond an even share of what is left
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

    Work and storage are shared evenly, by speed. A machine computes for 1 / losses on average and is then away, and
    what its actors were at is done again. When the last block has been given out, an actor has (held - 1/2) blocks to
    do on average, and one of the slowest machine has ``held``: so much later is the end than an even share. A machine
    that is lost near the end delays it by what is left of its time away.
    """
    block = float(job.sentences_B.max())
    busy = block / job.rate
    storage = storage_seconds(job, cluster, float(job.sentences_B.mean()))
    storage += cluster.handing if cluster.held == 1 else 0.0
    n, slow = cluster.machines, cluster.slow_machines
    actors = job.actors * (n - slow / 2)  # of ordinary speed
    work = float(job.sentences_B.sum()) / job.rate / actors
    stored = storage * len(job.sentences_B) / (job.actors * n)
    again = cluster.away + job.start
    per_second = cluster.losses / 3600
    useful = (1 - per_second * busy / 2) / (1 + per_second * again)
    held = min(cluster.held, math.ceil(len(job.sentences_B) / (job.actors * n)))
    last = held * busy / _slowest(cluster) - (held - 0.5) * busy * n / (n - slow / 2) + storage / 2
    if not cluster.elsewhere:
        last += _delay(n * per_second, again + held * busy)
    return Parts(job.start, work, stored, (work + stored) * (1 / useful - 1), last)


def _slowest(cluster: Cluster) -> float:
    """The speed to be expected of the slowest machine: a quantile of the log-normal distribution whose mean is 1."""
    among = cluster.slow_machines or cluster.machines
    quantile = NormalDist().inv_cdf(1 / (among + 1))
    speed = math.exp(cluster.spread * quantile - cluster.spread**2 / 2)
    return speed / 2 if cluster.slow_machines else speed


def _delay(rate: float, window: float) -> float:
    """Of machines lost at a rate in the last ``window`` seconds, each back after that, the expected return of the last.

    It is counted from the end. The losses are a Poisson process: of k events the last lies k / (k + 1) of the window
    in, and the mean over k is this.
    """
    events = rate * window
    return window * (1 + math.expm1(-events) / events) if events else 0.0
