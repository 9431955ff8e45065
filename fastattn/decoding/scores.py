"""When hypotheses can still be improved on, and edits of log-probabilities, as transformers has them."""

import numpy as np

from fastattn.arguments.steps import Edits
from fastattn.decoding.jobs import Beams, normalized
from fastattn.decoding.options import DecodingOptions


def may_improve(
    options: DecodingOptions, beams: Beams, asked_B: np.ndarray, scores_BR: np.ndarray, forced: bool
) -> np.ndarray:
    """Which of the sentences ``asked_B``, with as many ended hypotheses as beams, transformers' rules have go on.

    scores_BR  sums of log-probabilities of what would go on, with a token more than in ``beams``
    forced     whether an end is forced behind the last token
    """
    improving_B, rules, penalty = np.zeros(len(asked_B), bool), options.rules, options.length_penalty
    for b in np.flatnonzero(asked_B).tolist() if rules is not None and rules.early_stopping != "true" else ():
        length, limit = int(beams.steps_B[b]) + 1, int(beams.limits_B[b]) + forced
        length = limit if rules is not None and rules.early_stopping == "never" and penalty > 0 else length
        ended = sorted((hypothesis.score for hypothesis in beams.sentences_B[b].hypotheses), reverse=True)
        improving_B[b] = normalized(float(scores_BR[b].max()), length, penalty) > ended[: options.wanted][-1]
    return improving_B


def edited(log_probs_Rk: np.ndarray, ids_Rk: np.ndarray, edits: Edits, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` best of k candidates after edits of their log-probabilities, best first; -inf where ruled out.

    k  at least ``count`` and the edits' widths together, and a penalty at least 1: so none is missed
    """
    log_probs_Rk = log_probs_Rk.copy()
    if edits.penalized_RJ is not None:
        at_Rk, amounts_Rk = _listed(ids_Rk, edits.penalized_RJ), np.float32(0)
        if edits.amounts_RJ is not None:
            is_id_RkJ = ids_Rk[:, :, None] == edits.penalized_RJ[:, None]
            amounts_Rk = (is_id_RkJ * edits.amounts_RJ[:, None]).sum(axis=2)
        log_probs_Rk = np.where(at_Rk, log_probs_Rk * np.float32(edits.penalty) - amounts_Rk, log_probs_Rk)
    if edits.suppressed_RJ is not None:
        log_probs_Rk[_listed(ids_Rk, edits.suppressed_RJ)] = -np.inf
    order_Rk = np.argsort(-log_probs_Rk, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(log_probs_Rk, order_Rk, axis=1), np.take_along_axis(ids_Rk, order_Rk, axis=1)


def edited_whole(
    log_probs_RV: np.ndarray, edits: Edits, count: int, renormalized: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``edited`` of the whole vocabulary, whatever the penalty; ``renormalized``: so that all sum to 1 again."""
    log_probs_RV = log_probs_RV.astype(np.float32)
    if edits.penalized_RJ is not None:
        at = np.nonzero(edits.penalized_RJ >= 0)
        where = at[0], edits.penalized_RJ[at]
        amounts = np.float32(0) if edits.amounts_RJ is None else edits.amounts_RJ[at]
        log_probs_RV[where] = log_probs_RV[where] * np.float32(edits.penalty) - amounts
    if edits.suppressed_RJ is not None:
        at = np.nonzero(edits.suppressed_RJ >= 0)
        log_probs_RV[at[0], edits.suppressed_RJ[at]] = -np.inf
    if renormalized:
        best_R1 = log_probs_RV.max(axis=1, keepdims=True)
        log_probs_RV -= best_R1 + np.log(np.exp(log_probs_RV - best_R1).sum(axis=1, keepdims=True))
    order_Rk = np.argsort(-log_probs_RV, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(log_probs_RV, order_Rk, axis=1), order_Rk.astype(np.int32)


def _listed(ids_Rk: np.ndarray, listed_RJ: np.ndarray) -> np.ndarray:
    return np.asarray((ids_Rk[:, :, None] == listed_RJ[:, None]).any(axis=2))
