"""MarianMT directories: logits, tokens and text as transformers has them; what is refused; a real model rewritten."""

import json

import numpy as np
import pytest

from fastattn import Translator, weights
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.text.translation import TranslationTokenizer
from tests import GOLDENS
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import safetensors_bytes
from tests.weights.huggingface import marian_cases as cases
from tests.weights.huggingface.marian_cases import CASES, SPM, TEXTS
from tests.weights.refusals import refuses

GOLDEN = np.load(GOLDENS / "huggingface_marian.npz")


@pytest.fixture(scope="module", params=list(CASES))
def model(request, tmp_path_factory):
    """(name, directory, what transformers made of TEXTS)."""
    name = request.param
    path = cases.write_model(tmp_path_factory.mktemp(name), CASES[name])
    return name, path, json.loads(str(GOLDEN[f"{name}.text"]))


def test_logits(model):
    name, path, golden = model
    ours = build_model(weights.read(path), reference)
    never = cases.make_config(CASES[name])["pad_token_id"]
    forced = np.array(cases.forced_ids(CASES[name]), np.int32)
    starts_B1 = np.array([0, len(forced)], np.int64)
    for ids, expected_TV in zip(golden["source"], GOLDEN[f"{name}.logits"], strict=True):
        hidden_ND, _ = ours.prefill(forced, starts_B1, ours.encode([np.array(ids, np.int32)]))
        logits_TV = reference.linear(hidden_ND, ours.output.projection)
        assert np.isneginf(logits_TV[:, never]).all()
        ordinary = np.arange(logits_TV.shape[1]) != never
        np.testing.assert_allclose(logits_TV[:, ordinary], expected_TV[:, ordinary], rtol=0, atol=1e-4)


def test_ids_of_texts_and_texts_of_ids(model):
    _, path, golden = model
    tokenizer = TranslationTokenizer(weights.read(path).text)
    for source, ids in zip(TEXTS, golden["source"], strict=True):
        if source.startswith(">>hi<<"):
            continue  # no token of the vocabulary: transformers makes it unknown, here it is text
        assert tokenizer.source_ids(tokenizer.source_tokens(source)).tolist() == ids
    for ids, decoded in zip(golden["greedy"], golden["decoded"], strict=True):
        assert tokenizer.join(tokenizer.target_surfaces(ids[1:-1])) == decoded


@pytest.mark.parametrize("name", CASES)
def test_the_same_from_pytorch_files(tmp_path, name):
    expected = weights.read(cases.write_model(tmp_path / "safetensors", CASES[name]))
    folder = cases.write_files(tmp_path / "pytorch", CASES[name])
    (folder / "pytorch_model.bin").write_bytes(pytorch_bytes(as_torch_saves(cases.make_tensors(CASES[name]))))
    ours = weights.read(folder)
    assert (ours.spec, ours.text, set(ours.tensors)) == (expected.spec, expected.text, set(expected.tensors))
    for key, value in expected.tensors.items():
        np.testing.assert_array_equal(ours.tensors[key], value)
    assert (name == "shared") == (sharing(ours.tensors) == (True, True))
    assert sharing(expected.tensors) == SHARING[name]


def as_torch_saves(tensors):
    """A state dict has tied weights under every name; converted models have the output layer's as a copy."""
    shared = tensors.get("model.shared.weight", tensors.get("model.decoder.embed_tokens.weight"))
    named = dict.fromkeys(("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"), shared)
    return named | {"lm_head.weight": shared.copy()} | tensors


SHARING = {"shared": (True, True), "separate": (True, False), "stored": (False, True)}


def sharing(tensors):
    """Whether the decoder's embedding is (the projection, the encoder's embedding) too, as one array."""
    embedding = tensors["decoder.embedding.weight"]
    return tensors["decoder.projection.weight"] is embedding, tensors["encoder.embedding.weight"] is embedding


def test_a_model_saved_without_its_head(tmp_path):
    """MarianModel's names have no prefix, and there is no final_logits_bias."""
    folder = cases.write_files(tmp_path, CASES["shared"], architectures=["MarianModel"])
    tensors = cases.make_tensors(CASES["shared"])
    del tensors["final_logits_bias"]
    bare = {name.removeprefix("model."): value for name, value in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(bare))
    bias_V = weights.read(folder).tensors["decoder.projection.bias"]
    assert np.isneginf(bias_V).nonzero()[0].tolist() == [cases.make_config(CASES["shared"])["pad_token_id"]]
    assert not bias_V[np.isfinite(bias_V)].any()


