"""The candidates for the next token: the projection's best, edited or sampled as the options say.

B sentences, R beams each, C = 2 R candidates (one, where R is 1: greedy), k candidates a beam. At most R of twice as
many candidates end, one a beam, so there are always R to continue.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastattn.arguments.steps import Edits
from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.scores import edited, edited_whole
from fastattn.layers.draws import uniform
from fastattn.models.decoder import Decoder
from fastattn.ops.protocol import OutputSubset
from fastattn.spec.checkpoint import Shortlist

PADDING = -1
HOPELESS = -1e10  # CTranslate2's score of a beam that is only a placeholder

# Tokens that the tokens so far forbid or penalize. past_RT holds the lengths_R tokens that each of R rows has produced,
# -1 after them. Lists are returned as ids_RJ: int32, each id once a row, padded with -1 and no wider than the longest
# row, since the projection reads the padding too.


def without_repeats(ids_RJ: np.ndarray) -> np.ndarray:
    """Each id once a row, highest first, then padding."""
    sorted_RJ = -np.sort(-ids_RJ.astype(np.int32), axis=1)
    sorted_RJ[:, 1:][sorted_RJ[:, 1:] == sorted_RJ[:, :-1]] = PADDING
    sorted_RJ = -np.sort(-sorted_RJ, axis=1)
    return np.ascontiguousarray(sorted_RJ[:, : np.max((sorted_RJ >= 0).sum(axis=1), initial=0)])


def last_tokens(past_RT: np.ndarray, lengths_R: np.ndarray, count: int) -> np.ndarray:
    """The last ``count`` tokens of each row; padding if it has fewer."""
    columns_RC = lengths_R[:, None] + np.arange(-count, 0)
    tokens_RC = np.take_along_axis(past_RT, np.maximum(columns_RC, 0), axis=1) if past_RT.shape[1] else columns_RC
    return np.where(columns_RC >= 0, tokens_RC, PADDING)


def repeated_ngrams(past_RT: np.ndarray, lengths_R: np.ndarray, size: int) -> np.ndarray:
    """The ids that would repeat an n-gram of this size in the row (Paulus 2017, section 2.5)."""
    if past_RT.shape[1] < size:
        return np.empty((len(past_RT), 0), np.int32)
    runs_RWC = np.lib.stride_tricks.sliding_window_view(past_RT, size, axis=1)
    begun_R1C = last_tokens(past_RT, lengths_R, size - 1)[:, None]
    again_RW = (runs_RWC[:, :, :-1] == begun_R1C).all(axis=2)
    # A run that reaches into the padding ends with padding, which forbids nothing.
    return without_repeats(np.where(again_RW, runs_RWC[:, :, -1], PADDING))


def completed_sequences(past_RT: np.ndarray, lengths_R: np.ndarray, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """The ids that would complete one of the sequences, which have two tokens or more."""
    ids_RJ = np.full((len(past_RT), len(sequences)), PADDING, np.int32)
    for j, sequence in enumerate(sequences):
        begun_R = (last_tokens(past_RT, lengths_R, len(sequence) - 1) == sequence[:-1]).all(axis=1)
        ids_RJ[begun_R, j] = sequence[-1]
    return without_repeats(ids_RJ)


def early_ends(steps_R: np.ndarray, min_length: int, end_ids: Sequence[int]) -> np.ndarray:
    """The end ids, for rows whose next token is one of the first ``min_length``; a row at step t produces token t."""
    early_R = steps_R < min_length
    if not early_R.any():
        return np.empty((len(steps_R), 0), np.int32)
    return np.where(early_R[:, None], np.array(end_ids, np.int32), np.int32(PADDING))


def sentence_key(source: np.ndarray, start: Sequence[int], number: int = 0) -> int:
    """A 64-bit hash of the ids or rows of a sentence's source, and of its target's start token and prefix.

    ``number`` distinguishes equal sentences.
    """
    words = source.reshape(-1).view(np.int32)  # rows of numbers may be a source too
    content = np.concatenate([[len(source)], words, start]).astype("<i8").tobytes()
    salt = number.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, salt=salt).digest(), "little")


def produced_amounts(
    past_RT: np.ndarray, produced_R2: np.ndarray, ids_RJ: np.ndarray, presence: float, each: float
) -> np.ndarray:
    """amounts_RJ float32: what an id's logit loses for having been produced, and for each time that it was.

    produced_R2  where in a row's past the tokens that were produced begin, and end
    vLLM's presence and frequency penalties.
    """
    amounts_RJ = np.zeros(ids_RJ.shape, np.float32)
    for r, (first, end) in enumerate(produced_R2.tolist()):
        tokens_T = np.sort(past_RT[r, first:end])
        times_J = tokens_T.searchsorted(ids_RJ[r], "right") - tokens_T.searchsorted(ids_RJ[r], "left")
        amounts_RJ[r] = presence * (times_J > 0) + each * times_J
    return amounts_RJ


def draw(
    log_probs_Rk: np.ndarray, uniform_R: np.ndarray, temperature: float, top_p: float, min_p: float = 0.0
) -> np.ndarray:
    """columns_R int64, sampled from softmax(log_probs / temperature).

    min_p  drops columns less probable than this times the best one (Nguyen 2025)
    top_p  keeps the most probable of the others, up to and with the one that makes their sum reach it (Holtzman 2019)
    """
    columns_R = np.zeros(len(log_probs_Rk), np.int64)
    for r, row_k in enumerate(log_probs_Rk):  # one by one, so that a row's bits depend on no other
        best = row_k.max()
        if np.isneginf(best):
            continue
        with np.errstate(over="ignore"):  # the smallest temperatures leave only the best
            weights_k = np.exp((row_k.astype(np.float64) - best) / temperature)
        weights_k[weights_k < min_p] = 0  # the best one's is 1
        if top_p < 1:
            order_k = np.argsort(-weights_k, kind="stable")
            before_k = np.cumsum(weights_k[order_k]) - weights_k[order_k]
            weights_k[order_k[before_k >= top_p * weights_k.sum()]] = 0
        sums_k = np.cumsum(weights_k)
        # The product may round up to the whole sum: then the last column of any weight is taken.
        last = np.searchsorted(sums_k, sums_k[-1], side="left")
        columns_R[r] = min(np.searchsorted(sums_k, uniform_R[r] * sums_k[-1], side="right"), last)
    return columns_R


def allowed_ids(shortlist: Shortlist, source: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """The ids that every sentence may choose, those that its source ids add, and the ends; int32, rising.

    A sentence's own list, where Marian takes one for all sentences of a batch, so a translation does not depend on its
    batch. Nor is it filled up to a multiple of eight ids, which only Marian's products need.
    """
    distinct = np.array(list(set(source.tolist())), np.int64)
    starts, ends = shortlist.starts_V1[distinct].tolist(), shortlist.starts_V1[distinct + 1].tolist()
    lists = [shortlist.targets[start:end] for start, end in zip(starts, ends)]
    copied = [source] if shortlist.copied else []
    # Sorting these thousand or two and dropping repeats takes 20 us; marks in a table of the vocabulary, 35.
    ids = np.concatenate([shortlist.always, np.array(end_ids, np.int32), *copied, *lists], dtype=np.int32)
    ids.sort()
    is_new = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=is_new[1:])
    return ids[is_new]


# The steps of greedy and beam search, which ``DecodingBatch`` calls.


def are_ends(ids: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """Which of the ids end a hypothesis, in an array of their shape."""
    return ids == end_ids[0] if len(end_ids) == 1 else np.isin(ids, end_ids)  # which takes 10 us, for one end too


def best_candidates(
    scores_BR: np.ndarray, log_probs_BRk: np.ndarray, ids_BRk: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ``count`` best continuations of each sentence, best first: (scores_BC, ids_BC, beams_BC).

    Ties go to the lower beam, then to the earlier of the beam's own candidates. Where there are too few
    (a vocabulary smaller than twice the beam), the rest score -inf.
    """
    B, R, k = log_probs_BRk.shape
    if R == k == count == 1:
        return scores_BR + log_probs_BRk[:, 0], ids_BRk[:, 0], np.zeros((B, 1), np.int64)
    total_BA = (scores_BR[:, :, None] + log_probs_BRk).reshape(B, R * k)
    order_BC = np.argsort(-total_BA, axis=1, kind="stable")[:, :count]
    rows_B1 = np.arange(B)[:, None]  # take_along_axis makes the same of it, and takes 15 us
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
    """Impose the target prefix on the first free step's candidates, in place.

    forced_B    the prefix's token where the length limit falls inside the prefix, -1 elsewhere
    prefixed_B  sentences with a prefix: an end in any but the best candidate is made hopeless, so that short
                translations do not win where scores are not normalized (CTranslate2, issue 277)
    """
    forced = forced_B >= 0
    ids_BC[forced] = forced_B[forced, None]
    scores_BC[forced] = HOPELESS
    scores_BC[forced, 0] = 0
    early = are_ends(ids_BC, end_ids) & (prefixed_B & ~forced)[:, None]
    early[:, 0] = False
    scores_BC[early], ids_BC[early] = HOPELESS, 0


