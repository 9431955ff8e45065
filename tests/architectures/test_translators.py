"""Every kind of encoder-decoder against what transformers computed (goldens/make_architectures.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import Translator
from fastattn.errors import InputError
from fastattn.spec.text_spec import SearchRules, TranslationText
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights import read
from fastattn.weights.huggingface.translators import TRANSLATORS
from tests.architectures.goldens import translator_logits, translators, write_translator
from tests.weights.native.folders import converted
from tests.weights.refusals import refusal

GOLDEN = translators()


def _text(folder: Path) -> TranslationText:
    text = read(folder).text
    assert isinstance(text, TranslationText)
    return text


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
        if not any(
            not token or token.startswith(("__", "<")) for token in row
        ):  # of no text; slow tokenizers join them otherwise
            assert one.text == joined


def test_there_is_a_golden_of_every_kind() -> None:
    kinds = {str(GOLDEN[name]["changed"]): name for name in GOLDEN}
    assert len(kinds) > 1 and {"m2m100-0", "nllb-0", "legacy-0", "mbart-0", "mbart50-0", "bart-0"} <= set(GOLDEN)
    assert {"t5-0", "flan-t5-0", "mt5-0", "umt5-0", "madlad-0"} <= set(GOLDEN)
    assert set(TRANSLATORS) >= {"bart", "m2m_100", "marian", "mbart", "pegasus"}


def test_what_is_converted_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("nllb-0", "bart-0", "mbart-0", "umt5-0"):
        folder = tmp_path_factory.mktemp("case")
        write_translator(name, folder / "model")
        checkpoint = read(folder / "model")
        again = read(converted(checkpoint, folder / "own", "float32"))
        assert (again.spec, again.text) == (checkpoint.spec, checkpoint.text)


def test_the_search_is_as_the_files_say(tmp_path: Path) -> None:
    write_translator("bart-0", tmp_path)
    text = _text(tmp_path)
    assert text.decoding.rules == SearchRules("true", forced_end=True)
    assert (text.add_source_bos, text.add_source_eos, text.bos_token, text.eos_token) == (True, True, "<s>", "</s>")
    assert text.decoding.forced_tokens == ("<s>",) and text.languages is None


def test_where_languages_stand(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, source, target, start in (
        ("nllb-0", "before", "first", "</s>"),
        ("legacy-0", "after", "first", "</s>"),
        ("mbart-0", "after", "start", None),
        ("mbart50-0", "before", "first", "</s>"),
        ("m2m100-0", "before", "first", "</s>"),
    ):
        folder = tmp_path_factory.mktemp("case")
        write_translator(name, folder)
        text = _text(folder)
        assert text.languages is not None and text.single_sentences
        assert (text.languages.source, text.languages.target, text.decoder_start_token) == (source, target, start)
        with pytest.raises(InputError, match="source_lang should be given"):
            Translator(folder).translate("The river.")


def _changed(folder: Path, file: str, change: dict[str, Any]) -> None:
    values = json.loads((folder / file).read_text(encoding="utf-8"))
    (folder / file).write_text(json.dumps(values | change), encoding="utf-8")


def test_a_folder_that_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, file, change, fault in (
        ("bart-0", "config.json", {"architectures": ["BartForSequenceClassification"]}, "architectures should be one"),
        ("bart-0", "config.json", {"d_model": 37}, "d_model 37 is not a multiple of encoder_attention_heads 3"),
        ("bart-0", "config.json", {"vocab_size": 10**9}, "vocab_size should be at most 4194304"),
        ("bart-0", "config.json", {"vocab_size": 300}, "has the id .*, but the embedding has 300 rows"),
        ("bart-0", "config.json", {"vocab_size": 1000}, r"should be \[1000, 36\]"),
        ("bart-0", "config.json", {"max_position_embeddings": 10**9}, r"should be \[1000000002, 36\], is \[66, 36\]"),
        ("bart-0", "config.json", {"decoder_layers": 1000}, "missing decoder.layers.2.self_attn"),
        ("bart-0", "config.json", {"encoder_ffn_dim": 10**12}, "should be "),
        ("bart-0", "config.json", {"activation_function": "prelu"}, "activation_function should be one of"),
        ("bart-0", "generation_config.json", {"eos_token_id": 9999}, "eos_token_id should be the id of a token in"),
        ("bart-0", "generation_config.json", {"eos_token_id": 5}, "should put '.*' behind a text, puts '<s> ... </s>'"),
        ("bart-0", "generation_config.json", {"decoder_start_token_id": -1}, "decoder_start_token_id should be an int"),
        ("nllb-0", "config.json", {"encoder_layers": 4}, "missing encoder.layers.3"),
        ("m2m100-0", "vocab.json", {"x": 10**6}, "'x' should have an id below"),
        ("m2m100-0", "tokenizer_config.json", {"language_codes": "all"}, "language_codes should be one of m2m100, wmt"),
        ("pegasus-0", "tokenizer_config.json", {"offset": 10**9}, "offset should be at most 103"),
    ):
        folder = tmp_path_factory.mktemp("case")
        write_translator(name, folder)
        _changed(folder, file, change)
        refusal(folder, fault)


def test_a_table_of_languages_that_is_missing(tmp_path: Path) -> None:
    write_translator("nllb-0", tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    kept = [token for token in tokenizer["added_tokens"] if "_" not in token["content"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"added_tokens": kept, "post_processor": None}))
    refusal(tmp_path, "tokenizer.json: has no tokens of languages, such as __en__, eng_Latn and en_XX")


def test_a_file_that_is_missing(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, missing, fault in (
        ("m2m100-0", "sentencepiece.bpe.model", "no such file"),
        ("m2m100-0", "vocab.json", "tokenizer.json: no such file"),
        ("mbart-0", "sentencepiece.bpe.model", "nor sentencepiece.bpe.model of a MBartTokenizer"),
        ("pegasus-0", "spiece.model", "nor spiece.model of a PegasusTokenizer"),
        ("nllb-0", "model.safetensors", "no such file, nor pytorch_model.bin"),
    ):
        folder = tmp_path_factory.mktemp("case")
        write_translator(name, folder)
        (folder / missing).unlink()
        refusal(folder, fault)
