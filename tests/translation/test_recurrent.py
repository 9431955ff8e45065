"""What translation has, recurrent models have too, from the same code: every option, alone, in a batch and later."""

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.translation.translator import Translator
from tests.models.recurrent_varieties import recurrent_checkpoint
from tests.models.tiny_models import vocabulary

WORDS = vocabulary(19)
TEXTS = [" ".join(WORDS[i] for i in ids) for ids in ((4, 9, 3, 12), (5,), (8, 8, 7, 4, 11, 6), (10, 3))]
PREFIX = f"{WORDS[8]} {WORDS[6]}"
OPTIONS = {
    "greedy": {"beam_size": 1},
    "best": {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 0.6},
    "patient": {"beam_size": 3, "patience": 2.0, "num_hypotheses": 5},
    "penalties": {"repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "min_decoding_length": 5, "word_penalty": 0.2},
    "prefix": {"target_prefix": PREFIX, "beam_size": 3},
    "favoured prefix": {"target_prefix": PREFIX, "prefix_bias_beta": 0.4},
    "alternatives": {"target_prefix": WORDS[8], "return_alternatives": True, "num_hypotheses": 3},
    "samples": {"beam_size": 1, "sampling_topk": 0, "sampling_temperature": 1.5, "num_hypotheses": 3, "seed": 5},
    "nucleus": {"beam_size": 1, "sampling_topk": 0, "sampling_topp": 0.7, "seed": 6},
    "suppressed": {"suppress_sequences": [WORDS[7], PREFIX], "disable_unk": True},
    "another end": {"end_token": [WORDS[5], WORDS[6]], "return_end_token": True},
    "cut": {"max_input_length": 2},
    "attention": {"return_attention": True, "beam_size": 3},
    "coverage": {"coverage_penalty": 0.7, "beam_size": 3},
    "unknowns replaced": {"replace_unknowns": True},
}
SHORT = {"max_decoding_length": 7}
ATTENDED = ("attention", "coverage", "unknowns replaced")


@pytest.fixture(scope="module", params=["sutskever", "luong concat", "multi-head"])
def translators(request) -> tuple[Translator, Translator, bool]:
    """By the kernels, by the reference, and whether there is attention."""
    made = recurrent_checkpoint(request.param)
    both = (Translator.from_checkpoint(made, "float32", ops=ops, threads=2) for ops in (operations, reference))
    return *both, made.spec.decoder.attention is not None


def test_every_option_is_the_reference_s_whatever_the_batch(translators):
    ours, oracle, attends = translators
    for name in OPTIONS if attends else OPTIONS.keys() - ATTENDED:
        options = OPTIONS[name] | SHORT
        found, expected = (one.translate(TEXTS, details=True, **options) for one in (ours, oracle))
        for one, other in zip(found, expected, strict=True):
            assert one.hypotheses == other.hypotheses, name
            np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-5)
        assert [repr(ours.translate(text, details=True, **options)) for text in TEXTS] == list(map(repr, found)), name
        assert name != "greedy" or len({one.text for one in found}) > 1
