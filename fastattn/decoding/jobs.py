"""Sentences to translate, what becomes of them, and the line in which they wait."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


class Allowance:
    """The seconds of search that all sentences of a text have left together."""

    def __init__(self, seconds: float):
        self.left = seconds


@dataclass(frozen=True)
class Job:
    """A sentence to translate.

    source      its ids
    start       the target's start token followed by its prefix
    context     how many tokens of the prefix count neither for the score nor for what penalties look back on
    forced      how many tokens of the prefix are imposed even where the others are only wished for
    wished      a prefix that the target shall only be drawn towards
    hypothesis  the number among the samples of one sentence
    number      tells the samples of equal sentences apart
    allowed     gives the ids that it may choose from, int32; None: those of the model's shortlist, where it has one
    allowance   its text's time; once that is used up the sentence is given up, with no hypotheses; None: no limit
    """

    source: np.ndarray
    start: Sequence[int]
    context: int = 0
    forced: int = 0
    wished: Sequence[int] = ()
    hypothesis: int = 0
    number: int = 0
    allowed: Callable[[], np.ndarray] | None = None
    allowance: Allowance | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A finished target sequence, without its end token unless that is asked for.

    log_probability  the sum over ``length`` tokens, the end token counted and a target prefix counting 0
    score            (log_probability - length * word_penalty) / length ** length_penalty, and the coverage penalty
    attention_TS     where the options need it: each token's attention over the source ids
    """

    tokens: np.ndarray
    log_probability: float
    length: int
    score: float
    attention_TS: np.ndarray | None = None


class Waiting:
    """The sentences no worker has taken yet. Each worker has its own line and, when that is empty, the others'.

    Without a lock, which an interrupt could leave held: a deque's own operations are whole.
    """

    def __init__(self, jobs: Sequence[Job], workers: int):
        # The longest first: they last longest, and neighbours are of a length.
        order = sorted(range(len(jobs)), key=lambda i: -len(jobs[i].source))
        self._lines = [deque(order[worker::workers]) for worker in range(workers)]
        self._jobs = jobs
        self.stopped = False

    def take(self, worker: int, most: int, room: Callable[[Job], bool]) -> list[int]:
        """Up to ``most`` sentences, as long as ``room`` accepts them."""
        taken: list[int] = []
        for line in [self._lines[worker], *self._lines]:
            while line and len(taken) < most:
                try:
                    number = line.popleft()
                except IndexError:  # another worker was quicker
                    break
                if not room(self._jobs[number]):
                    line.appendleft(number)
                    break
                taken.append(number)
        return taken

    def stop(self) -> None:
        self.stopped = True
        for line in self._lines:
            line.clear()
