"""Jobs: sentences to translate or continue, the time that they may take, their beams and hypotheses; and passes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError, SearchTimeout
from fastattn.layers.key_value_cache import DecoderSizes
from fastattn.models.decoder import Decoder
from fastattn.ops.protocol import OutputSubset
from fastattn.scheduling.request import Ticket

# A step costs one pass over the weights however few its rows, so each of many rows is cheaper; beyond this number there
# is no gain, and the cache grows with every row.
ROWS = 112
# Of greedy search. 128 of zh-en on two threads: 1.41 s if all are taken at once, 1.32 s if shorter ones fill the room
# that becomes free; on one thread 2.3 s with 48 at once and with 64.
SENTENCES = 48
# A light model's kernels are done before Python has prepared the next step: it takes this many times as many sentences.
# Firefox's en-pt spends 21% of its steps' time outside kernels with 64 sentences, 13% with 256.
LIGHT = 5
LIGHT_WEIGHTS = 1 << 22  # of its decoder's layers at most
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
TOKENS = 16384
# A card takes this many times as many sentences, and cache rows, as far as a quarter of its free memory has room for
# them: pools that double take half. 48 rows fill one tile of 64, and all its multiprocessors together have hundreds of
# tiles at a time.
ON_A_CARD = 8
# Source tokens of sentences that are admitted together: about 50 ms of a base Transformer's encoder. Then the queue is
# looked at again.
ADMITTED = 1024
FIRST_AHEAD = 3  # tokens that speculation proposes at first


@dataclass
class Allowance:
    """The seconds of search that all sentences of a text have ``left`` together."""

    left: float


def allowances(texts: Iterable[int], options: DecodingOptions) -> dict[int, Allowance]:
    """An allowance for each text, by its number; {} without a timeout."""
    return {} if options.timeout is None else {number: Allowance(options.timeout) for number in texts}


def charge(jobs: Sequence["Job"], seconds: float) -> None:
    """Subtract the time of a shared step from the jobs' allowances, in equal shares.

    So a text's neighbours in a batch, however many, cost it no time.
    """
    for job in jobs:
        if job.allowance is not None:
            job.allowance.left -= seconds / len(jobs)


def is_over(job: "Job") -> bool:
    """Whether the job's time is used up."""
    return job.allowance is not None and job.allowance.left <= 0


def late_search(options: DecodingOptions) -> SearchTimeout:
    """The error for a text whose time is over."""
    return SearchTimeout(f"the search took longer than the timeout of {options.timeout:g} s")


class Stop(NamedTuple):
    """What ends a target beside end tokens.

    tokens  how many of its last tokens ``found`` is given, at most
    found   (the ids) -> whether the target ends with the last of them; any thread may call it
    """

    tokens: int
    found: Callable[[Sequence[int]], bool]


@dataclass(frozen=True)
class Job:
    """A sentence to translate, or a prompt to continue.

    source      its ids; empty for a model without an encoder
    start       first inputs of the decoder that are not part of the target: a start token, a language token, a prompt
    prefix      the target's first tokens
    options     its own, perhaps other than its neighbours'
    context     how many tokens of the prefix are left out of the score and of what penalties look back on
    forced      how many tokens of the prefix are imposed even if the others are only favoured
    wished      a prefix that is only favoured
    shared      how many first tokens, of start and prefix, are cached once for all jobs with the same source and
                tokens. They are a separate pass, whose bits differ from those of a pass over all tokens
    hypothesis  its number among the samples of one sentence
    number      the sentence's number for the callback
    salt        distinguishes the samples of equal sentences
    allowed     returns the ids that it may choose from, int32; None: the model's shortlist, if it has one
    constraint  makes what says of the target's ids so far which may be next, ``allowed(ids)``; None: any may
    recalled    whether penalties, n-grams and suppressed sequences look back on the start too
    stop        what else ends it
    traced      whether the log-probability of each token is wanted
    speculate   where tokens are proposed from (``speculation.py``): "prompt", or a draft model; None: nowhere
    scored      nothing is searched for: the result is the log-probability of each token of ``start`` behind the first,
                float32; for a model without an encoder
    allowance   its text's remaining time; at zero the sentence is given up, with no hypotheses; None: no limit
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
    constraint: Callable[[], Any] | None = None
    recalled: bool = False
    stop: Stop | None = None
    traced: bool = False
    speculate: Decoder | str | None = None
    scored: bool = False
    allowance: Allowance | None = None

    weight = 1  # as a Scheduler knows it

    @property
    def length(self) -> int:
        return len(self.source) or len(self.start)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What all jobs of a batch have in common beside their options."""
        return self.allowed is not None, self.constraint is not None, self.speculate

    def limit(self, max_positions: int) -> int:
        """The most tokens of its target, for a decoder with this many positions (0: no limit)."""
        room = max(1, max_positions - len(self.start) + 1) if max_positions else 0
        # The first token of an alternative is behind the prefix.
        prefix = self.context - 1 if self.context else len(self.prefix)
        return self.options.limit(len(self.source), room, prefix)


