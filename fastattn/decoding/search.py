"""A search: its job, its plan, and the candidates for the next token under its options.

B sentences, R beams each, C = 2 R candidates (one in greedy search), k candidates a beam. With one end token a beam has
at most one candidate that ends. So at least R of 2 R candidates continue.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastattn.arguments.steps import NO_EDITS, Edits
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError, SearchTimeout
from fastattn.layers.draws import uniform
from fastattn.layers.key_value_cache import DecoderSizes
from fastattn.models.decoder import Decoder
from fastattn.ops.protocol import OutputSubset
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Shortlist
from fastattn.system.records import dataclass


@dataclass
class Allowance:
    """The seconds of search that remain for all sentences of a text together."""

    seconds: float


def allowances(numbers: Iterable[int], options: DecodingOptions) -> dict[int, Allowance]:
    """An allowance for each text, by the text's number; {} without a timeout."""
    return {} if options.timeout is None else {number: Allowance(options.timeout) for number in numbers}


def timeout_error(options: DecodingOptions) -> SearchTimeout:
    """The error for a text whose allowance is used up."""
    return SearchTimeout(f"the search took longer than the timeout of {options.timeout:g} s")


class StopRule(NamedTuple):
    """A rule that ends a target where no end token does.

    window  how many of the target's last tokens ``is_end`` gets; a shorter target is passed whole
    is_end  (ids) -> whether the target ends with the last id; any thread may call this function
    """

    window: int
    is_end: Callable[[Sequence[int]], bool]


@dataclass(frozen=True)
class Job:
    """A sentence to translate, or a prompt to continue.

    source            ids of the source; empty for a model without an encoder
    start             the decoder's inputs before the target: a start token, a language token, or a prompt
    prefix            the target's first tokens
    options           the options of this job alone
    unscored_tokens   how many tokens of the prefix count neither for the score nor for penalties
    imposed_tokens    with the option prefix_bias_beta: how many first tokens of the prefix are imposed nevertheless
    bias_prefix       a prefix that is only favoured
    shared_tokens     how many first tokens, of start and prefix, the cache has once for all jobs with equal source and
                      equal first tokens. These tokens have a pass, whose bits differ from a pass over all tokens
    hypothesis        the job's number among the samples of one sentence
    number            the sentence's number for the callback
    salt              distinguishes the samples of equal sentences
    find_allowed_ids  returns the ids to choose from, int32; None: the model's shortlist, if the model has one
    constraint        makes a matcher, whose ``allowed(ids)`` says which ids may follow the target's ids; None: all ids
    penalizes_start   whether penalties, n-grams and suppressed sequences look back on the start too
    stop              a rule that ends the target where no end token does
    with_log_probs    whether the log-probability of each token is returned
    top_count         with log-probabilities: how many of the most probable tokens at each position are returned too
    speculate         the source of proposals (``speculation.py``): "prompt", or a draft model; None: no proposals
    only_scores       there is no search: the result is (float32 log-probabilities, the most probable tokens), of each
                      token of ``start`` behind the first; for a model without an encoder
    allowance         the remaining time of the job's text; at zero the job ends without hypotheses; None: no limit
    """

    source: np.ndarray
    start: Sequence[int]
    prefix: Sequence[int] = ()
    options: DecodingOptions = DecodingOptions()
    unscored_tokens: int = 0
    imposed_tokens: int = 0
    bias_prefix: Sequence[int] = ()
    shared_tokens: int = 0
    hypothesis: int = 0
    number: int = 0
    salt: int = 0
    find_allowed_ids: Callable[[], np.ndarray] | None = None
    constraint: Callable[[], Any] | None = None
    penalizes_start: bool = False
    stop: StopRule | None = None
    with_log_probs: bool = False
    top_count: int = 0
    speculate: Decoder | str | None = None
    only_scores: bool = False
    allowance: Allowance | None = None

    weight = 1  # for the Scheduler, which counts jobs by weight

    @property
    def length(self) -> int:
        return len(self.source) or len(self.start)

    @property
    def batch_key(self) -> tuple[Any, ...]:
        """All jobs of a batch have the same key, and the same options."""
        return self.find_allowed_ids is not None, self.constraint is not None, self.speculate, self.top_count

    def limit(self, max_positions: int) -> int:
        """The most tokens of the job's target, for a decoder with this many positions (0: no limit)."""
        target_positions = max(1, max_positions - len(self.start) + 1) if max_positions else 0
        # An alternative's unscored tokens are the caller's prefix and one token that ``search_plan`` puts behind it.
        prefix_length = self.unscored_tokens - 1 if self.unscored_tokens else len(self.prefix)
        return self.options.limit(len(self.source), target_positions, prefix_length)


