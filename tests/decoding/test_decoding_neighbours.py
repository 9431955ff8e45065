"""Sentences whose options differ in one alone: together, each gives what it gives by itself."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import search_plan
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.checkpoint import Shortlist
from tests.decoding.searching import by_hand, decode, plain
from tests.models.tiny_models import END, START, random_checkpoint, random_model, random_sources

SOURCES, PREFIXES = random_sources(8, seed=8), [[5, 6, 9][: b % 4] for b in range(8)]
ALL_WORDS = random_model(seed=7, ops=operations, sharpness=4.0)
GREEDY, BEAM = {"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 2}
SAMPLING = GREEDY | {"sampling_topk": 6, "seed": 3}
ALTERNATIVES = {"beam_size": 2, "num_hypotheses": 4, "return_alternatives": True}
# What the sentences have in common, and what is another option in half of them.
DIFFERENT = [
    (GREEDY, "return_scores", False),
    (BEAM, "beam_size", 2),
    (BEAM, "num_hypotheses", 3),
    (BEAM, "patience", 3.0),
    (BEAM, "length_penalty", 0.1),
    (BEAM, "word_penalty", 0.7),
    (BEAM, "coverage_penalty", 0.9),
    (BEAM, "repetition_penalty", 2.0),
    (BEAM, "no_repeat_ngram_size", 1),
    (BEAM, "min_decoding_length", 6),
    (BEAM, "max_decoding_length", 4),
    (BEAM, "max_length_factor", 0.5),
    (BEAM, "suppress_sequences", ((5,), (6,), (7,), (8,))),
    (BEAM, "prefix_bias_beta", 0.6),
    (BEAM, "return_alternatives", True),
    (BEAM, "end_token", (5, 7)),
    (BEAM, "return_end_token", True),
    (BEAM, "return_attention", True),
    (SAMPLING, "sampling_topk", 2),
    (SAMPLING, "sampling_topp", 0.5),
    (SAMPLING, "sampling_temperature", 0.2),
    (SAMPLING, "seed", 4),
    (ALTERNATIVES, "min_alternative_expansion_prob", 0.3),
    (ALTERNATIVES, "suppress_sequences", ((5, 6), (7,), (8,))),
    (ALTERNATIVES, "min_decoding_length", 6),
]


def with_shortlist():
    words, ids = 19, np.arange(19, dtype=np.int32)
    shortlist = Shortlist(ids[:6], np.arange(words + 1, dtype=np.int32) * 3, np.tile(ids[6:9], words))
    return build_model(replace(random_checkpoint(seed=7, sharpness=4.0), shortlist=shortlist), operations)


def check_together(model, jobs: list[list[Job]]) -> None:
    """Jobs of two kinds, in both orders; the kinds differ in their results, or nothing would be seen."""
    expected = [plain(decode(model, some, some[0].options)) for some in jobs]
    assert expected[0] != expected[1]
    for order in (1, -1):
        first, second = jobs[::order]
        scheduler = by_hand(model, 1)
        request = scheduler.submit(partial(search_plan, [*first, *second], model.sizes))
        scheduler.finish_all()
        assert not scheduler.failures
        assert plain(request.result(0)) == sum(expected[::order], [])


def jobs_of(options: DecodingOptions) -> list[Job]:
    return [Job(source, [START], prefix, options) for source, prefix in zip(SOURCES, PREFIXES)]


@pytest.mark.parametrize(("common", "name", "value"), DIFFERENT)
def test_one_option(common, name, value):
    both = common, common | {name: value}
    check_together(ALL_WORDS, [jobs_of(DecodingOptions(**{"max_decoding_length": 10} | each)) for each in both])


def test_a_shortlist():
    both = (DecodingOptions(max_decoding_length=10, shortlist=wanted) for wanted in (True, False))
    check_together(with_shortlist(), [jobs_of(options) for options in both])


def test_lists_of_their_own():
    jobs = jobs_of(DecodingOptions(max_decoding_length=10, shortlist=False))
    few = [replace(job, allowed=lambda: np.array([END, 9, 11, 13], np.int32)) for job in jobs]
    check_together(with_shortlist(), [jobs, few])
