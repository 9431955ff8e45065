"""Settings of ColBERT's checkpoints, of each program that writes some: what each means, and what it is left out."""

import json
import string
from pathlib import Path
from typing import Any

import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import EncoderText, MultiVectorText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface.token_vectors import complete, read_lengths, read_mask, read_original, read_top

TEXT = EncoderText(b"", 64, mask_token="[MASK]", prompts={"query": "search: ", "document": "[D] "})


def top(**values: Any) -> EncoderText:
    return read_top(JsonObject({"model_type": "MultiVectorEncoder"} | values, "config.json"), TEXT)


def original(folder: Path, **values: Any) -> EncoderText:
    (folder / "artifact.metadata").write_text(json.dumps(values))
    return read_original(Directory(folder), "", TEXT)


def settings(text: EncoderText) -> MultiVectorText:
    assert text.multi_vector is not None
    return text.multi_vector


@pytest.mark.parametrize(
    "values, expected",
    [
        ({}, {}),
        ({"similarity_fn_name": "meanmaxsim"}, {"mean": True}),
        ({"similarity_fn_name": "maxsim"}, {}),
        ({"query_prefix": "[Q] "}, {"markers": ("[Q] ",), "expansion": 32}),
        ({"query_prefix": "", "document_prefix": ""}, {"expansion": 32}),
        ({"query_length": 9}, {"expansion": 9}),
        ({"document_length": 70}, {"document_length": 70, "expansion": 32}),
        ({"query_length": 9, "do_query_expansion": False}, {"query_length": 9}),
        ({"attend_to_expansion_tokens": True}, {"expansion": 32, "expansion_seen": True}),
        ({"attend_to_mask_tokens": True}, {"expansion": 32, "expansion_seen": True}),
        ({"attend_to_expansion_tokens": False, "attend_to_mask_tokens": True}, {"expansion": 32}),
        ({"query_length": 9, "query_expansion": None}, {"query_length": 9, "expansion": 0}),
        (
            {"query_expansion": {"strategy": "fixed", "length": 8, "attend": True, "token": "[X]"}},
            {"expansion": 8, "expansion_cuts": True, "expansion_seen": True, "expansion_token": "[X]"},
        ),
        ({"query_expansion": {"strategy": "min", "length": 8}}, {"expansion": 8, "expansion_cuts": False}),
        ({"model_type": "ColBERT"}, {"skipped": tuple(string.punctuation)}),
        ({"model_type": "ColBERT", "skiplist_words": ["a", ","]}, {"skipped": ("a", ","), "expansion": 32}),
        ({"skiplist_words": ["a"]}, {"expansion": 32}),  # of others their module says it
    ],
)
def test_settings_beside_the_modules(values: dict, expected: dict) -> None:
    text = top(**values)
    assert settings(text) == MultiVectorText(**expected)
    assert text.normalize is (values.get("model_type") == "ColBERT")


def test_prefixes_come_before_the_prompts_and_once() -> None:
    assert top(query_prefix="[Q] ", document_prefix="[D] ").prompts == {"query": "[Q] search: ", "document": "[D] "}


def test_a_transformers_own_lengths_win() -> None:
    before = MultiVectorText(query_length=5, document_length=50, expansion=7)
    found = read_lengths(JsonObject({"query_length": 6}, "sentence_bert_config.json"), before)
    assert found == MultiVectorText(query_length=6, document_length=50, expansion=7)


@pytest.mark.parametrize(
    "values, expected",
    [
        ({}, {}),
        ({"similarity": "l2", "doc_maxlen": 180, "query_maxlen": 16}, {"document_length": 180, "expansion": 16}),
        ({"attend_to_mask_tokens": True}, {"expansion_seen": True}),
        ({"mask_punctuation": False}, {"skipped": ()}),
        ({"query_token_id": "[q]", "doc_token_id": "[d]"}, {"markers": ("[q] ", "[d] ")}),
    ],
)
def test_the_originals_settings(tmp_path: Path, values: dict, expected: dict) -> None:
    usual = {"expansion": 32, "expansion_token": "[MASK]", "skipped": tuple(string.punctuation)}
    usual["markers"] = ("[unused0] ", "[unused1] ")
    text = original(tmp_path, **values)
    assert settings(text) == MultiVectorText(**usual | expected) and text.normalize
    query, document = settings(text).markers
    assert text.prompts == {"query": query, "document": document}


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="similarity should be 'cosine', is 'dot'"):
        original(tmp_path, similarity="dot")
    with pytest.raises(CheckpointError, match="strategy should be one of fixed, min, is 'max'"):
        top(query_expansion={"strategy": "max", "length": 3})
    with pytest.raises(CheckpointError, match="skiplist_words should be a list of strings, is 'a'"):
        top(model_type="ColBERT", skiplist_words="a")
    (tmp_path / "config.json").write_text('{"keep_only_token_ids": [1]}')
    with pytest.raises(CheckpointError, match=r"keep_only_token_ids should be null, is \[1\]"):
        read_mask(Directory(tmp_path), "", TEXT, 8)


def test_the_module_of_tokens_without_a_vector(tmp_path: Path) -> None:
    for values, skipped, tasks in (
        ({}, (), ("document",)),
        ({"skiplist_words": [".", "a"]}, (".", "a"), ("document",)),
        ({"skiplist_words": ["a"], "skiplist_tasks": "query"}, ("a",), ("query",)),
        ({"skiplist_tasks": ["query", "document"]}, (), ("query", "document")),
    ):
        (tmp_path / "config.json").write_text(json.dumps(values))
        text, width = read_mask(Directory(tmp_path), "", TEXT, 8)
        assert (settings(text).skipped, settings(text).skipped_in, width) == (skipped, tasks, 8)


def test_the_mask_fills_queries_where_no_other_token_is_named() -> None:
    filled = complete(top(query_length=9), "here")
    assert settings(filled).expansion_token == "[MASK]"
    named = top(query_expansion={"strategy": "min", "length": 8, "token": "[X]"})
    assert settings(complete(named, "here")).expansion_token == "[X]"
    assert settings(complete(top(query_expansion=None), "here")).expansion_token == ""
    with pytest.raises(CheckpointError, match="here: queries are filled up, but the tokenizer has no mask token"):
        complete(read_top(JsonObject({"model_type": "x", "query_length": 9}, "c"), EncoderText(b"", 64)), "here")
