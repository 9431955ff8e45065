"""The steps of greedy and beam search as functions of arrays, which ``DecodingBatch`` calls.

B sentences, R beams each, C = 2 R candidates (one, where R is 1: greedy), k candidates a beam. At most R of twice as
many candidates end, one a beam, so there are always R to continue.
"""

from collections.abc import Sequence

import numpy as np

HOPELESS = -1e10  # CTranslate2's score of a beam that is only a placeholder


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


def keep_beams(ids_BC: np.ndarray, ended_BR: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """kept_BR: the candidate that continues each beam.

    Beam r continues with candidate r, or, if that has ended, with the next candidate after the first R that does not
    end.
    """
    R = ended_BR.shape[1]
    kept_BR = np.broadcast_to(np.arange(R), ended_BR.shape).copy()
    if ids_BC.shape[1] == R:
        return kept_BR
    alive = ~are_ends(ids_BC[:, R:], end_ids)
    spare_BA = R + np.argsort(~alive, axis=1, kind="stable")
    rank_BR = np.cumsum(ended_BR, axis=1) - 1
    replaced = ended_BR & (rank_BR < alive.sum(axis=1)[:, None])
    kept_BR[replaced] = np.take_along_axis(spare_BA, np.maximum(rank_BR, 0), axis=1)[replaced]
    return kept_BR


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