def test_generation_config_says_what_is_never_produced(tmp_path):
    folder = cases.write_model(tmp_path, CASES["shared"], bad_words_ids=None, decoder_start_token_id=None)
    pad = cases.make_config(CASES["shared"])["pad_token_id"]
    generation = {"bad_words_ids": [[7], [0]], "decoder_start_token_id": 5, "forced_bos_token_id": None}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    checkpoint = weights.read(folder)
    assert np.isneginf(checkpoint.tensors["decoder.projection.bias"]).nonzero()[0].tolist() == [7, pad]  # never the end
    assert checkpoint.text.decoder_start_token == checkpoint.text.target_vocabulary[5]


def test_each_part_of_a_long_text_says_its_language(tmp_path, monkeypatch):
    checkpoint = weights.read(cases.write_model(tmp_path, CASES["shared"], max_position_embeddings=12))
    seen, translator = [], Translator.from_checkpoint(checkpoint)
    pipeline, plan = translator._pipeline, translator._pipeline.plan_parts
    monkeypatch.setattr(pipeline, "plan_parts", lambda parts, *rest: seen.extend(parts) or plan(parts, *rest))
    translator.translate(">>pt<< The bridge. The river crosses the market. A garden opens near a window.", beam_size=1)
    assert len(seen) > 2 and all(part[0] == ">>pt<<" and part.count(">>pt<<") == 1 for part in seen)
    assert all(len(part) <= 11 for part in seen)


CHANGES = [
    {"normalize_before": True, "static_position_embeddings": False}, {"normalize_embedding": True},
    {"activation_function": "prelu"}, {"add_final_layer_norm": True, "is_decoder": True},
    {"architectures": ["MarianForCausalLM"]}, {"quantization_config": {"bits": 4}}, {"bad_words_ids": [[10**9]]},
    {"pad_token_id": 10**9, "bad_words_ids": None}, {"pad_token_id": None}, {"decoder_start_token_id": 137},
    {"eos_token_id": 3}, {"eos_token_id": [0, 3]}, {"encoder_attention_heads": 3}, {"decoder_layers": 10**9},
    {"decoder_layers": 3}, {"vocab_size": 10**12}, {"max_position_embeddings": 10**9},
    {"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}, {"model_type": "prophetnet"},
    {"model_type": "whisper"}, {"model_type": "nllb-moe"},
]  # fmt: skip


def test_configs_that_are_refused(tmp_path):
    for changes in CHANGES:
        refuses(cases.write_model(tmp_path, CASES["shared"], **changes))


def test_vocabularies_and_files_that_are_refused(tmp_path):
    folder = cases.write_model(tmp_path, CASES["separate"])
    source, _ = cases.make_vocabularies(CASES["separate"])
    lacking = {token: number for token, number in source.items() if token not in ("<unk>", "</s>")}
    faults = [{"x": 137}, {"x": -1}, {"x": "1"}, {"x": True}, {"x": 5}, {"\ud800": 5}, {"</s>": None}]
    for wrong in (lacking, *(source | fault for fault in faults)):
        (folder / "vocab.json").write_text(json.dumps(wrong))
        refuses(folder)
    (folder / "vocab.json").write_text(json.dumps(source))
    for name in (*SPM, "vocab.json", "target_vocab.json"):
        (folder / name).rename(folder / "elsewhere")
        refuses(folder, f"{name}: no such file")
        (folder / "elsewhere").rename(folder / name)


def test_spare_rows_and_tokens_with_flags(tmp_path):
    """Ids that no token has are those of rows that were added to fill up; tokenizer_config.json may say more."""
    folder = cases.write_model(tmp_path, CASES["shared"])
    kept = {token: number for token, number in cases.make_vocabularies(CASES["shared"])[0].items() if number != 50}
    config = {"eos_token": {"content": "</s>", "lstrip": False}, "unk_token": "<unk>"}
    for name, content in (("vocab.json", kept), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content))
    text = weights.read(folder).text
    assert text.target_vocabulary[50] == "" and text.eos_token == "</s>"