@dataclass(frozen=True)
class Hypothesis:
    """A finished target; its end token is among ``tokens`` only with the option return_end_token.

    log_probability  the sum over ``length`` tokens, the end token counted and a target prefix counting 0
    score            (log_probability - length * word_penalty) / length ** length_penalty, and the coverage penalty
    attention_TS     each token's attention over the source ids, if the options need attention
    log_probs        float32, one for each of ``tokens``, if the job is ``with_log_probs``
    top_log_probs    for each of ``tokens`` the most probable tokens, id -> log-probability, ``top_count`` at most
    proposed, accepted  how many tokens speculation proposed, and how many of them the target has
    cached_tokens    how many tokens of the start the cache had from other prompts
    """

    tokens: np.ndarray
    log_probability: float
    length: int
    score: float
    attention_TS: np.ndarray | None = None
    log_probs: np.ndarray | None = None
    top_log_probs: Sequence[dict[int, float]] = ()
    proposed: int = 0
    accepted: int = 0
    cached_tokens: int = 0


def normalized_score(log_probability: float, length: int, length_penalty: float, word_penalty: float = 0.0) -> float:
    """(log_probability - length * word_penalty) / length ** length_penalty, in float32; 0 for length 0.

    As in Marian's History::add; without the word penalty, as in CTranslate2.
    """
    if not length:
        return 0.0
    if length_penalty == word_penalty == 0:
        return float(np.float32(log_probability))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # huge penalties make scores 0, infinite or NaN
        penalized = np.float32(log_probability) - np.float32(length) * np.float32(word_penalty)
        return float(penalized / np.float32(length) ** np.float32(length_penalty))


def check_jobs(jobs: Sequence[Job], sizes: DecoderSizes) -> None:
    """Raise InputError for an invalid job, before other jobs share steps with it.

    A job is invalid if its source is empty and the model has an encoder, if its start is empty, if its sampling_topk
    is greater than the vocabulary, or if its options need attention and the model has no attention to its source.
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


class Pass(ABC):
    """A job that is done by one pass over its tokens, together with jobs of its class."""

    weight = 1  # for the Scheduler, which counts jobs by weight

    @property
    @abstractmethod
    def length(self) -> int:
        """About how many rows the job puts through the model."""

    def fits_with(self, other: "Pass") -> bool:
        """Whether both jobs can share a pass."""
        return type(other) is type(self)

    @abstractmethod
    def run(self, model: Decoder, jobs: Sequence[Any], end_id: int, unk_id: int) -> list[Any]:
        """The results of ``jobs``, which share a pass; this job is one of them."""


@dataclass(frozen=True, eq=False)
class Scoring(Pass):
    """Scores a target, given a source: the result is the log-probability of each token behind the first, float32.

    source  ids, int32
    target  ids, int32: a start token, the target's tokens and, usually, an end token
    """

    source: np.ndarray
    target: np.ndarray

    @property
    def length(self) -> int:
        return len(self.source) + len(self.target)

    def run(self, model: Decoder, jobs: Sequence["Scoring"], end_id: int, unk_id: int) -> list[np.ndarray]:
        starts_B1 = np.cumsum([0, *(len(job.target) - 1 for job in jobs)])
        inputs_N = np.concatenate([job.target[:-1] for job in jobs]).astype(np.int32, copy=False)
        outputs_N = np.concatenate([job.target[1:] for job in jobs]).astype(np.int32, copy=False)
        hidden_ND, _ = model.prefill(inputs_N, starts_B1, model.encode([job.source for job in jobs]))
        log_probs_N = model.output.log_probs(hidden_ND, outputs_N)
        return [log_probs_N[starts_B1[b] : starts_B1[b + 1]] for b in range(len(jobs))]


class AttentionMaps(Scoring):
    """The attention of a target's tokens to the source: float32 [layers, heads, T, S].

    Row t is the attention of token t, from whose hidden state token t + 1 is predicted. For a decoder without attention
    heads the array has no layers.
    """

    def run(self, model: Decoder, jobs: Sequence[Scoring], end_id: int, unk_id: int) -> list[np.ndarray]:
        results = []
        for job in jobs:
            maps: list[np.ndarray] = []
            for _ in model.states(job.target, model.encode([job.source]), maps):
                pass  # each state adds its maps
            results.append(np.concatenate(maps) if maps else np.zeros((0, 0, len(job.target), 0), np.float32))
        return results


@dataclass(frozen=True, eq=False)
class Expansion(Pass):
    """Finds a sentence's best next tokens: the result is [(log-probability, id), ...], never empty, no end tokens."""

    job: Job

    @property
    def length(self) -> int:
        return len(self.job.source) + len(self.job.start) + len(self.job.prefix)

    def fits_with(self, other: Pass) -> bool:
        return (
            isinstance(other, Expansion)
            and self.job.options == other.job.options
            and (self.job.find_allowed_ids is None) == (other.job.find_allowed_ids is None)
        )

    def run(
        self, model: Decoder, jobs: Sequence["Expansion"], end_id: int, unk_id: int
    ) -> list[list[tuple[float, int]]]:
        searches = [expansion.job for expansion in jobs]
        options = replace(self.job.options, min_decoding_length=1, sampling_topk=1)
        choice = TokenChoice(model, options, end_id, unk_id)
        inputs = [np.array([*job.start, *job.prefix], np.int32) for job in searches]
        starts_B1 = np.cumsum([0, *map(len, inputs)])
        memory = model.encode([job.source for job in searches])
        hidden_ND, _ = model.prefill(np.concatenate(inputs), starts_B1, memory)
        rows = CandidateRows(np.zeros(len(jobs), np.int64))
        if choice.shortlist is not None or self.job.find_allowed_ids is not None:
            rows.subsets_R = [choice.select_outputs(job) for job in searches]
        hidden_BD = model.ops.take_rows(hidden_ND, starts_B1[1:] - 1)
        log_probs_Bk, ids_Bk = choice.best(hidden_BD, rows, options.num_hypotheses)
        is_likely_Bk = np.exp(log_probs_Bk) >= options.min_alternative_expansion_prob
        is_likely_Bk &= log_probs_Bk > -np.inf
        is_likely_Bk[:, 0] = True  # so that there is at least one translation
        return [
            list(zip(log_probs_k[is_likely_k].tolist(), ids_k[is_likely_k].tolist()))
            for log_probs_k, ids_k, is_likely_k in zip(log_probs_Bk, ids_Bk, is_likely_Bk)
        ]


