"""MarianMT directories: logits, tokens and text as transformers has them; what is refused; a real model rewritten."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fastattn import Translator, weights
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import as_float32
from fastattn.spec.text_spec import TranslationText
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights.huggingface.translators.architecture import TABLE
from fastattn.weights.tensor_mapping import map_tensors
from tests import GOLDENS
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import safetensors_bytes
from tests.weights.huggingface.marian_cases import (
    CASES,
    SPM,
    TEXTS,
    forced_ids,
    make_config,
    make_tensors,
    make_vocabularies,
    write_files,
    write_model,
)
from tests.weights.refusals import refusal

GOLDEN = np.load(GOLDENS / "huggingface_marian.npz")
LIMIT = 29
OPTIONS = {"max_decoding_length": LIMIT, "no_repeat_ngram_size": 2, "min_decoding_length": 0}


@pytest.fixture(scope="module", params=list(CASES))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict]:
    """(name, directory, what transformers made of TEXTS)."""
    name = request.param
    path = write_model(tmp_path_factory.mktemp(name), CASES[name])
    return name, path, json.loads(str(GOLDEN[f"{name}.text"]))


def read_translator(path: Path) -> tuple[Checkpoint, TranslationText]:
    checkpoint = weights.read(path)
    assert isinstance(checkpoint.text, TranslationText)
    return checkpoint, checkpoint.text


def test_logits(model: tuple[str, Path, dict]) -> None:
    name, path, golden = model
    checkpoint, _ = read_translator(path)
    ours = build_model(checkpoint, reference)
    never = make_config(CASES[name])["pad_token_id"]
    forced = np.array(forced_ids(CASES[name]), np.int32)
    starts_B1 = np.array([0, len(forced)], np.int64)
    for ids, expected_TV in zip(golden["source"], GOLDEN[f"{name}.logits"], strict=True):
        hidden_ND, _ = ours.prefill(forced, starts_B1, ours.encode([np.array(ids, np.int32)]))
        logits_TV = reference.linear(hidden_ND, ours.output.projection)
        assert np.isneginf(logits_TV[:, never]).all()
        ordinary = np.arange(logits_TV.shape[1]) != never
        np.testing.assert_allclose(logits_TV[:, ordinary], expected_TV[:, ordinary], rtol=0, atol=1e-4)


def test_ids_of_texts_and_texts_of_ids(model: tuple[str, Path, dict]) -> None:
    _, path, golden = model
    _, text = read_translator(path)
    tokenizer = TranslationTokenizer(text)
    for source, ids in zip(TEXTS, golden["source"], strict=True):
        if source.startswith(">>hi<<"):
            continue  # no token of the vocabulary: transformers makes it unknown, here it is text
        assert tokenizer.source_ids(tokenizer.source_tokens(source)).tolist() == ids
    for ids, decoded in zip(golden["greedy"], golden["decoded"], strict=True):
        assert tokenizer.join(tokenizer.target_surfaces(ids[1:-1])) == decoded


@pytest.mark.parametrize(("name", "beam_size"), [("greedy", 1), ("beam", 4)])
def test_what_is_generated(model: tuple[str, Path, dict], name: str, beam_size: int) -> None:
    _, path, golden = model
    checkpoint, text = read_translator(path)
    translator = Translator.from_checkpoint(checkpoint)
    sources = [[text.source_vocabulary[index] for index in ids[:-1]] for ids in golden["source"]]
    translated = translator.translate_tokens(sources, beam_size=beam_size, **OPTIONS)
    ids = {token: i for i, token in enumerate(text.target_vocabulary)}
    for result, expected in zip(translated, golden[name], strict=True):  # also where the end was forced at the limit
        assert [ids[token] for token in result.tokens] == expected[1:-1]
    assert len({len(expected) for expected in golden[name]}) > 2


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ("zip", "stream"))
def test_the_same_from_pytorch_files(tmp_path: Path, name: str, form: str) -> None:
    expected, _ = read_translator(write_model(tmp_path / "safetensors", CASES[name]))
    folder = write_files(tmp_path / form, CASES[name])
    (folder / "pytorch_model.bin").write_bytes(pytorch_bytes(as_torch_saves(make_tensors(CASES[name])), form))
    ours, _ = read_translator(folder)
    assert ours.spec == expected.spec and ours.text == expected.text
    assert set(ours.tensors) == set(expected.tensors)
    for key, value in expected.tensors.items():
        np.testing.assert_array_equal(ours.tensors[key], value)


def as_torch_saves(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state dict has tied weights under every name; converted models have the output layer's as a copy."""
    shared = tensors.get("model.shared.weight", tensors.get("model.decoder.embed_tokens.weight"))
    assert shared is not None
    named = dict.fromkeys(("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"), shared)
    return named | {"lm_head.weight": shared.copy()} | tensors


