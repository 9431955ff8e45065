"""Every kind of encoder-decoder against what transformers computed (goldens/make_architectures.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fastattn import Encoder, Translator
from fastattn.errors import InputError
from fastattn.spec.text_spec import LanguageTokens, SearchRules, TranslationText
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights import read
from fastattn.weights.huggingface.translators import TRANSLATORS
from tests.architectures.goldens import translator_logits, translators, write_translator
from tests.messages import refused
from tests.weights.native.folders import converted

GOLDEN = translators()
WEIGHTS, TEXT = "model.safetensors", "The river crosses a garden."


def _text(folder: Path) -> TranslationText:
    text = read(folder).text
    assert isinstance(text, TranslationText)
    return text


def _changed(folder: Path, change: dict[str, Any], file: str = "config.json") -> Path:
    """A value of None is left out."""
    values = json.loads((folder / file).read_text(encoding="utf-8")) | change
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / file).write_text(json.dumps(kept), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_logits_tokens_and_texts_are_the_goldens(name: str, tmp_path: Path) -> None:
    told, checkpoint = GOLDEN[name], read(write_translator(name, tmp_path))
    translator, text = Translator.from_checkpoint(checkpoint), checkpoint.text
    assert isinstance(text, TranslationText) and text.decoding.not_followed == ()
    tokenizer = TranslationTokenizer(text)
    pair = tokenizer.pair(*told["languages"].values())
    for source, ids in zip(told["texts"], told["ids"], strict=True):
        assert tokenizer.source_ids(tokenizer.surrounded_tokens(source, pair)).tolist() == ids
    model: Any = translator._service.model
    ids, starts = np.array(told["target"], np.int32), np.array([0, len(told["target"])], np.int64)
    hidden_TD, _ = model.prefill(ids, starts, model.encode([np.array(told["ids"][0], np.int32)]))
    found_V = model.output.all_log_probs(hidden_TD[-1:])[0]
    known = np.isfinite(found_V)  # all but what never comes
    expected_V = translator_logits(name)
    expected_V = expected_V - np.log(np.exp(expected_V[known]).sum())
    assert np.abs(found_V - expected_V)[known].max() <= 1e-4 * np.abs(expected_V).max()
    for beams in (1, 4):
        found = translator.translate(told["texts"], details=True, beam_size=beams, split="never", **told["languages"])
        tokens = [[text.target_vocabulary[index] for index in ids] for ids in told[f"beam {beams}"]]
        assert [[token for part in one.parts for token in part.tokens] for one in found] == tokens
    for one, row, joined in zip(found, tokens, told["joined"], strict=True):
        # tokens of no text, slow tokenizers join otherwise
        assert one.text == joined or any(not token or token.startswith(("__", "<")) for token in row)


def test_there_is_a_golden_of_every_kind() -> None:
    kinds = ("m2m100", "nllb", "legacy", "mbart", "mbart50", "bart", "t5", "flan-t5", "mt5", "umt5", "madlad")
    assert {f"{kind}-0" for kind in kinds} <= set(GOLDEN) and len({GOLDEN[name]["changed"] for name in GOLDEN}) > 1
    assert set(TRANSLATORS) >= {"bart", "m2m_100", "marian", "mbart", "pegasus"}


@pytest.mark.parametrize("name", ["nllb-0", "bart-0", "mbart-0", "umt5-0"])
def test_what_is_converted_comes_back(name: str, tmp_path: Path) -> None:
    checkpoint = read(write_translator(name, tmp_path / "model"))
    again = read(converted(checkpoint, tmp_path / "own", "float32"))
    assert (again.spec, again.text) == (checkpoint.spec, checkpoint.text)


def test_the_search_is_as_the_files_say(tmp_path: Path) -> None:
    text = _text(write_translator("bart-0", tmp_path))
    assert text.decoding.rules == SearchRules("true", forced_end=True)
    assert (text.add_source_bos, text.add_source_eos, text.bos_token, text.eos_token) == (True, True, "<s>", "</s>")
    assert text.decoding.forced_tokens == ("<s>",) and text.languages is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nllb-0", ("before", "first", "</s>")),
        ("legacy-0", ("after", "first", "</s>")),
        ("mbart-0", ("after", "start", None)),
        ("mbart50-0", ("before", "first", "</s>")),
        ("m2m100-0", ("before", "first", "</s>")),
    ],
)
def test_where_languages_stand(name: str, expected: tuple[str | None, ...], tmp_path: Path) -> None:
    text = _text(write_translator(name, tmp_path))
    assert text.languages is not None and text.single_sentences
    assert (text.languages.source, text.languages.target, text.decoder_start_token) == expected
    with pytest.raises(InputError, match="source_lang should be given"):
        Translator(tmp_path).translate(TEXT)


# What is T5's own.
OLD = {"scale_decoder_outputs": None}


@pytest.mark.parametrize(
    ("name", "change", "scale"),
    [
        ("t5-0", {}, 36**-0.5),
        ("t5-0", OLD | {"tie_word_embeddings": None}, 36**-0.5),
        ("t5-0", OLD | {"tie_word_embeddings": False}, 1.0),
        ("flan-t5-0", {}, 1.0),
        ("flan-t5-0", OLD | {"tie_word_embeddings": False}, 1.0),
        ("mt5-0", {"tie_word_embeddings": True}, 1.0),
    ],
)
def test_what_scales_the_output(name: str, change: dict[str, Any], scale: float, tmp_path: Path) -> None:
    checkpoint = read(_changed(write_translator(name, tmp_path), change))
    assert checkpoint.spec.decoder is not None and checkpoint.spec.decoder.output_scale == scale
    tied = checkpoint.tensors["decoder.projection.weight"] is checkpoint.tensors["decoder.embedding.weight"]
    assert tied == (name == "t5-0")  # the files have it, whatever config.json says


def test_an_encoder_reads_its_half_alone(tmp_path: Path) -> None:
    whole, half = (write_translator("t5-0", tmp_path / name) for name in ("whole", "half"))
    tensors = load_file(whole / WEIGHTS)
    save_file({name: tensor for name, tensor in tensors.items() if not name.startswith("decoder.")}, half / WEIGHTS)
    assert (read(whole).spec.kind, read(half).spec.kind) == ("encoder-decoder", "encoder")
    assert read(whole, "encoder").spec == read(half).spec
    vector = Encoder(half).encode(TEXT)
    np.testing.assert_array_equal(Encoder(whole).encode(TEXT), vector)
    broken = {name: tensor[:1] if name.startswith("decoder.") else tensor for name, tensor in tensors.items()}
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
    with refused(InputError, "target_lang"):
        translator.translate(TEXT, source_lang="en")
    odd = {"translation_en_to_xx": {"prefix": "say in Xx: "}, "summarization": {"prefix": "summarize: "}}
    assert _text(_changed(tmp_path, {"task_specific_params": odd})).languages is None


def test_a_target_language_is_a_token_before_the_text(tmp_path: Path) -> None:
    text = _text(write_translator("madlad-0", tmp_path))
    assert text.languages is not None and text.languages.prefix == "{target}" and len(text.languages.tokens) == 4
    assert (text.decoder_start_token, text.unk_token, text.eos_token) == ("<unk>", "<unk>", "</s>")
    translator = Translator(tmp_path)
    assert translator.translate(TEXT, target_lang="de") == translator.translate("<2de> " + TEXT)
    with refused(InputError, "target_lang"):
        translator.translate(TEXT)


def test_where_no_file_says_what_a_target_starts_with(tmp_path: Path) -> None:
    folder = write_translator("mt5-0", tmp_path)
    for file in ("config.json", "generation_config.json"):
        _changed(folder, {"decoder_start_token_id": None}, file)
    assert _text(folder).decoder_start_token == "<pad>"