def search_plan(jobs: Sequence[Job], sizes: DecoderSizes) -> Plan:
    """A plan of each job's hypotheses, best first; [] if the time of the job's text is up. Raises as ``check_jobs``."""
    check_jobs(jobs, sizes)
    jobs = _with_numbers(jobs)
    limits = {b: job.limit(sizes.max_positions) for b, job in enumerate(jobs) if job.options.return_alternatives}
    expandable = [b for b, limit in limits.items() if len(jobs[b].prefix) < limit]
    next_tokens = dict(zip(expandable, (yield [Expansion(jobs[b]) for b in expandable])))
    for_one_hypothesis = _with_changes(return_alternatives=False, num_hypotheses=1)
    branches: list[list[Job]] = []
    for b, job in enumerate(jobs):
        options = job.options
        if options.return_alternatives or options.is_sampled and options.num_hypotheses > 1:
            branch = replace(job, options=for_one_hypothesis(options))
            if not options.return_alternatives:
                branches.append([replace(branch, hypothesis=n) for n in range(options.num_hypotheses)])
            elif b in next_tokens:
                prefixes = [[*job.prefix, token] for _, token in next_tokens[b]]
                branches.append([replace(branch, prefix=prefix, unscored_tokens=len(prefix)) for prefix in prefixes])
            else:  # the limit leaves no token behind the prefix
                branches.append([replace(branch, unscored_tokens=limits[b])])
        elif options.is_biased:
            branches.append([replace(job, prefix=job.prefix[: job.imposed_tokens], bias_prefix=job.prefix)])
        else:
            branches.append([job])
    hypotheses = iter((yield [branch for group in branches for branch in group]))
    results = [[next(hypotheses) for _ in group] for group in branches]
    return [_gather_branches(job, results[b], next_tokens.get(b)) for b, job in enumerate(jobs)]


