"""Marian models of every architecture, in .npz and .bin, against CTranslate2's reading of them and a naive one."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.spec.architecture import PositionSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import QuantizedTensor
from fastattn.spec.text_spec import TranslationText
from fastattn.translation.translator import Translator
from tests import GOLDENS
from tests.weights.ctranslate2.writer import as_float32
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
    "rms norms first": {
        "transformer_preprocess": "r",
        "transformer_postprocess": "a",
        "transformer_postprocess_top": "r",
    },
    "sigmoid": {"transformer_ffn_activation": "sigmoid", "transformer_decoder_dim_ffn": 12},
}


def text_of(checkpoint) -> TranslationText:
    assert isinstance(checkpoint.text, TranslationText)
    return checkpoint.text


def floats(tensor) -> np.ndarray:
    return tensor.float32() if isinstance(tensor, QuantizedTensor) else tensor


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


TEXTS = ["我们明天去北京开会。", "他昨天买了三本书，今天已经读完了两本。", "这座桥是1998年建成的。"]
PARTS = {"self_attention": "self", "cross_attention": "context", "feed_forward": "ffn"}


def as_marian(checkpoint: Checkpoint) -> tuple[writer.Arrays, dict[str, object]]:
    """(arrays, options); the positions are Marian's own, sinusoids, whatever the checkpoint's are."""
    spec = checkpoint.spec.decoder
    assert spec is not None
    arrays: writer.Arrays = {}
    for name, value in as_float32(checkpoint.tensors).items():
        match = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(\w+)\.(\w+)\.(weight|bias)", name)
        if match is None:
            continue
        stack, number, block, part, end = match.groups()
        theirs = f"{stack}_l{int(number) + 1}_{PARTS[block]}"
        if part == "norm":
            middle = "ffn" if block == "feed_forward" else "Wo"
            arrays[f"{theirs}_{middle}_ln_{'scale' if end == 'weight' else 'bias'}"] = value[None]
            continue
        letters = {"qkv": "qkv", "query": "q", "key_value": "kv", "output": "o", "inner": "1", "outer": "2"}[part]
        for letter, matrix in zip(letters, np.split(value, len(letters)), strict=True):
            linear = matrix.T if end == "weight" else matrix[None]
            arrays[f"{theirs}_{'W' if end == 'weight' else 'b'}{letter}"] = np.ascontiguousarray(linear)
    tensors = as_float32(checkpoint.tensors)
    arrays["Wemb"] = tensors["decoder.projection.weight"]
    arrays["decoder_ff_logit_out_b"] = tensors["decoder.projection.bias"][None]
    options = {
        "dim-emb": spec.width,
        "transformer-heads": spec.attention.heads,
        "transformer-dim-ffn": spec.feed_forward.inner_width,
    }
    options |= {"enc-depth": checkpoint.spec.encoder.layers, "dec-depth": spec.layers, "dim-vocabs": [0, 0]}
    return arrays, writer.OPTIONS | options


@pytest.mark.slow
@pytest.mark.parametrize("model", ("model.npz", "model.bin"))
def test_zh_en_as_a_marian_translates_as_from_ctranslate2s_form(pulled, model: str, tmp_path: Path) -> None:
    original = weights.read(pulled("zh-en"))
    text = original.text
    assert isinstance(text, TranslationText) and text.source_model is not None
    arrays, options = as_marian(original)
    contents = writer.files(arrays, options, model, vocabs=["vocab.json", "vocab.json"])
    contents |= {"source.spm": text.source_model, "target.spm": text.source_model}
    contents["vocab.json"] = writer.vocabulary_json(text.source_vocabulary)
    found = weights.read(writer.write(tmp_path, contents))
    # What CTranslate2 leaves of Marian's own: its table of positions and its epsilon are others.
    stacks = {
        name: dataclasses.replace(
            stack, positions=PositionSpec("sinusoid", start=0), norms=dataclasses.replace(stack.norms, epsilon=1e-6)
        )
        for name, stack in original.spec.stacks.items()
    }
    assert found.spec == dataclasses.replace(original.spec, **stacks)
    expected = as_float32(original.tensors)
    for name, tensor in as_float32(found.tensors).items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)
    del expected, arrays, contents
    translations = Translator(tmp_path, precision="float32").translate(TEXTS, beam_size=2)
    assert translations == Translator(pulled("zh-en"), precision="float32").translate(TEXTS, beam_size=2)
