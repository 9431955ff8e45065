"""A long job on a cluster, event by event: blocks are given out as Ray Data does it, machines are slow or get lost.

The driver gives the next block to the actor that holds the fewest, up to ``Cluster.held``, and takes none back. An
actor reads the blocks that it has in progress, computes them one after the other and writes them. (Where they share the
model instead, they take as long together.) What it holds is lost with its machine, and given out again.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.cluster_model import FILES, Cluster, Job, storage_seconds


@dataclass
class Outcome:
    """What came of a job.

    seconds  from the start of the machines until the last block was done
    tries_B  how often each block was begun
    done_B   seconds at which each block was done; nan: it was not
    lost     (block, seconds) of each that was in progress when its machine was lost
    losses   of machines
    passes   over what was open
    """

    tries_B: np.ndarray
    done_B: np.ndarray
    seconds: float = 0.0
    lost: list[tuple[int, float]] = field(default_factory=list)
    losses: int = 0
    passes: int = 1

    def files_a_second(self, window: float = 10.0) -> tuple[float, float]:
        """Of what is written: (mean, most in a ``window`` of seconds)."""
        counts = np.bincount((self.done_B // window).astype(np.int64))
        return FILES * len(self.done_B) / self.seconds, FILES * float(counts.max()) / window


@dataclass
class _Actor:
    """One of a machine's.

    waiting   blocks, and the seconds from which on each can be begun
    progress  blocks
    free      seconds at which its model has computed all of these
    lives     how often its machine was lost: what was to come of blocks before that does not come
    """

    number: int
    machine: int
    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    progress: list[int] = field(default_factory=list)
    free: float = 0.0
    lives: int = 0

    @property
    def held(self) -> int:
        return len(self.waiting) + len(self.progress)


def simulate(job: Job, cluster: Cluster, seed: int) -> Outcome:
    """The outcome of a job; the same for the same seed."""
    return _Run(job, cluster, seed).run()


class _Run:
    def __init__(self, job: Job, cluster: Cluster, seed: int):
        self._job, self._cluster = job, cluster
        self._rng = np.random.default_rng(seed)
        self._speeds = _speeds(cluster, self._rng)
        count = len(job.sentences_B)
        self._work = (job.sentences_B / job.rate).tolist()
        self._storage = [storage_seconds(job, cluster, sentences) for sentences in job.sentences_B.tolist()]
        self._actors = [_Actor(n, n // job.actors) for n in range(cluster.machines * job.actors)]
        # actors with room, by how many blocks they hold, in the order in which they came to it
        self._room: list[dict[int, None]] = [{} for _ in range(cluster.held)]
        self._open = deque(range(count))
        self._later: list[int] = []  # blocks for the next pass
        self._left = count
        self._outcome = Outcome(np.zeros(count, np.int64), np.full(count, np.nan))
        self._events: list[tuple[float, int, Callable[..., None], tuple[int, ...]]] = []
        self._sequence = 0
        self._now = 0.0

    def run(self) -> Outcome:
        for machine in range(self._cluster.machines):
            self._at(self._cluster.laying * self._left + self._job.start, self._machine_starts, machine)
        while self._left:
            self._now, _, event, arguments = heapq.heappop(self._events)
            event(*arguments)
            if not self._events or self._events[0][0] > self._now:  # all that happens at once has happened
                self._give_out()
        self._outcome.seconds = self._now
        return self._outcome

    def _at(self, time: float, event: Callable[..., None], *arguments: int) -> None:
        self._sequence += 1  # events at one time come in the order in which they were made
        heapq.heappush(self._events, (time, self._sequence, event, arguments))

    def _of(self, machine: int) -> list[_Actor]:
        return self._actors[machine * self._job.actors : (machine + 1) * self._job.actors]

    def _machine_starts(self, machine: int) -> None:
        for actor in self._of(machine):
            self._room[0][actor.number] = None
        if self._cluster.losses:
            lasts = self._rng.exponential(3600 / self._cluster.losses)
            self._at(self._now + lasts, self._machine_is_lost, machine)

    def _machine_is_lost(self, machine: int) -> None:
        self._outcome.losses += 1
        lost: list[int] = []
        for actor in self._of(machine):
            self._leave_room(actor)
            self._outcome.lost += [(block, self._now) for block in actor.progress]
            lost += actor.progress + [block for block, _ in actor.waiting]
            actor.progress.clear()
            actor.waiting.clear()
            actor.lives += 1
        if self._cluster.passes:
            self._later += lost
            if lost:
                self._end_pass()
        else:
            self._open.extendleft(reversed(lost))
        self._at(self._now + self._cluster.away + self._job.start, self._machine_starts, machine)

    def _end_pass(self) -> None:
        """If all is done but what is left for a later one, have that begin, with actors of its own."""
        if self._later and self._left == len(self._later):
            self._at(self._now + self._cluster.laying * self._left + self._job.warm, self._next_pass)

    def _next_pass(self) -> None:
        self._outcome.passes += 1
        self._open.extend(self._later)
        self._later.clear()

    def _give_out(self) -> None:
        while self._open:
            number = next((number for room in self._room for number in room), None)
            if number is None:
                return
            actor = self._actors[number]
            self._leave_room(actor)
            actor.waiting.append((self._open.popleft(), self._now + self._cluster.handing))
            self._begin(actor)
            self._enter_room(actor)

    def _enter_room(self, actor: _Actor) -> None:
        if actor.held < self._cluster.held:
            self._room[actor.held][actor.number] = None

    def _leave_room(self, actor: _Actor) -> None:
        if actor.held < self._cluster.held:
            self._room[actor.held].pop(actor.number, None)

    def _begin(self, actor: _Actor) -> None:
        """Read as many blocks as may be in progress; when each is written follows from that."""
        while actor.waiting and len(actor.progress) < self._cluster.at_once:
            block, ready = actor.waiting.popleft()
            actor.progress.append(block)
            self._outcome.tries_B[block] += 1
            half = self._storage[block] / 2
            actor.free = max(max(self._now, ready) + half, actor.free) + self._work[block] / self._speeds[actor.machine]
            self._at(actor.free + half, self._block_is_done, actor.number, actor.lives, block)

    def _block_is_done(self, number: int, lives: int, block: int) -> None:
        actor = self._actors[number]
        if actor.lives != lives:
            return  # it was lost
        self._leave_room(actor)
        actor.progress.remove(block)
        self._outcome.done_B[block] = self._now
        self._left -= 1
        self._begin(actor)
        self._enter_room(actor)
        self._end_pass()


def _speeds(cluster: Cluster, rng: np.random.Generator) -> list[float]:
    """Of each machine: log-normal with a mean of 1; some have half of theirs."""
    speeds = np.exp(cluster.spread * rng.standard_normal(cluster.machines) - cluster.spread**2 / 2)
    speeds[rng.permutation(cluster.machines)[: cluster.slow_machines]] /= 2
    return [float(speed) for speed in speeds]