def score_plan(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> Plan:
    """A plan of the result of a ``Scoring`` for each source and target; a target of one token has an empty result."""
    nonempty = [b for b in range(len(sources)) if len(targets[b]) > 1]
    results = dict(zip(nonempty, (yield [Scoring(sources[b], targets[b]) for b in nonempty])))
    return [results.get(b, np.zeros(0, np.float32)) for b in range(len(sources))]


def stream_plan(job: Job, sizes: DecoderSizes) -> Plan:
    """A plan of whether the job's greedy search, or each sample, ended in time; the callback gets the tokens."""
    check_jobs([job], sizes)
    (job,) = _with_numbers([job])
    count = job.options.num_hypotheses if job.options.is_sampled else 1
    sample = replace(job, options=replace(job.options, num_hypotheses=1))
    results = yield [replace(sample, hypothesis=number) for number in range(count)]
    return all(results)


def _with_changes(**changes: Any) -> Callable[[DecodingOptions], DecodingOptions]:
    """A function that changes options: equal objects get one changed copy, so that sentences still share a batch."""
    copies: dict[int, DecodingOptions] = {}

    def change(options: DecodingOptions) -> DecodingOptions:
        if id(options) not in copies:
            copies[id(options)] = replace(options, **changes)
        return copies[id(options)]

    return change


def _with_numbers(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with numbers. Jobs that sample without a seed get a seed, and salts that distinguish equal sentences."""
    seeded_options = _with_changes(seed=int.from_bytes(os.urandom(8), "little"))
    return [
        replace(job, number=number, salt=number, options=seeded_options(job.options))
        if job.options.is_sampled and job.options.seed is None
        else replace(job, number=number)
        for number, job in enumerate(jobs)
    ]


def _gather_branches(
    job: Job, results: list[list[Hypothesis]], next_tokens: list[tuple[float, int]] | None
) -> list[Hypothesis]:
    """A sentence's hypotheses from those of its branches; [] if the search gave up a branch."""
    if len(results) == 1 and not job.options.return_alternatives:
        return results[0]
    if not all(results):
        return []
    hypotheses = [branch[0] for branch in results]
    if not job.options.return_alternatives:
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
    if next_tokens is None:
        return hypotheses * job.options.num_hypotheses
    return [
        replace(branch, log_probability=p + branch.log_probability, length=branch.length + 1, score=p + branch.score)
        for (p, _), branch in zip(next_tokens, hypotheses)  # p: the log-probability of the branch's first token
    ]


PADDING = -1
HOPELESS = -1e10  # CTranslate2's score of a beam that is only a placeholder

# The next functions list tokens that earlier tokens forbid or penalize. past_RT has each row's lengths_R tokens, then
# -1. A list is ids_RJ: int32, each id once a row, padded with -1, and no wider than the longest row, since the
# projection reads the padding too.


def without_repeats(ids_RJ: np.ndarray) -> np.ndarray:
    """Each id once a row, highest first, then padding."""
    sorted_RJ = -np.sort(-ids_RJ.astype(np.int32), axis=1)
    sorted_RJ[:, 1:][sorted_RJ[:, 1:] == sorted_RJ[:, :-1]] = PADDING
    sorted_RJ = -np.sort(-sorted_RJ, axis=1)
    return np.ascontiguousarray(sorted_RJ[:, : np.max((sorted_RJ >= 0).sum(axis=1), initial=0)])


def last_tokens(past_RT: np.ndarray, lengths_R: np.ndarray, count: int) -> np.ndarray:
    """The last ``count`` tokens of each row; padding in front if the row has fewer."""
    columns_RC = lengths_R[:, None] + np.arange(-count, 0)
    tokens_RC = np.take_along_axis(past_RT, np.maximum(columns_RC, 0), axis=1) if past_RT.shape[1] else columns_RC
    return np.where(columns_RC >= 0, tokens_RC, PADDING)


def repeated_ngrams(past_RT: np.ndarray, lengths_R: np.ndarray, size: int) -> np.ndarray:
    """The ids that would repeat an n-gram of this size in the row (Paulus 2017, section 2.5)."""
    if past_RT.shape[1] < size:
        return np.empty((len(past_RT), 0), np.int32)
    runs_RWC = np.lib.stride_tricks.sliding_window_view(past_RT, size, axis=1)
    prefix_R1C = last_tokens(past_RT, lengths_R, size - 1)[:, None]
    is_repeated_RW = (runs_RWC[:, :, :-1] == prefix_R1C).all(axis=2)
    # A run that reaches into the padding ends with padding, which forbids nothing.
    return without_repeats(np.where(is_repeated_RW, runs_RWC[:, :, -1], PADDING))


def completed_sequences(past_RT: np.ndarray, lengths_R: np.ndarray, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """The ids that would complete one of the sequences, each of two tokens or more."""
    ids_RJ = np.full((len(past_RT), len(sequences)), PADDING, np.int32)
    for j, sequence in enumerate(sequences):
        is_last_missing_R = (last_tokens(past_RT, lengths_R, len(sequence) - 1) == sequence[:-1]).all(axis=1)
        ids_RJ[is_last_missing_R, j] = sequence[-1]
    return without_repeats(ids_RJ)


def early_ids(steps_R: np.ndarray, count: int, ids: Sequence[int]) -> np.ndarray:
    """``ids``, for rows whose next token is one of the first ``count``; a row at step t produces token t."""
    is_early_R = steps_R < count
    if not is_early_R.any():
        return np.empty((len(steps_R), 0), np.int32)
    return np.where(is_early_R[:, None], np.array(ids, np.int32), np.int32(PADDING))


def sentence_key(source: np.ndarray, start: Sequence[int], number: int = 0) -> int:
    """A 64-bit hash of the ids or rows of a sentence's source, and of the ids in ``start``.

    ``number`` distinguishes equal sentences.
    """
    source_N = source.reshape(-1).view(np.int32)  # rows of numbers may be a source too
    content = np.concatenate([[len(source)], source_N, start]).astype("<i8").tobytes()
    salt = number.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, salt=salt).digest(), "little")


def produced_amounts(
    past_RT: np.ndarray, produced_R2: np.ndarray, ids_RJ: np.ndarray, presence: float, frequency: float
) -> np.ndarray:
    """amounts_RJ float32: the logit of a produced id loses ``presence``, and ``frequency`` times the id's count.

    produced_R2  where in a row's past the produced tokens begin and end
    Both penalties are vLLM's.
    """
    amounts_RJ = np.zeros(ids_RJ.shape, np.float32)
    for r, (first, end) in enumerate(produced_R2.tolist()):
        tokens_T = np.sort(past_RT[r, first:end])
        times_J = tokens_T.searchsorted(ids_RJ[r], "right") - tokens_T.searchsorted(ids_RJ[r], "left")
        amounts_RJ[r] = presence * (times_J > 0) + frequency * times_J
    return amounts_RJ


def draw_columns(
    log_probs_Rk: np.ndarray, uniform_R: np.ndarray, temperature: float, top_p: float, min_p: float = 0.0
) -> np.ndarray:
    """columns_R int64, sampled from softmax(log_probs / temperature) by the random numbers ``uniform_R``, 0 to 1.

    min_p  drops columns that are less probable than min_p times the best column's probability (Nguyen 2025)
    top_p  then keeps the fewest columns, best first, with the share top_p of what is left (Holtzman 2019)
    """
    columns_R = np.zeros(len(log_probs_Rk), np.int64)
    for r, row_k in enumerate(log_probs_Rk):  # one by one, so that a row's bits depend on no other
        best = row_k.max()
        if np.isneginf(best):
            continue
        with np.errstate(over="ignore"):  # the smallest temperatures leave only the best
            weights_k = np.exp((row_k.astype(np.float64) - best) / temperature)
        weights_k[weights_k < min_p] = 0  # the best column's weight is 1
        if top_p < 1:
            order_k = np.argsort(-weights_k, kind="stable")
            better_sums_k = np.cumsum(weights_k[order_k]) - weights_k[order_k]  # of all columns before
            weights_k[order_k[better_sums_k >= top_p * weights_k.sum()]] = 0
        sums_k = np.cumsum(weights_k)
        # The product may round up to the whole sum. Then the last column with a weight is the sample.
        last = np.searchsorted(sums_k, sums_k[-1], side="left")
        columns_R[r] = min(np.searchsorted(sums_k, uniform_R[r] * sums_k[-1], side="right"), last)
    return columns_R


def shortlisted_ids(shortlist: Shortlist, source: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """The ids, int32 and rising, that a sentence may choose: those for all sentences, for its source, and the end ids.

    Each sentence has its own list, so that a translation does not depend on its batch; Marian makes one list for all
    sentences of a batch. Marian also fills a list up to a multiple of eight ids, which only its products need.
    """
    distinct = np.array(list(set(source.tolist())), np.int64)
    starts, ends = shortlist.starts_V1[distinct].tolist(), shortlist.starts_V1[distinct + 1].tolist()
    lists = [shortlist.targets[start:end] for start, end in zip(starts, ends)]
    if shortlist.copied:
        lists.append(source)
    # To sort these one or two thousand ids and drop repeats takes 20 us; to mark them in a table of the vocabulary, 35.
    ids = np.concatenate([shortlist.always, np.array(end_ids, np.int32), *lists], dtype=np.int32)
    ids.sort()
    is_new = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=is_new[1:])
    return ids[is_new]


def are_ends(ids: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """Whether each id ends a hypothesis: bool, in the shape of ``ids``."""
    return ids == end_ids[0] if len(end_ids) == 1 else np.isin(ids, end_ids)  # isin takes 10 us, for one end too


def best_candidates(
    scores_BR: np.ndarray, log_probs_BRk: np.ndarray, ids_BRk: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ``count`` best continuations of each sentence, best first: (scores_BC, ids_BC, beams_BC).

    Ties go to the lower beam, then to the earlier of the beam's own candidates. If there are fewer than ``count`` (with
    a vocabulary smaller than twice the beam), candidates of score -inf fill the row.
    """
    B, R, k = log_probs_BRk.shape
    if R == k == count == 1:
        return scores_BR + log_probs_BRk[:, 0], ids_BRk[:, 0], np.zeros((B, 1), np.int64)
    total_BA = (scores_BR[:, :, None] + log_probs_BRk).reshape(B, R * k)
    order_BC = np.argsort(-total_BA, axis=1, kind="stable")[:, :count]
    rows_B1 = np.arange(B)[:, None]  # take_along_axis, which gives the same, takes 15 us
    scores_BC, ids_BC = total_BA[rows_B1, order_BC], ids_BRk.reshape(B, R * k)[rows_B1, order_BC]
    beams_BC = order_BC // k
    missing = count - R * k
    if missing > 0:
        scores_BC = np.pad(scores_BC, ((0, 0), (0, missing)), constant_values=-np.inf)
        ids_BC = np.pad(ids_BC, ((0, 0), (0, missing)))
        beams_BC = np.pad(beams_BC, ((0, 0), (0, missing)))
    return scores_BC, ids_BC, beams_BC


def apply_prefix(
    scores_BC: np.ndarray, ids_BC: np.ndarray, end_ids: Sequence[int], forced_B: np.ndarray, prefixed_B: np.ndarray
) -> None:
    """Impose the target prefix, in place, on the candidates of the first step that searches.

    forced_B    the prefix's token at the length limit, if the limit falls inside the prefix; else -1
    prefixed_B  whether a sentence has a prefix. Then only the best candidate may end; other candidates that end are
                made hopeless, so that short translations do not win by unnormalized scores (CTranslate2, issue 277)
    """
    is_forced_B = forced_B >= 0
    ids_BC[is_forced_B] = forced_B[is_forced_B, None]
    scores_BC[is_forced_B] = HOPELESS
    scores_BC[is_forced_B, 0] = 0
    is_early_end_BC = are_ends(ids_BC, end_ids) & (prefixed_B & ~is_forced_B)[:, None]
    is_early_end_BC[:, 0] = False
    scores_BC[is_early_end_BC], ids_BC[is_early_end_BC] = HOPELESS, 0


def continuing_candidates(ended_BC: np.ndarray, R: int) -> np.ndarray:
    """continuing_BR: the candidate that continues each of R beams.

    Beam r continues with candidate r. If candidate r has ended, the next unused candidate behind the first R that has
    not ended replaces it.
    """
    ended_BR, is_spare_BA = ended_BC[:, :R], ~ended_BC[:, R:]
    continuing_BR = np.broadcast_to(np.arange(R), ended_BR.shape).copy()
    spare_BA = R + np.argsort(~is_spare_BA, axis=1, kind="stable")
    rank_BR = np.cumsum(ended_BR, axis=1) - 1
    is_replaced_BR = ended_BR & (rank_BR < is_spare_BA.sum(axis=1)[:, None])
    continuing_BR[is_replaced_BR] = np.take_along_axis(spare_BA, np.maximum(rank_BR, 0), axis=1)[is_replaced_BR]
    return continuing_BR


def favour_tokens(
    log_probs_Rk: np.ndarray, ids_Rk: np.ndarray, bias_R: np.ndarray, bias_log_probs_R: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of (1 - beta) p + beta [is favoured], from the k best of p; in the log domain, best first.

    bias_R, bias_log_probs_R  each row's favoured token and its log p
    Source: Dabre and Fujita 2019, section 4.2.
    """
    k = ids_Rk.shape[1]
    with np.errstate(divide="ignore"):
        bias_log_probs_R1 = np.log((1 - beta) * np.exp(bias_log_probs_R) + beta)[:, None]
    unbiased_Rk = np.where(ids_Rk == bias_R[:, None], -np.inf, log_probs_Rk + np.log1p(-beta))
    total_RA = np.concatenate([bias_log_probs_R1, unbiased_Rk], axis=1).astype(log_probs_Rk.dtype)
    all_ids_RA = np.concatenate([bias_R[:, None], ids_Rk], axis=1)
    return _take_best(total_RA, all_ids_RA, k)


def coverage(attention_TS: np.ndarray) -> float:
    """The sum, over source tokens that received attention, of log(min(attention received, 1)) (Wu 2016)."""
    received_S = attention_TS.sum(axis=0)
    return float(np.log(np.minimum(received_S[received_S > 0], 1)).sum())


class CandidateRows:
    """Inputs of the choice for each of R rows; an input that no option needs keeps its default.

    steps_R       how many tokens the target has
    past_RT       tokens that penalties look back on: int32, -1 after the first ``lengths_R``
    produced_R    how many of a row's last tokens in past_RT are the target's; earlier tokens are of the start
    bias_R        int32: the next token of a favoured prefix, or -1; None: no row has a favoured prefix
    keys_R        uint64 keys of the random samples
    subsets_R     the outputs that each row chooses from, where sentences have shortlists of their own
    output        replaces the model's OutputProjection, where sentences have constraints
    """

    def __init__(self, steps_R: np.ndarray):
        R = len(steps_R)
        self.steps_R = steps_R
        self.past_RT, self.lengths_R = np.empty((R, 0), np.int32), np.zeros(R, np.int64)
        self.produced_R = self.lengths_R
        self.bias_R: np.ndarray | None = None
        self.keys_R = np.zeros(R, np.uint64)
        self.subsets_R: Sequence[OutputSubset] | None = None
        self.output: Any = None


class TokenChoice:
    """Chooses each row's next tokens under the options."""

    def __init__(self, model: Decoder, options: DecodingOptions, end_id: int, unk_id: int):
        self.model, self.options = model, options
        self.end_ids = tuple(options.end_token) or (end_id,)
        self.sequences = [sequence for sequence in options.suppress_sequences if len(sequence) > 1]
        suppressed_ids = {sequence[0] for sequence in options.suppress_sequences if len(sequence) == 1}
        self.suppressed_1J = np.array([sorted(suppressed_ids | ({unk_id} if options.disable_unk else set()))], np.int32)
        self.shortlist = model.output.shortlist if options.shortlist else None
        biases = {token: bias for token, bias in options.logit_bias if token < model.sizes.vocabulary}
        biased_J, biases_J = np.array([*biases], np.int32), np.array([*biases.values()], np.float32)
        self._common_edits = Edits(penalty=options.repetition_penalty, biased_J=biased_J, biases_J=biases_J)
        self.counts_tokens = bool(options.presence_penalty or options.frequency_penalty)
        self.penalizes = self.counts_tokens or options.repetition_penalty != 1
        # A beam search by transformers' rules edits log-probabilities; all other searches edit logits.
        self.edits_log_probs = options.rules is not None and not options.is_greedy
        self.renormalizes = self.edits_log_probs and options.rules is not None and options.rules.renormalized
        self.needs_past = self.penalizes or options.no_repeat_ngram_size > 0 or bool(self.sequences)

    def select_outputs(self, job: Job) -> OutputSubset | None:
        """The subset of outputs that a sentence chooses from; None: all tokens."""
        if job.find_allowed_ids is not None:
            # As in CTranslate2, tokens of the start and the prefix may come again. End tokens may always be chosen.
            job_ids = [*job.start, *job.prefix, *job.bias_prefix, *self.end_ids]
            ids = np.union1d(job.find_allowed_ids(), job_ids).astype(np.int32)
        elif self.shortlist is not None:
            ids = shortlisted_ids(self.shortlist, job.source, self.end_ids)
        else:
            return None
        return self.model.output.select_outputs(ids)

    def best(
        self, hidden_RD: np.ndarray, rows: CandidateRows, count: int, needs_log_probs: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk): at most ``count`` continuations of each row: the best, or a sample and then the best.

        needs_log_probs  False: log_probs_Rk may hold logits
        """
        edits, output, subsets_R = self.edits(rows), rows.output or self.model.output, rows.subsets_R
        vocabulary = self.model.sizes.vocabulary
        if self.options.is_sampled:
            return self._sample(hidden_RD, rows, edits, output, min(count - 1, vocabulary))
        count = min(count, vocabulary)
        rises = edits.penalty < 1 or edits.amounts_RJ is not None and bool((edits.amounts_RJ < 0).any())
        is_penalized = edits.penalized_RJ is not None
        if self.edits_log_probs and (edits.biased_J.size or is_penalized and (self.renormalizes or rises)):
            log_probs_RV = output.all_log_probs(hidden_RD, NO_EDITS, subsets_R)
            self.model.output.check(not np.isnan(log_probs_RV).any())
            log_probs_Rk, ids_Rk = edit_vocabulary(log_probs_RV, edits, count, self.renormalizes)
        else:
            # Edits of log-probabilities are made afterwards, on more candidates than are needed.
            is_edited_later = self.edits_log_probs and not self.renormalizes
            late_ids = [ids_RJ for ids_RJ in edits[:2] if ids_RJ is not None] if is_edited_later else []
            k = min(count + sum(ids_RJ.shape[1] for ids_RJ in late_ids), vocabulary)
            normalized = needs_log_probs or edits.suppressed_RJ is not None
            log_probs_Rk, ids_Rk = output.top_k(hidden_RD, k, NO_EDITS if late_ids else edits, subsets_R, normalized)
            if late_ids:
                log_probs_Rk, ids_Rk = edit_top_k(log_probs_Rk, ids_Rk, edits, count)
        if rows.bias_R is not None and (rows.bias_R >= 0).any():
            rows_W = np.flatnonzero(rows.bias_R >= 0)  # W rows have a favoured token
            bias_W = rows.bias_R[rows_W].astype(np.int32)
            bias_log_probs_W = self.model.output.log_probs(
                self.model.ops.take_rows(hidden_RD, rows_W),
                bias_W,
                edits.of(rows_W),
                None if subsets_R is None else [subsets_R[r] for r in rows_W.tolist()],
            )
            log_probs_Rk[rows_W], ids_Rk[rows_W] = favour_tokens(
                log_probs_Rk[rows_W], ids_Rk[rows_W], bias_W, bias_log_probs_W, self.options.prefix_bias_beta
            )
        # A row with fewer than ``count`` continuations ends in ids -1, at -inf; token 0 replaces them.
        return log_probs_Rk, np.maximum(ids_Rk, 0)

    def edits(self, rows: CandidateRows) -> Edits:
        """The edits of the logits, or of the log-probabilities, under the options."""
        options, first_ids = self.options, self.options.begin_suppress_tokens
        suppressed = [early_ids(rows.steps_R, 1, first_ids)] if first_ids else []
        if rows.steps_R.min() < options.min_decoding_length:
            suppressed.append(early_ids(rows.steps_R, options.min_decoding_length, self.end_ids))
        if self.suppressed_1J.size:
            suppressed.append(np.repeat(self.suppressed_1J, len(rows.steps_R), axis=0))
        if options.no_repeat_ngram_size:
            suppressed.append(repeated_ngrams(rows.past_RT, rows.lengths_R, options.no_repeat_ngram_size))
        if self.sequences:
            suppressed.append(completed_sequences(rows.past_RT, rows.lengths_R, self.sequences))
        suppressed = [ids_RJ for ids_RJ in suppressed if ids_RJ.shape[1]]
        suppressed_RJ = np.concatenate(suppressed, axis=1) if suppressed else None
        edits = self._common_edits._replace(suppressed_RJ=suppressed_RJ)
        if not self.penalizes:
            return edits
        if not self.counts_tokens:
            return edits._replace(penalized_RJ=without_repeats(rows.past_RT))
        produced_R2, past_RT = np.stack([rows.lengths_R - rows.produced_R, rows.lengths_R], axis=1), rows.past_RT
        if options.repetition_penalty == 1:  # the other penalties leave out the start, which may be long
            past_RT = np.where(np.arange(past_RT.shape[1]) < produced_R2[:, :1], np.int32(PADDING), past_RT)
        penalized_RJ = without_repeats(past_RT)
        penalties = options.presence_penalty, options.frequency_penalty
        amounts_RJ = produced_amounts(past_RT, produced_R2, penalized_RJ, *penalties)
        return edits._replace(penalized_RJ=penalized_RJ, amounts_RJ=amounts_RJ)

    def _sample(
        self, hidden_RD: np.ndarray, rows: CandidateRows, edits: Edits, output: Any, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk) of a sampled token for each row, and behind it of the ``count`` best."""
        options, topk = self.options, self.options.sampling_topk
        if topk:
            log_probs_Rk, ids_Rk = output.top_k(hidden_RD, max(topk, count), edits, rows.subsets_R)
        else:
            log_probs_Rk = output.all_log_probs(hidden_RD, edits, rows.subsets_R)
            ids_Rk = np.broadcast_to(np.arange(log_probs_Rk.shape[1], dtype=np.int32), log_probs_Rk.shape)
        uniform_R, bounds = uniform(rows.keys_R, rows.steps_R), (options.sampling_topp, options.sampling_minp)
        drawn_Rk, choices = log_probs_Rk[:, : topk or None], (log_probs_Rk, ids_Rk)
        columns_R1 = draw_columns(drawn_Rk, uniform_R, options.sampling_temperature, *bounds)[:, None]
        samples = (np.take_along_axis(part_Rk, columns_R1, axis=1) for part_Rk in choices)
        best = choices if topk or not count else best_of_vocabulary(log_probs_Rk, count)
        log_probs_Rk, ids_Rk = (np.hstack([part_R1, part_Rk[:, :count]]) for part_R1, part_Rk in zip(samples, best))
        return log_probs_Rk, np.maximum(ids_Rk, 0)


def _take_best(log_probs_Rk: np.ndarray, ids_Rk: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    order_Rk = np.argsort(-log_probs_Rk, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(log_probs_Rk, order_Rk, axis=1), np.take_along_axis(ids_Rk, order_Rk, axis=1)


def edit_top_k(log_probs_Rk: np.ndarray, ids_Rk: np.ndarray, edits: Edits, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` best of k candidates after edits of their log-probabilities, best first; -inf where suppressed.

    None of the vocabulary's best is missing, as k is at least the sum of ``count`` and the edits' widths, and the
    penalty at least 1.
    """
    log_probs_Rk = log_probs_Rk.copy()
    if edits.penalized_RJ is not None:
        is_penalized_Rk, amounts_Rk = _is_among(ids_Rk, edits.penalized_RJ), np.float32(0)
        if edits.amounts_RJ is not None:
            is_id_RkJ = ids_Rk[:, :, None] == edits.penalized_RJ[:, None]
            amounts_Rk = (is_id_RkJ * edits.amounts_RJ[:, None]).sum(axis=2)
        penalized_Rk = log_probs_Rk * np.float32(edits.penalty) - amounts_Rk
        log_probs_Rk = np.where(is_penalized_Rk, penalized_Rk, log_probs_Rk)
    if edits.suppressed_RJ is not None:
        log_probs_Rk[_is_among(ids_Rk, edits.suppressed_RJ)] = -np.inf
    return _take_best(log_probs_Rk, ids_Rk, count)


def edit_vocabulary(
    log_probs_RV: np.ndarray, edits: Edits, count: int, renormalized: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``edit_top_k`` of the whole vocabulary, for any penalty; ``renormalized``: probabilities sum to 1 again."""
    log_probs_RV = log_probs_RV.astype(np.float32)
    log_probs_RV[:, edits.biased_J] += edits.biases_J
    if edits.penalized_RJ is not None:
        entries = np.nonzero(edits.penalized_RJ >= 0)
        cells = entries[0], edits.penalized_RJ[entries]
        amounts = np.float32(0) if edits.amounts_RJ is None else edits.amounts_RJ[entries]
        log_probs_RV[cells] = log_probs_RV[cells] * np.float32(edits.penalty) - amounts
    if edits.suppressed_RJ is not None:
        entries = np.nonzero(edits.suppressed_RJ >= 0)
        log_probs_RV[entries[0], edits.suppressed_RJ[entries]] = -np.inf
    if renormalized:
        best_R1 = log_probs_RV.max(axis=1, keepdims=True)
        log_probs_RV -= best_R1 + np.log(np.exp(log_probs_RV - best_R1).sum(axis=1, keepdims=True))
    return best_of_vocabulary(log_probs_RV, count)


def top_tokens(log_probs_Rk: np.ndarray, ids_Rk: np.ndarray) -> list[dict[int, float]]:
    """Each row's tokens, id -> log-probability, without those that cannot come."""
    return [{token: p for p, token in zip(*row) if p > -np.inf} for row in zip(log_probs_Rk.tolist(), ids_Rk.tolist())]


def best_of_vocabulary(log_probs_RV: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(log_probs_Rk, ids_Rk) of each row's k most probable ids, best first, then -inf and -1."""
    log_probs_Rk = np.full((len(log_probs_RV), k), -np.inf, np.float32)
    ids_Rk = np.full((len(log_probs_RV), k), -1, np.int32)
    for row_V, log_probs_k, ids_k in zip(log_probs_RV, log_probs_Rk, ids_Rk):
        ids = np.flatnonzero(row_V > -np.inf)
        if len(ids) > k:
            ids = ids[row_V[ids] >= np.partition(row_V[ids], len(ids) - k)[len(ids) - k]]
        ids = ids[np.argsort(-row_V[ids], kind="stable")[:k]]
        log_probs_k[: len(ids)], ids_k[: len(ids)] = row_V[ids], ids
    return log_probs_Rk, ids_Rk


def _is_among(ids_Rk: np.ndarray, list_RJ: np.ndarray) -> np.ndarray:
    return np.asarray((ids_Rk[:, :, None] == list_RJ[:, None]).any(axis=2))
