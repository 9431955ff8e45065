"""Hypotheses, scores, attention and forced decoding against what CTranslate2 gave for the same little models."""

import json

import numpy as np
import pytest

from fastattn.translation.translator import Translator
from tests import GOLDENS
from tests.weights.ctranslate2 import cases

GOLDEN = json.loads((GOLDENS / "ctranslate2.json").read_text(encoding="utf-8"))["models"]


@pytest.fixture(scope="module", params=list(cases.MODELS))
def model(request, tmp_path_factory):
    return request.param, Translator(cases.build(request.param, tmp_path_factory.mktemp("model")))


def _short(tokens):
    return " ".join(tokens).replace("▁w", "")


def test_every_option(model):
    name, translator = model
    sources, prefixes, _ = cases.inputs(name)
    for given, golden in zip(cases.OPTIONS, GOLDEN[name]["translations"], strict=True):
        if not cases.comparable(name, given):
            continue  # CTranslate2 decodes prefixes of such models wrongly here
        options = cases.LIMIT | given
        options["shortlist"] = options.pop("use_vmap", False)
        prefix = prefixes if options.pop("prefix", False) else cases.start_prefixes(name, len(sources))
        translated = translator.translate_tokens(sources, prefix, **options)
        for result, expected in zip(translated, golden, strict=True):
            assert list(map(_short, result.hypotheses)) == expected["hypotheses"], given
            np.testing.assert_allclose(result.scores, expected["scores"], rtol=1e-5, atol=1e-5)
            assert result.tokens == result.hypotheses[0]
            if not options.get("return_attention"):
                assert result.attention is None
                continue
            for attention_TS, rows, tokens in zip(
                result.attention, expected["attention"], result.hypotheses, strict=True
            ):
                assert attention_TS.shape == (len(tokens), len(result.source))
                np.testing.assert_allclose(attention_TS.tolist(), rows, atol=1e-4)


def test_scores_of_given_targets(model):
    name, translator = model
    sources, _, targets = cases.inputs(name)
    for result, expected in zip(translator.score_tokens(sources, targets), GOLDEN[name]["scores"], strict=True):
        assert _short(result.tokens) == expected["tokens"]
        np.testing.assert_allclose(result.log_probs, expected["log_probs"], rtol=1e-5, atol=1e-5)
