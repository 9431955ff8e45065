"""Every numeric option at the ends of what a number can be: a clear error or a result, and nothing else."""

import dataclasses
import warnings
from fractions import Fraction

import numpy as np
import pytest

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError
from tests.decoding import searching
from tests.models.tiny_models import START, random_model, random_sources

FIELDS = {field.name: str(field.type) for field in dataclasses.fields(DecodingOptions)}
NUMBERS = [name for name, kind in FIELDS.items() if "float" in kind]
COUNTS = [name for name, kind in FIELDS.items() if "int" in kind and "[" not in kind]
BOOLEANS = [name for name, kind in FIELDS.items() if "bool" in kind]
EXTREMES = [5e-324, 1e-45, 1e-30, 1 - 2**-53, 1e10, 1e38, 1e39, 1.7e308]
LARGE = [2**31, 2**63, 10**5000]
# What each option decides needs these beside it.
BESIDE = {
    "no_repeat_ngram_size": [{}],
    "prefix_bias_beta": [{"wished": True}],
    "min_alternative_expansion_prob": [{"return_alternatives": True, "num_hypotheses": 2}],
    "seed": [{"beam_size": 1, "sampling_topk": 0, "num_hypotheses": 2}],
    "sampling_topk": [{"beam_size": 1, "seed": 1}],
    "sampling_topp": [{"beam_size": 1, "sampling_topk": 0, "seed": 1}],
    "sampling_minp": [{"beam_size": 1, "sampling_topk": 0, "seed": 1}],
    "sampling_temperature": [{"beam_size": 1, "sampling_topk": 0, "seed": 1}],
    "patience": [{}, {"beam_size": 1}, {"return_alternatives": True}, {"beam_size": 1, "sampling_topk": 3, "seed": 1}],
    "repetition_penalty": [{}, {"beam_size": 1}, {"beam_size": 1, "sampling_topk": 0, "seed": 1}],
}


def decode(**options):
    """Hypotheses of three sentences, which end by themselves after two hundred tokens where no option ends them."""
    wished = options.pop("wished", False)
    model = random_model(11)
    jobs = [Job(source, [START], wished=[5] if wished else []) for source in random_sources(3, 3)]
    return searching.decode(model, jobs, DecodingOptions(**{"max_decoding_length": 8, **options}))


def outcome(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return decode(**options)
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
            return None


def test_every_numeric_option_is_here():
    assert len(NUMBERS) == 14 and len(COUNTS) == 8 and len(BOOLEANS) == 7


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    for value in [*EXTREMES, *(-value for value in EXTREMES), 10**400, -(10**400), 10**5000, Fraction(10**400), 0]:
        for beside in BESIDE.get(name, [{}]):
            found = outcome(**{name: value}, **beside)
            for hypotheses in found or []:
                scores = np.array([h.score for h in hypotheses])
                # A power of the length may be beyond float32, and a score infinite.
                assert not np.isnan(scores).any() if name == "length_penalty" else np.isfinite(scores).all(), value
                assert np.isfinite([h.log_probability for h in hypotheses]).all(), value


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    for value in [*LARGE, -(10**400)]:
        for beside in BESIDE.get(name, [{}]):
            found = outcome(**beside | {name: value})
            if found is not None:
                assert all(np.isfinite(h.score) for hypotheses in found for h in hypotheses)


def test_booleans_are_booleans():
    for name in BOOLEANS:
        for value in ("no", "", 0, 1, None, np.zeros(2)):
            with pytest.raises(InputError, match=f"^{name} must be True or False, got "):
                DecodingOptions(**{name: value})
        DecodingOptions(**{name: np.bool_(False)})