EXPECTED_ANSWER = 128  # tokens of a continuation: nothing tells


def expected_rows(job: Job) -> int:
    """About how many rows of the cache a sentence will fill."""
    beam = job.options.beam_size
    if not len(job.source):  # the beams share what they begin with
        answer = 0 if job.scored else min(job.options.max_decoding_length or EXPECTED_ANSWER, EXPECTED_ANSWER)
        return len(job.start) + len(job.prefix) + beam * answer
    return beam * (len(job.source) * 5 // 4 + 16 + len(job.start) + len(job.prefix))


def most_sentences(sizes: DecoderSizes, beam: int, free: int | None = None) -> int:
    """The most sentences of this beam size that a worker has in progress; ``free`` bytes of a card."""
    scale = _scale(sizes, free)
    return max(1, min(scale * SENTENCES, scale * ROWS // beam))


def admitted_at_once(sizes: DecoderSizes, free: int | None = None) -> int:
    """The source tokens admitted between two looks at the queue."""
    return min(_scale(sizes, free), 2 if free is None else ON_A_CARD) * ADMITTED


def most_tokens(sizes: DecoderSizes, free: int | None) -> int:
    """The most cache rows that sentences in progress are expected to fill."""
    if free is None:
        return TOKENS
    row_bytes = sum((*sizes.row_widths, *sizes.memory_widths)) * np.dtype(sizes.row_dtype).itemsize
    return min(ON_A_CARD * TOKENS, free // 4 // max(row_bytes, 1))


def _scale(sizes: DecoderSizes, free: int | None) -> int:
    if free is not None:
        return max(1, most_tokens(sizes, free) // TOKENS)
    return LIGHT if sizes.layer_weights <= LIGHT_WEIGHTS else 1


class Pass(ABC):
    """A job of one pass."""

    weight = 1  # as a Scheduler knows it

    @property
    @abstractmethod
    def length(self) -> int:
        """About how many rows it puts through the model."""

    @abstractmethod
    def fits_with(self, other: "Pass") -> bool:
        """Whether both can share a pass."""

    @abstractmethod
    def run(self, model: Decoder, jobs: Sequence[Any], end_id: int, unk_id: int) -> list[Any]:
        """The results of jobs that share a pass, this one among them."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished target, with its end token only if that is asked for.

    log_probability  the sum over ``length`` tokens, the end token counted and a target prefix counting 0
    score            (log_probability - length * word_penalty) / length ** length_penalty, and the coverage penalty
    attention_TS     each token's attention over the source ids, if the options need it
    log_probs        of each of ``tokens``, float32, if the job is traced
    proposed, accepted  how many tokens speculation proposed, and how many of them are here
    """

    tokens: np.ndarray
    log_probability: float
    length: int
    score: float
    attention_TS: np.ndarray | None = None
    log_probs: np.ndarray | None = None
    proposed: int = 0
    accepted: int = 0


def normalized(log_probability: float, length: int, length_penalty: float, word_penalty: float = 0.0) -> float:
    """(log_probability - length * word_penalty) / length ** length_penalty, in float32; 0 where nothing was produced.

    Marian's History::add; CTranslate2's without the word penalty.
    """
    if not length:
        return 0.0
    if length_penalty == word_penalty == 0:
        return float(np.float32(log_probability))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # huge penalties make scores 0, infinite or NaN
        penalized = np.float32(log_probability) - np.float32(length) * np.float32(word_penalty)
        return float(penalized / np.float32(length) ** np.float32(length_penalty))


def check_jobs(jobs: Sequence[Job], sizes: DecoderSizes) -> None:
    """Raise InputError for invalid jobs, before others share steps with them.

    Invalid are an empty source, if the model has an encoder, a target without a start, a sampling_topk over the
    vocabulary, and what needs attention of a model without it.
    """
    for job in jobs:
        topk = job.options.sampling_topk
        if topk > sizes.vocabulary:
            raise InputError(f"sampling_topk ({topk}) is greater than the vocabulary ({sizes.vocabulary})")
        if job.options.needs_attention and not sizes.aligns:
            raise InputError(
                "return_attention, replace_unknowns and coverage_penalty need a model with attention to its source"
            )
        if sizes.memory_widths and not len(job.source):
            raise InputError("a source should have at least one token, got none")
        if not len(job.start):
            raise InputError("a target should begin with a start token, got none")


# A list that grows at its end, of which several may share a beginning: (the last, those before), or ().
Trace: TypeAlias = tuple[float, "Trace"] | tuple[()]


def traced(trace: Trace) -> np.ndarray:
    """The numbers of a trace, first ones first, float32."""
    numbers: list[float] = []
    while trace:
        number, trace = trace
        numbers.append(number)
    return np.array(numbers[::-1], np.float32)


class Sentence:
    """A job in progress.

    memory_slot  of the cache
    slots_R  its slots in the cache, one for each beam
    key      of its random samples
    subset, subset_offsets  the outputs that it chooses from, and where they lie; None: all tokens
    expected  rows of the cache that it will about fill
    before   the input position before the target's first token
    recalled  how many of the start's tokens penalties look back on
    matcher  what the job's constraint has made
    traces   of a traced job, for each beam: the log-probability of its last token, and the trace before that
    ahead    how many tokens to propose next; proposed, accepted: as in Hypothesis
    """

    matcher: Any = None

    def __init__(self, ticket: Ticket, memory_slot: int, slots_R: np.ndarray, key: int, subset: OutputSubset | None):
        self.ticket, self.memory_slot, self.slots_R, self.key, self.subset = ticket, memory_slot, slots_R, key, subset
        self.job: Job = ticket.job
        self.expected, self.before = expected_rows(self.job), len(self.job.start) - 1
        self.subset_offsets = (0, 0, 0) if subset is None else subset.place
        self.recalled = len(self.job.start) if self.job.recalled else 0
        self.traces: list[Trace] = [()]
        self.hypotheses: list[Hypothesis] = []
        self.ahead, self.proposed, self.accepted = FIRST_AHEAD, 0, 0


@dataclass
class Beams:
    """B sentences in progress with R beams each: one array for each property."""

    sentences_B: np.ndarray  # of Sentence
    slots_BR: np.ndarray  # of the cache
    steps_B: np.ndarray  # tokens produced so far
    positions_B: np.ndarray  # of the next input
    limits_B: np.ndarray
    finished_B: np.ndarray  # hypotheses so far
    top_finished_B: np.ndarray  # whether the best beam has ever ended
    scores_BR: np.ndarray
    tokens_BR: np.ndarray
    diverged_BR: np.ndarray  # beams whose token differed from the favoured prefix
    subsets_B3: np.ndarray  # where the sentences' OutputSubsets lie, if they have any

    def select(self, chosen_B: np.ndarray) -> "Beams":
        return Beams(*(getattr(self, f.name)[chosen_B] for f in fields(self)))

    def later(self, tokens: int | np.ndarray) -> "Beams":
        """So many tokens later, as far as rows and random numbers go."""
        return replace(self, steps_B=self.steps_B + tokens, positions_B=self.positions_B + tokens)

    def joined(self, other: "Beams") -> "Beams":
        return Beams(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def add_traces(beams: Beams, scores_BC: np.ndarray, parents_BC: np.ndarray) -> None:
    """Put the candidates' traces in the place of the beams'."""
    with np.errstate(invalid="ignore"):  # behind what is impossible: NaN
        own_BC = scores_BC - np.take_along_axis(beams.scores_BR, parents_BC, axis=1)
    for sentence, own_C, parents_C in zip(beams.sentences_B.tolist(), own_BC.tolist(), parents_BC.tolist()):
        if sentence.job.traced:
            sentence.traces = [(own, sentence.traces[parent]) for own, parent in zip(own_C, parents_C)]


def keep_traces(beams: Beams, kept_BR: np.ndarray | range) -> None:
    """Leave the traces of the candidates that continue; of all sentences the same, if that is a range."""
    for b, sentence in enumerate(beams.sentences_B.tolist()):
        if sentence.job.traced:
            kept = kept_BR if isinstance(kept_BR, range) else kept_BR[b].tolist()
            sentence.traces = [sentence.traces[c] for c in kept]