def test_tied_weights_are_one_array(tmp_path: Path) -> None:
    for form in ("safetensors", "bin"):
        folder = write_files(tmp_path / form, CASES["shared"])
        tensors = make_tensors(CASES["shared"])
        if form == "bin":
            (folder / "pytorch_model.bin").write_bytes(pytorch_bytes(as_torch_saves(tensors)))
        else:
            (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        ours = weights.read(folder).tensors
        assert ours["decoder.projection.weight"] is ours["decoder.embedding.weight"]
        assert ours["encoder.embedding.weight"] is ours["decoder.embedding.weight"]
    ours = weights.read(write_model(tmp_path / "apart", CASES["separate"])).tensors
    assert ours["decoder.projection.weight"] is ours["decoder.embedding.weight"]
    assert ours["encoder.embedding.weight"] is not ours["decoder.embedding.weight"]
    ours = weights.read(write_model(tmp_path / "untied", CASES["stored"])).tensors
    assert ours["decoder.projection.weight"] is not ours["decoder.embedding.weight"]


def test_a_model_saved_without_its_head(tmp_path: Path) -> None:
    """MarianModel's names have no prefix, and there is no final_logits_bias."""
    folder = write_files(tmp_path, CASES["shared"], architectures=["MarianModel"])
    tensors = make_tensors(CASES["shared"])
    del tensors["final_logits_bias"]
    bare = {name.removeprefix("model."): value for name, value in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(bare))
    bias_V = weights.read(folder).tensors["decoder.projection.bias"]
    assert isinstance(bias_V, np.ndarray)
    assert np.isneginf(bias_V).nonzero()[0].tolist() == [make_config(CASES["shared"])["pad_token_id"]]
    assert not bias_V[np.isfinite(bias_V)].any()


def test_generation_config_says_what_is_never_produced(tmp_path: Path) -> None:
    folder = write_model(tmp_path, CASES["shared"], bad_words_ids=None, decoder_start_token_id=None)
    pad = make_config(CASES["shared"])["pad_token_id"]
    generation = {"bad_words_ids": [[7], [0]], "decoder_start_token_id": 5, "forced_bos_token_id": None}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    checkpoint, text = read_translator(folder)
    bias_V = checkpoint.tensors["decoder.projection.bias"]
    assert isinstance(bias_V, np.ndarray)
    assert np.isneginf(bias_V).nonzero()[0].tolist() == [7, pad]  # never the end token
    assert text.decoder_start_token == text.target_vocabulary[5]


def test_each_part_of_a_long_text_says_its_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, _ = read_translator(write_model(tmp_path, CASES["shared"], max_position_embeddings=12))
    seen: list[list[str]] = []
    translator = Translator.from_checkpoint(checkpoint)
    original = translator._pipeline.plan_parts

    def watched(sources: list[list[str]], *rest: Any) -> Any:
        seen.extend(sources)
        return original(sources, *rest)

    monkeypatch.setattr(translator._pipeline, "plan_parts", watched)
    translator.translate(">>pt<< The bridge. The river crosses the market. A garden opens near a window.", beam_size=1)
    assert len(seen) > 2 and all(part[0] == ">>pt<<" and part.count(">>pt<<") == 1 for part in seen)
    assert all(len(part) <= 11 for part in seen)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"normalize_before": True, "static_position_embeddings": False}, "normalize_before true; static_position_emb"),
        ({"normalize_embedding": True}, "not supported: normalize_embedding true"),
        ({"activation_function": "prelu"}, "activation_function should be one of gelu, .*, is 'prelu'"),
        ({"add_final_layer_norm": True, "is_decoder": True}, "is_decoder true; add_final_layer_norm true"),
        ({"architectures": ["MarianForCausalLM"]}, "architectures should be one of MarianMTModel, MarianModel, is"),
        ({"quantization_config": {"bits": 4}}, "not supported: quantization_config "),
        ({"bad_words_ids": [[10**9]]}, "bad_words_ids should be an id below 137, is 1000000000"),
        ({"pad_token_id": 10**9, "bad_words_ids": None}, "pad_token_id should be an id below 137, is 1000000000"),
        ({"pad_token_id": None}, "pad_token_id is missing"),
        ({"decoder_start_token_id": 137}, "decoder_start_token_id should be the id of a token in vocab.json, is 137"),
        ({"eos_token_id": 3}, "eos_token_id should be 0, the id of '</s>' in vocab.json, is 3"),
        ({"eos_token_id": [0, 3]}, "eos_token_id should be an integer"),
        ({"encoder_attention_heads": 3}, "d_model 16 is not a multiple of encoder_attention_heads 3"),
        ({"decoder_layers": 10**9}, "decoder_layers should be at most 1024, is 1000000000"),
        ({"decoder_layers": 3}, "missing decoder.layers.2.self_attn.q_proj.bias .16."),
        ({"vocab_size": 10**12}, "vocab_size should be at most 4194304, is 1000000000000"),
        ({"vocab_size": 10**6}, "should be .1000000, 16., is .137, 16."),
        ({"max_position_embeddings": 10**9}, "max_position_embeddings should be at most 8192, is 1000000000"),
        ({"tie_word_embeddings": False}, "missing lm_head.weight"),
        ({"share_encoder_decoder_embeddings": False}, "unexpected shared.weight"),
        ({"model_type": "prophetnet"}, "model type 'prophetnet' is not supported; known: albert, .*marian"),
        ({"model_type": "whisper"}, "model type 'whisper' is not supported: its input is sound, not text"),
        ({"model_type": "nllb-moe"}, "model type 'nllb-moe' is not supported: a mixture of experts"),
    ],
)
def test_configs_that_are_refused(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    refusal(write_model(tmp_path, CASES["shared"], **changes), fault)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"x": 137}, "'x' should have an id below 137, has 137"),
        ({"x": -1}, "'x' should have an id below 137, has -1"),
        ({"x": "1"}, "'x' should have an id below 137, has '1'"),
        ({"x": True}, "'x' should have an id below 137, has True"),
        ({"x": 5}, "and 'x' have the same id 5"),
        ({"\ud800": 5}, "should have an id below 137, has 5"),
        ({"</s>": None}, "'</s>' should have an id below 137, has None"),
    ],
)
def test_vocabularies_that_are_refused(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    folder = write_model(tmp_path, CASES["shared"])
    source, _ = make_vocabularies(CASES["shared"])
    (folder / "vocab.json").write_text(json.dumps(source | change))
    refusal(folder, fault)


def test_files_that_are_missing(tmp_path: Path) -> None:
    folder = write_model(tmp_path, CASES["separate"])
    for name in (*SPM, "vocab.json", "target_vocab.json"):
        (folder / name).rename(folder / "elsewhere")
        refusal(folder, f"{name}: no such file")
        (folder / "elsewhere").rename(folder / name)
    source, _ = make_vocabularies(CASES["separate"])
    lacking = {token: number for token, number in source.items() if token not in ("<unk>", "</s>")}
    (folder / "vocab.json").write_text(json.dumps(lacking))
    refusal(folder, r"vocab\.json: lacks '<unk>', '</s>'")


def test_spare_rows_and_tokens_with_flags(tmp_path: Path) -> None:
    """Ids that no token has are those of rows that were added to fill up; tokenizer_config.json may say more."""
    folder = write_model(tmp_path, CASES["shared"])
    source, _ = make_vocabularies(CASES["shared"])
    spare = next(token for token, number in source.items() if number == 50)
    del source[spare]
    (folder / "vocab.json").write_text(json.dumps(source))
    config = {"eos_token": {"content": "</s>", "lstrip": False}, "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    _, text = read_translator(folder)
    assert text.target_vocabulary[50] == "" and text.eos_token == "</s>"


def test_a_real_model_rewritten(pulled: Any, tmp_path: Path) -> None:
    """zh-en's weights as float32 under transformers' names: the same tensors, architecture and texts."""
    theirs = weights.read(pulled("zh-en"))
    assert isinstance(theirs.text, TranslationText)
    folder = write_real_files(tmp_path, theirs, theirs.text)
    save_file(as_transformers_names(theirs), folder / "model.safetensors")
    ours, text = read_translator(folder)
    for name, expected in theirs.tensors.items():
        found = ours.tensors[name]
        assert isinstance(found, np.ndarray)
        if found.shape != expected.shape:  # the padding token's row
            found = found[:-1]
        np.testing.assert_array_equal(found, as_float32(expected))
    for stack in ("encoder", "decoder"):
        for field in dataclasses.fields(theirs.spec.encoder):
            if field.name not in ("vocabulary", "start_from_zero_embedding"):
                one, other = (getattr(getattr(c.spec, stack), field.name) for c in (ours, theirs))
                assert np.float32(one) == np.float32(other) if type(one) is float else one == other
    assert text.target_vocabulary[:-1] == theirs.text.target_vocabulary
    for field_name in ("source_model", "target_model", "eos_token", "unk_token", "add_source_bos", "add_source_eos"):
        assert getattr(text, field_name) == getattr(theirs.text, field_name), field_name


def as_transformers_names(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """transformers computes the positions itself; the padding token is one more row, of zeros."""
    tensors = {}
    parts = map_tensors(TABLE, checkpoint.spec)
    for name, value in checkpoint.tensors.items():
        values = value if isinstance(value, np.ndarray) else value.float32()
        if ".layers." in name:
            theirs = parts[name].names
            tensors |= {f"model.{part}": piece for part, piece in zip(theirs, np.split(values, len(theirs)))}
    embedding = checkpoint.tensors["decoder.embedding.weight"]
    assert not isinstance(embedding, np.ndarray)
    bias = checkpoint.tensors["decoder.projection.bias"]
    assert isinstance(bias, np.ndarray)
    tensors["model.shared.weight"] = np.pad(embedding.float32(), ((0, 1), (0, 0)))
    tensors["final_logits_bias"] = np.pad(bias, (0, 1))[None]
    return tensors


def write_real_files(folder: Path, checkpoint: Checkpoint, text: TranslationText) -> Path:
    encoder, pad = checkpoint.spec.encoder, len(text.target_vocabulary)
    config = make_config(CASES["shared"]) | {
        "vocab_size": pad + 1, "decoder_vocab_size": pad + 1, "d_model": encoder.width,
        "max_position_embeddings": encoder.positions.limit, "pad_token_id": pad, "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]], "eos_token_id": text.target_vocabulary.index("</s>"),
        "encoder_layers": encoder.layers, "decoder_layers": encoder.layers,
        "encoder_ffn_dim": encoder.feed_forward.inner_width, "decoder_ffn_dim": encoder.feed_forward.inner_width,
        "encoder_attention_heads": encoder.attention.heads, "decoder_attention_heads": encoder.attention.heads,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {token: i for i, token in enumerate((*text.target_vocabulary, "<pad>"))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for name, model in (("source.spm", text.source_model), ("target.spm", text.target_model)):
        assert model is not None
        (folder / name).write_bytes(model)
    return folder
