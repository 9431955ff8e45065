"""Sentences to translate, and what becomes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError
from fastattn.models.sizes import DecoderSizes


class Allowance:
    """The seconds of search that all sentences of a text have left together."""

    def __init__(self, seconds: float):
        self.left = seconds


@dataclass(frozen=True)
class Job:
    """A sentence to translate.

    source      its ids; none of a model without an encoder
    start       what the decoder starts from and the target does not hold: a start token, a language's, ...
    prefix      what the target begins with
    options     of its own, those of neighbours may be others
    context     how many tokens of the prefix count neither for the score nor for what penalties look back on
    forced      how many tokens of the prefix are imposed even where the others are only wished for
    wished      a prefix that the target shall only be drawn towards
    shared      how many first tokens, of start and prefix, are kept once for all jobs with the same source and the same
                such tokens. They are a pass of their own, whose bits differ from those of a pass over all
    hypothesis  the number among the samples of one sentence
    number      of the sentence, as the callback is told
    salt        tells the samples of equal sentences apart
    allowed     gives the ids that it may choose from, int32; None: those of the model's shortlist, where it has one
    allowance   its text's time; once that is used up the sentence is given up, with no hypotheses; None: no limit
    """

    source: np.ndarray
    start: Sequence[int]
    prefix: Sequence[int] = ()
    options: DecodingOptions = DecodingOptions()
    context: int = 0
    forced: int = 0
    wished: Sequence[int] = ()
    shared: int = 0
    hypothesis: int = 0
    number: int = 0
    salt: int = 0
    allowed: Callable[[], np.ndarray] | None = None
    allowance: Allowance | None = None

    weight = 1  # as a Scheduler knows it

    @property
    def length(self) -> int:
        return len(self.source)

    def limit(self, max_positions: int) -> int:
        """The most tokens that its target may have, with a decoder of so many positions; 0: no limit."""
        room = max(1, max_positions - len(self.start) + 1) if max_positions else 0
        # The first token of an alternative is behind the prefix.
        prefix = self.context - 1 if self.context else len(self.prefix)
        return self.options.limit(len(self.source), room, prefix)


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


def check_jobs(jobs: Sequence[Job], sizes: DecoderSizes) -> None:
    """Raise InputError for what cannot be done, before others share steps with it.

    A source that is empty, where the model has an encoder, a target without a start, samples from more than all tokens.
    """
    for job in jobs:
        topk = job.options.sampling_topk
        if topk > sizes.vocabulary:
            raise InputError(f"sampling_topk ({topk}) is greater than the vocabulary ({sizes.vocabulary})")
        if sizes.memory_width and not len(job.source):
            raise InputError("a source should have at least one token, got none")
        if not len(job.start):
            raise InputError("a target should begin with a start token, got none")