def keep_beams(ended_BC: np.ndarray, R: int) -> np.ndarray:
    """kept_BR: the candidate that continues each of R beams.

    Beam r continues with candidate r, or, if that has ended, with the next candidate after the first R that does not
    end.
    """
    ended_BR, alive = ended_BC[:, :R], ~ended_BC[:, R:]
    kept_BR = np.broadcast_to(np.arange(R), ended_BR.shape).copy()
    spare_BA = R + np.argsort(~alive, axis=1, kind="stable")
    rank_BR = np.cumsum(ended_BR, axis=1) - 1
    replaced = ended_BR & (rank_BR < alive.sum(axis=1)[:, None])
    kept_BR[replaced] = np.take_along_axis(spare_BA, np.maximum(rank_BR, 0), axis=1)[replaced]
    return kept_BR


def biased(
    log_probs_Rk: np.ndarray, ids_Rk: np.ndarray, wished_R: np.ndarray, wished_log_probs_R: np.ndarray, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of (1 - beta) p + beta [is wished], from the k best of p; in the log domain, best first.

    wished_R, wished_log_probs_R  the wished token and its log p
    Dabre and Fujita 2019, section 4.2.
    """
    k = ids_Rk.shape[1]
    with np.errstate(divide="ignore"):
        wished_R1 = np.log((1 - beta) * np.exp(wished_log_probs_R) + beta)[:, None]
    others_Rk = np.where(ids_Rk == wished_R[:, None], -np.inf, log_probs_Rk + np.log1p(-beta))
    total_RA = np.concatenate([wished_R1, others_Rk], axis=1).astype(log_probs_Rk.dtype)
    all_ids_RA = np.concatenate([wished_R[:, None], ids_Rk], axis=1)
    order_Rk = np.argsort(-total_RA, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(total_RA, order_Rk, axis=1), np.take_along_axis(all_ids_RA, order_Rk, axis=1)


def coverage(attention_TS: np.ndarray) -> float:
    """The sum over source tokens of log(min(attention received, 1)), those that received none left out (Wu 2016)."""
    received_S = attention_TS.sum(axis=0)
    return float(np.log(np.minimum(received_S[received_S > 0], 1)).sum())


class CandidateRows:
    """Inputs of the choice for each of R rows; those that no option needs keep their defaults.

    steps_R       tokens of the target so far
    past_RT       those that penalties look back on: int32, -1 after the first ``lengths_R``
    produced_R    how many of the last of these the target has produced, and not its start
    wished_R      int32: the next token of a favoured prefix, or -1; None: no row has one
    keys_R        uint64 keys of the random samples
    subsets_R     the outputs that each row chooses from, where sentences have shortlists of their own
    output        in place of the model's, where sentences have constraints
    """

    def __init__(self, steps_R: np.ndarray):
        R = len(steps_R)
        self.steps_R = steps_R
        self.past_RT, self.lengths_R = np.empty((R, 0), np.int32), np.zeros(R, np.int64)
        self.produced_R = self.lengths_R
        self.wished_R: np.ndarray | None = None
        self.keys_R = np.zeros(R, np.uint64)
        self.subsets_R: Sequence[OutputSubset] | None = None
        self.output: Any = None


class Candidates:
    """Chooses each row's next tokens under the options."""

    def __init__(self, model: Decoder, options: DecodingOptions, end_id: int, unk_id: int):
        self.model, self.options = model, options
        self.end_ids = tuple(options.end_token) or (end_id,)
        self.sequences = [sequence for sequence in options.suppress_sequences if len(sequence) > 1]
        never = {sequence[0] for sequence in options.suppress_sequences if len(sequence) == 1}
        self.never_1J = np.array([sorted(never | ({unk_id} if options.disable_unk else set()))], np.int32)
        self.shortlist = model.output.shortlist if options.shortlist else None
        self.counts = bool(options.presence_penalty or options.frequency_penalty)
        self.penalizes = self.counts or options.repetition_penalty != 1
        rules = options.rules
        self.edits_after = rules is not None and not options.greedy
        self.renormalizes = self.edits_after and rules is not None and rules.renormalized
        self.needs_past = self.penalizes or options.no_repeat_ngram_size > 0 or bool(self.sequences)

    def select_outputs(self, job: Job) -> OutputSubset | None:
        """The subset of outputs that a sentence chooses from; None: all tokens."""
        if job.allowed is not None:
            # CTranslate2's rule: the prefix's tokens may come again. End tokens may always be chosen.
            ids = np.union1d(job.allowed(), [*job.start, *job.prefix, *job.wished, *self.end_ids])
            return self.model.output.select_outputs(ids.astype(np.int32))
        if self.shortlist is None:
            return None
        ids = allowed_ids(self.shortlist, job.source, self.end_ids)
        return self.model.output.select_outputs(ids)

    def best(
        self, hidden_RD: np.ndarray, rows: CandidateRows, count: int, scored: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log_probs_Rk, ids_Rk): at most ``count`` continuations of each row, best first, or the sampled one.

        scored  False: perhaps logits instead of log-probabilities
        """
        edits = self.edits(rows)
        if self.options.sampled:
            return self._drawn(hidden_RD, rows, edits)
        count, subsets_R = min(count, self.model.sizes.vocabulary), rows.subsets_R
        penalized = self.edits_after and edits.penalized_RJ is not None
        if penalized and (self.renormalizes or edits.penalty < 1):
            log_probs_RV = (rows.output or self.model.output).all_log_probs(hidden_RD, Edits(), subsets_R)
            return self._wished(rows, hidden_RD, edits, *edited_whole(log_probs_RV, edits, count, self.renormalizes))
        after = self.edits_after and not self.renormalizes
        lists = [ids_RJ for ids_RJ in edits[:2] if ids_RJ is not None] if after else []
        most = min(count + sum(ids_RJ.shape[1] for ids_RJ in lists), self.model.sizes.vocabulary)
        log_probs_Rk, ids_Rk = (rows.output or self.model.output).top_k(
            hidden_RD,
            most,
            Edits() if lists else edits,
            subsets_R,
            normalized=scored or edits.suppressed_RJ is not None,
        )
        if lists:
            log_probs_Rk, ids_Rk = edited(log_probs_Rk, ids_Rk, edits, count)
        return self._wished(rows, hidden_RD, edits, log_probs_Rk, ids_Rk)

    def _wished(
        self, rows: CandidateRows, hidden_RD: np.ndarray, edits: Edits, log_probs_Rk: np.ndarray, ids_Rk: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The candidates, the next token of each row's favoured prefix among them."""
        if rows.wished_R is not None:
            self._wish(hidden_RD, rows.wished_R, edits, rows.subsets_R, log_probs_Rk, ids_Rk)
        # If fewer are left than asked for, the others have id -1: token 0 stands for them, at -inf.
        return log_probs_Rk, np.maximum(ids_Rk, 0)

    def _wish(
        self,
        hidden_RD: np.ndarray,
        wished_R: np.ndarray,
        edits: Edits,
        subsets_R: Sequence[OutputSubset] | None,
        log_probs_Rk: np.ndarray,
        ids_Rk: np.ndarray,
    ) -> None:
        """Favour the next token of each row's prefix among its candidates, in place."""
        rows_W = np.flatnonzero(wished_R >= 0)
        if not len(rows_W):
            return
        wished_W = wished_R[rows_W].astype(np.int32)
        wished_log_probs_W = self.model.output.log_probs(
            self.model.ops.take_rows(hidden_RD, rows_W),
            wished_W,
            edits.of(rows_W),
            None if subsets_R is None else [subsets_R[r] for r in rows_W.tolist()],
        )
        beta = self.options.prefix_bias_beta
        log_probs_Rk[rows_W], ids_Rk[rows_W] = biased(
            log_probs_Rk[rows_W], ids_Rk[rows_W], wished_W, wished_log_probs_W, beta
        )

    def edits(self, rows: CandidateRows) -> Edits:
        """The edits of the logits that the options ask for."""
        options = self.options
        begin = options.begin_suppress_tokens
        suppressed = [early_ends(rows.steps_R, 1, begin)] if begin else []
        if rows.steps_R.min() < options.min_decoding_length:
            suppressed.append(early_ends(rows.steps_R, options.min_decoding_length, self.end_ids))
        if self.never_1J.size:
            suppressed.append(np.repeat(self.never_1J, len(rows.steps_R), axis=0))
        if options.no_repeat_ngram_size:
            suppressed.append(repeated_ngrams(rows.past_RT, rows.lengths_R, options.no_repeat_ngram_size))
        if self.sequences:
            suppressed.append(completed_sequences(rows.past_RT, rows.lengths_R, self.sequences))
        suppressed = [ids_RJ for ids_RJ in suppressed if ids_RJ.shape[1]]
        suppressed_RJ = np.concatenate(suppressed, axis=1) if suppressed else None
        if not self.penalizes:
            return Edits(suppressed_RJ)
        if not self.counts:
            return Edits(suppressed_RJ, without_repeats(rows.past_RT), options.repetition_penalty)
        produced_R2, past_RT = np.stack([rows.lengths_R - rows.produced_R, rows.lengths_R], axis=1), rows.past_RT
        if options.repetition_penalty == 1:  # a long start concerns nothing
            past_RT = np.where(np.arange(past_RT.shape[1]) < produced_R2[:, :1], np.int32(PADDING), past_RT)
        penalized_RJ = without_repeats(past_RT)
        amounts_RJ = produced_amounts(
            past_RT, produced_R2, penalized_RJ, options.presence_penalty, options.frequency_penalty
        )
        return Edits(suppressed_RJ, penalized_RJ, options.repetition_penalty, amounts_RJ)

    def _drawn(self, hidden_RD: np.ndarray, rows: CandidateRows, edits: Edits) -> tuple[np.ndarray, np.ndarray]:
        options, output = self.options, rows.output or self.model.output
        if options.sampling_topk:
            log_probs_Rk, ids_Rk = output.top_k(hidden_RD, options.sampling_topk, edits, rows.subsets_R)
        else:
            log_probs_Rk = output.all_log_probs(hidden_RD, edits, rows.subsets_R)
            ids_Rk = np.broadcast_to(np.arange(log_probs_Rk.shape[1], dtype=np.int32), log_probs_Rk.shape)
        uniform_R = uniform(rows.keys_R, rows.steps_R)
        kept = options.sampling_topp, options.sampling_minp
        columns_R1 = draw(log_probs_Rk, uniform_R, options.sampling_temperature, *kept)[:, None]
        log_probs_R1, ids_R1 = (np.take_along_axis(of_Rk, columns_R1, axis=1) for of_Rk in (log_probs_Rk, ids_Rk))
        return log_probs_R1, np.maximum(ids_R1, 0)
