"""The candidates for the next token, row by row: the projection's best, edited or sampled as the options say."""

from collections.abc import Sequence

import numpy as np

from fastattn.decoding.constraints import (
    completed_sequences,
    early_ends,
    repeated_ngrams,
    without_repeats,
)
from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.sampling import draw, uniform
from fastattn.decoding.search import biased
from fastattn.decoding.shortlist import allowed_ids
from fastattn.models.decoder import Decoder
from fastattn.ops.protocol import OutputSubset
from fastattn.ops.steps import Edits


class CandidateRows:
    """Inputs of the choice for each of R rows; those that no option needs keep their defaults.

    steps_R       tokens of the target so far
    past_RT       those that penalties look back on: int32, -1 after the first ``lengths_R``
    wished_R      int32: the next token of a favoured prefix, or -1; None: no row has one
    seeds_R, keys_R, hypotheses_R   uint64 keys of the random samples
    subsets_R     the outputs that each row chooses from, where sentences have shortlists of their own
    """

    def __init__(self, steps_R: np.ndarray):
        R = len(steps_R)
        self.steps_R = steps_R
        self.past_RT, self.lengths_R = np.empty((R, 0), np.int32), np.zeros(R, np.int64)
        self.wished_R: np.ndarray | None = None
        self.seeds_R = self.keys_R = self.hypotheses_R = np.zeros(R, np.uint64)
        self.subsets_R: Sequence[OutputSubset] | None = None


class Candidates:
    """Chooses each row's next tokens under the options."""

    def __init__(self, model: Decoder, options: DecodingOptions, end_id: int, unk_id: int):
        self.model, self.options = model, options
        self.end_ids = tuple(options.end_token) or (end_id,)
        self.sequences = [sequence for sequence in options.suppress_sequences if len(sequence) > 1]
        never = {sequence[0] for sequence in options.suppress_sequences if len(sequence) == 1}
        self.never_1J = np.array([sorted(never | ({unk_id} if options.disable_unk else set()))], np.int32)
        self.shortlist = model.output.shortlist if options.shortlist else None
        self.needs_past = options.repetition_penalty != 1 or options.no_repeat_ngram_size > 0 or bool(self.sequences)

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
        log_probs_Rk, ids_Rk = self.model.output.top_k(
            hidden_RD, count, edits, subsets_R, normalized=scored or edits.suppressed_RJ is not None
        )
        if rows.wished_R is not None:
            self._wish(hidden_RD, rows.wished_R, edits, subsets_R, log_probs_Rk, ids_Rk)
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
        suppressed = []
        if rows.steps_R.min() < options.min_decoding_length:
            suppressed.append(early_ends(rows.steps_R, options.min_decoding_length, self.end_ids))
        if self.never_1J.size:
            suppressed.append(np.repeat(self.never_1J, len(rows.steps_R), axis=0))
        if options.no_repeat_ngram_size:
            suppressed.append(repeated_ngrams(rows.past_RT, rows.lengths_R, options.no_repeat_ngram_size))
        if self.sequences:
            suppressed.append(completed_sequences(rows.past_RT, rows.lengths_R, self.sequences))
        suppressed = [ids_RJ for ids_RJ in suppressed if ids_RJ.shape[1]]
        penalized_RJ = without_repeats(rows.past_RT) if options.repetition_penalty != 1 else None
        suppressed_RJ = np.concatenate(suppressed, axis=1) if suppressed else None
        return Edits(suppressed_RJ, penalized_RJ, options.repetition_penalty)

    def _drawn(self, hidden_RD: np.ndarray, rows: CandidateRows, edits: Edits) -> tuple[np.ndarray, np.ndarray]:
        options = self.options
        if options.sampling_topk:
            log_probs_Rk, ids_Rk = self.model.output.top_k(hidden_RD, options.sampling_topk, edits, rows.subsets_R)
        else:
            log_probs_Rk = self.model.output.all_log_probs(hidden_RD, edits, rows.subsets_R)
            ids_Rk = np.broadcast_to(np.arange(log_probs_Rk.shape[1], dtype=np.int32), log_probs_Rk.shape)
        uniform_R = uniform(rows.seeds_R, rows.keys_R, rows.hypotheses_R, rows.steps_R)
        columns_R1 = draw(log_probs_Rk, uniform_R, options.sampling_temperature, options.sampling_topp)[:, None]
        drawn = (np.take_along_axis(values_Rk, columns_R1, axis=1) for values_Rk in (log_probs_Rk, ids_Rk))
        log_probs_R1, ids_R1 = drawn
        return log_probs_R1, np.maximum(ids_R1, 0)
