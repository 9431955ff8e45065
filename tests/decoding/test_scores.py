"""Edits of log-probabilities as transformers makes them, and when its search of beams ends."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn.decoding import candidates
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.scores import edited, edited_whole, may_improve
from fastattn.ops.steps import Edits
from fastattn.spec.text_spec import SearchRules


def test_edits_of_the_best_are_those_of_all() -> None:
    rng = np.random.default_rng(4)
    log_probs_RV = np.log(rng.dirichlet(np.ones(40), 3)).astype(np.float32)
    suppressed_RJ = np.array([[7, 3, -1], [0, -1, -1], [39, 38, 37]], np.int32)
    penalized_RJ = np.array([[9, 3], [12, 5], [1, -1]], np.int32)
    expected_RV = log_probs_RV.copy()
    for r in range(3):
        expected_RV[r, penalized_RJ[r][penalized_RJ[r] >= 0]] *= np.float32(1.5)
        expected_RV[r, suppressed_RJ[r][suppressed_RJ[r] >= 0]] = -np.inf
    best_Rk = np.argsort(-log_probs_RV, axis=1)[:, : 6 + 3 + 2].astype(np.int32)
    values_Rk = np.take_along_axis(log_probs_RV, best_Rk.astype(np.int64), axis=1)
    found_Rk, ids_Rk = edited(values_Rk, best_Rk, Edits(suppressed_RJ, penalized_RJ, 1.5), 6)
    np.testing.assert_array_equal(ids_Rk, np.argsort(-expected_RV, axis=1)[:, :6])
    np.testing.assert_array_equal(found_Rk, -np.sort(-expected_RV, axis=1)[:, :6])


@pytest.mark.parametrize("renormalized", [False, True])
@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_edits_of_the_whole_vocabulary(penalty: float, renormalized: bool) -> None:
    """Log-probabilities are penalized, then some ruled out, then all sum to 1 again where that is asked for."""
    rng = np.random.default_rng(8)
    logits_RV = rng.standard_normal((3, 40)) * 3
    log_probs_RV = logits_RV - np.log(np.exp(logits_RV).sum(axis=1, keepdims=True))
    penalized_RJ = np.array([[3, 9, -1], [0, -1, -1], [7, 8, 39]], np.int32)
    suppressed_RJ = np.array([[9, 4], [-1, -1], [39, -1]], np.int32)
    amounts_RJ = rng.random((3, 3)).astype(np.float32)
    expected_RV = log_probs_RV.copy()
    for r in range(3):
        for j, number in enumerate(penalized_RJ[r]):
            if number >= 0:
                expected_RV[r, number] = expected_RV[r, number] * penalty - amounts_RJ[r, j]
        expected_RV[r, [number for number in suppressed_RJ[r] if number >= 0]] = -np.inf
    if renormalized:
        expected_RV -= np.log(np.exp(expected_RV).sum(axis=1, keepdims=True))
    edits = Edits(suppressed_RJ, penalized_RJ, penalty, amounts_RJ)
    found_Rk, ids_Rk = edited_whole(log_probs_RV.astype(np.float32), edits, 5, renormalized)
    np.testing.assert_array_equal(ids_Rk, np.argsort(-expected_RV, axis=1)[:, :5])
    np.testing.assert_allclose(found_Rk, -np.sort(-expected_RV, axis=1)[:, :5], atol=1e-5)


@pytest.mark.parametrize(
    "penalty, renormalized, whole", [(0.8, False, 1), (1.3, True, 1), (1.3, False, 0), (1, True, 0)]
)
def test_which_searches_edit_the_whole_vocabulary(monkeypatch, penalty: float, renormalized: bool, whole: int) -> None:
    calls = []

    def spy(*given: Any) -> Any:
        calls.append(given[-1])
        return edited_whole(*given)

    monkeypatch.setattr(candidates, "edited_whole", spy)
    output = SimpleNamespace(all_log_probs=lambda hidden, edits, subsets: np.log(np.full((2, 9), 1 / 9, np.float32)))
    output.top_k = lambda *given, **named: (np.zeros((2, 4), np.float32), np.zeros((2, 4), np.int32))
    output.shortlist = None
    model: Any = SimpleNamespace(output=output, sizes=SimpleNamespace(vocabulary=9))
    options = DecodingOptions(beam_size=2, repetition_penalty=penalty, rules=SearchRules(renormalized=renormalized))
    rows = candidates.CandidateRows(np.array([1, 1]))
    rows.past_RT, rows.lengths_R = np.array([[3], [4]], np.int32), np.array([1, 1])
    candidates.Candidates(model, options, 0, 1).best(np.zeros((2, 4), np.float32), rows, 4)
    assert calls == [renormalized] * whole


def test_a_search_goes_on_while_it_may_improve() -> None:
    for stopping, penalty, best, improves in [
        ("true", 1.0, -0.1, False),
        ("false", 1.0, -2.9, True),  # after 4 tokens: -0.725, and -1 the worst of the two best that ended
        ("false", 1.0, -4.1, False),
        ("false", 0.0, -0.9, True),
        ("never", 1.0, -9.9, True),  # after 10, the most there are: -0.99
        ("never", 1.0, -10.1, False),
        ("never", 0.0, -1.1, False),
    ]:
        options = DecodingOptions(beam_size=2, length_penalty=penalty, rules=SearchRules(stopping, forced_end=True))
        hypotheses = [SimpleNamespace(score=score) for score in (-0.5, -3.0, -1.0)]
        beams: Any = SimpleNamespace(
            steps_B=np.array([3, 3]),
            limits_B=np.array([9, 9]),
            sentences_B=[SimpleNamespace(hypotheses=hypotheses)] * 2,
        )
        scores_BR = np.array([[best, best - 1], [0, 0]], np.float32)
        found_B = may_improve(options, beams, np.array([True, False]), scores_BR, True)
        assert found_B.tolist() == [improves, False]
