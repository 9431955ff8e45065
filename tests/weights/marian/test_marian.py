"""Marian models of every architecture, in .npz and .bin, against CTranslate2's reading of them and a naive one."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastattn.translation.translator import Translator
from tests import GOLDENS
from tests.weights.marian import cases, writer
from tests.weights.marian.oracle import Oracle

GOLDEN = json.loads((GOLDENS / "marian.json").read_text(encoding="utf-8"))["models"]

PRE_NORM = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
SSRU = {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"}
AVERAGE = {"transformer_decoder_autoreg": "average-attention"}
# What Marian can and CTranslate2's converter cannot.
VARIETIES: dict[str, dict] = {
    "plain": {},
    "recurrent": SSRU,
    "recurrent, pre-norm": SSRU | PRE_NORM,
    "average": AVERAGE,
    "average, pre-norm": AVERAGE | PRE_NORM | {"transformer_aan_activation": "relu"},
    "average, no gates": AVERAGE | {"transformer_aan_nogate": True, "transformer_dim_aan": 16},
    "average, no feed-forward": AVERAGE | {"transformer_aan_depth": 1},
    "tied layers": {"transformer_tied_layers": [1, 2, 1], "dec_depth": 3},
    "tied recurrent layers": SSRU | {"transformer_tied_layers": [1, 1, 1], "dec_depth": 3},
    "no projections": {"transformer_no_projection": True},
    "learned positions": {"transformer_train_position_embeddings": True},
    "no positions": {"transformer_disable_position_embeddings": True, "output_omit_bias": True},
    "rms norms": {"transformer_postprocess": "dar", "transformer_postprocess_emb": "r"},
    "rms norms first": PRE_NORM | {"transformer_preprocess": "r", "transformer_postprocess_top": "r"},
    "sigmoid": {"transformer_ffn_activation": "sigmoid", "transformer_decoder_dim_ffn": 12},
}


def ids(tokens: list[str]) -> list[int]:
    return [writer.vocabulary().index(token) for token in tokens]


@pytest.mark.parametrize("name", cases.MODELS)
def test_translations_and_scores_are_those_of_ctranslate2(name: str, tmp_path: Path) -> None:
    translator = Translator(writer.write(tmp_path, writer.files(*cases.build(name))), threads=1)
    sources, targets = cases.inputs()
    options = {"beam_size": 3, "max_decoding_length": 12, "disable_unk": False}
    translated = translator.translate_tokens(sources, return_attention=True, **options)
    golden = GOLDEN[name]
    for b, result in enumerate(translated):
        assert " ".join(result.hypotheses[0]) == golden["tokens"][b]
        np.testing.assert_allclose(result.scores[0], golden["scores"][b], atol=2e-5)
        # CTranslate2 shows the weights of the end of the source too.
        rows_TS = np.array(golden["attention"][b])[:, : result.attention[0].shape[1]]
        np.testing.assert_allclose(result.attention[0], rows_TS, atol=1e-4)
    for result, expected in zip(translator.score_tokens(sources, targets), golden["log_probs"], strict=True):
        np.testing.assert_allclose(result.log_probs, expected, atol=2e-5)


@pytest.mark.parametrize("name", VARIETIES)
def test_scores_are_those_of_a_naive_marian(name: str, tmp_path: Path) -> None:
    arrays, options = writer.random_model(list(VARIETIES).index(name), **VARIETIES[name])
    translator = Translator(writer.write(tmp_path, writer.files(arrays, options)), threads=1)
    oracle = Oracle(arrays, options)
    sources, targets = cases.inputs()
    for source, target, result in zip(sources, targets, translator.score_tokens(sources, targets), strict=True):
        expected = oracle.log_probs([*ids(source), 0], [*ids(target), 0])
        np.testing.assert_allclose(result.log_probs, expected, atol=3e-5)
