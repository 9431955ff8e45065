"""T5's family in Hugging Face directories: what is its own, beside ``test_translators.py``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fastattn import Encoder, Translator
from fastattn.errors import InputError
from fastattn.spec.text_spec import LanguageTokens, TranslationText
from fastattn.weights import read
from tests.architectures.goldens import write_translator
from tests.weights.refusals import refusal

WEIGHTS, TEXT = "model.safetensors", "The river crosses a garden."


def _changed(folder: Path, change: dict[str, Any], file: str = "config.json") -> Path:
    """A value of None is left out."""
    values = json.loads((folder / file).read_text(encoding="utf-8")) | change
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / file).write_text(json.dumps(kept), encoding="utf-8")
    return folder


def _text(folder: Path) -> TranslationText:
    text = read(folder).text
    assert isinstance(text, TranslationText)
    return text


OLD = {"scale_decoder_outputs": None}


def test_what_scales_the_output(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, change, scale in (
        ("t5-0", {}, 36**-0.5),
        ("t5-0", OLD | {"tie_word_embeddings": None}, 36**-0.5),
        ("t5-0", OLD | {"tie_word_embeddings": False}, 1.0),
        ("flan-t5-0", {}, 1.0),
        ("flan-t5-0", OLD | {"tie_word_embeddings": False}, 1.0),
        ("mt5-0", {"tie_word_embeddings": True}, 1.0),
    ):
        folder = tmp_path_factory.mktemp("case")
        checkpoint = read(_changed(write_translator(name, folder), change))
        assert checkpoint.spec.decoder is not None and checkpoint.spec.decoder.output_scale == scale
        tied = checkpoint.tensors["decoder.projection.weight"] is checkpoint.tensors["decoder.embedding.weight"]
        assert tied == (name == "t5-0")  # the files have it, whatever config.json says


def test_an_encoder_reads_its_half_alone(tmp_path: Path) -> None:
    whole, half = (write_translator("t5-0", tmp_path / name) for name in ("whole", "half"))
    tensors = load_file(whole / WEIGHTS)
    save_file({name: tensor for name, tensor in tensors.items() if not name.startswith("decoder.")}, half / WEIGHTS)
    assert (read(whole).spec.kind, read(half).spec.kind) == ("encoder-decoder", "encoder")
    assert read(whole, "encoder").spec == read(half).spec
    broken = {name: tensor[:1] if name.startswith("decoder.") else tensor for name, tensor in tensors.items()}
    vector = Encoder(half).encode(TEXT)
    np.testing.assert_array_equal(Encoder(whole).encode(TEXT), vector)
    save_file(broken, whole / WEIGHTS)
    np.testing.assert_array_equal(Encoder(whole).encode(TEXT), vector)


def test_a_bias_that_old_files_have(tmp_path: Path) -> None:
    folder = write_translator("t5-0", tmp_path)
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file(load_file(folder / WEIGHTS) | {name: np.zeros((32, 5), np.float32)}, folder / WEIGHTS)
    assert read(folder).spec.kind == "encoder-decoder"


def test_the_tasks_of_config_json_are_languages(tmp_path: Path) -> None:
    text = _text(write_translator("t5-0", tmp_path))
    names = {"en": "English", "de": "German", "fr": "French", "ro": "Romanian"}
    assert text.languages == LanguageTokens(names, prefix="translate {source} to {target}:")
    translator = Translator(tmp_path)
    told = translator.translate(TEXT, source_lang="eng_Latn", target_lang="German")
    assert told == translator.translate("translate English to German: " + TEXT) != translator.translate(TEXT)
    with pytest.raises(InputError, match="target_lang should be given; this model knows 4: en"):
        translator.translate(TEXT, source_lang="en")
    odd = {"translation_en_to_xx": {"prefix": "say in Xx: "}, "summarization": {"prefix": "summarize: "}}
    assert _text(_changed(tmp_path, {"task_specific_params": odd})).languages is None


def test_a_target_language_is_a_token_before_the_text(tmp_path: Path) -> None:
    text = _text(write_translator("madlad-0", tmp_path))
    assert text.languages is not None and text.languages.prefix == "{target}" and len(text.languages.tokens) == 4
    assert (text.decoder_start_token, text.unk_token, text.eos_token) == ("<unk>", "<unk>", "</s>")
    translator = Translator(tmp_path)
    assert translator.translate(TEXT, target_lang="de") == translator.translate("<2de> " + TEXT)
    with pytest.raises(InputError, match="target_lang should be given; this model knows 4: de"):
        translator.translate(TEXT)


def test_where_no_file_says_what_a_target_starts_with(tmp_path: Path) -> None:
    folder = write_translator("mt5-0", tmp_path)
    for file in ("config.json", "generation_config.json"):
        _changed(folder, {"decoder_start_token_id": None}, file)
    assert _text(folder).decoder_start_token == "<pad>"


def test_a_folder_that_is_refused(tmp_path: Path) -> None:
    for change, fault in (
        ({"vocab_size": 10**9}, "vocab_size should be at most 4194304"),
        ({"vocab_size": 100}, "more pieces than the embedding's 100 rows"),
        ({"d_model": 10**12}, "d_model should be at most"),
        ({"d_kv": 8}, r"should be \[40, 36\]"),
        ({"num_decoder_layers": 10**9}, "num_decoder_layers should be at most 1024"),
        ({"num_decoder_layers": 1000}, "missing decoder.block.2.layer.0"),
        ({"feed_forward_proj": "gated-prelu"}, "feed_forward_proj should be one of"),
        ({"relative_attention_num_buckets": 31}, r"relative_attention_bias.weight should be \[31, 5\], is \[32, 5\]"),
        ({"model_type": "umt5"}, "missing decoder.block.1.layer.0.SelfAttention.relative_attention_bias"),
        ({"task_specific_params": {"translation_en_to_de": 7}}, "translation_en_to_de should be an object"),
    ):
        refusal(_changed(write_translator("t5-0", tmp_path), change), fault)
