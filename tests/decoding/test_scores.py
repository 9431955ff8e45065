"""Edits of log-probabilities as transformers makes them, and when its search of beams ends."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.scores import edited, may_improve
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
