"""Settings of ColBERT's checkpoints, of each program that writes some: what each means, and what it is left out."""

import json
import string
from functools import partial

import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import EncoderText, MultiVectorText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface.token_vectors import complete, read_lengths, read_mask, read_original, read_top
from tests.messages import refused

TEXT = EncoderText(b"", 64, mask_token="[MASK]", prompts={"query": "search: ", "document": "[D] "})


def top(base=TEXT, **values):
    return read_top(JsonObject({"model_type": "MultiVectorEncoder"} | values, "config.json"), base)


def original(folder, **values):
    (folder / "artifact.metadata").write_text(json.dumps(values))
    return read_original(Directory(folder), "", TEXT)


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
def test_settings_beside_the_modules(values, expected):
    text = top(**values)
    assert text.multi_vector == MultiVectorText(**expected)
    assert text.normalize is (values.get("model_type") == "ColBERT")


def test_prefixes_come_before_the_prompts_and_once():
    assert top(query_prefix="[Q] ", document_prefix="[D] ").prompts == {"query": "[Q] search: ", "document": "[D] "}


def test_a_transformers_own_lengths_win():
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
def test_the_originals_settings(tmp_path, values, expected):
    usual = {"expansion": 32, "expansion_token": "[MASK]", "skipped": tuple(string.punctuation)}
    usual["markers"] = ("[unused0] ", "[unused1] ")
    text = original(tmp_path, **values)
    assert text.multi_vector == MultiVectorText(**usual | expected) and text.normalize
    query, document = text.multi_vector.markers
    assert text.prompts == {"query": query, "document": document}


def test_what_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"keep_only_token_ids": [1]}')
    for read, name in (
        (partial(original, tmp_path, similarity="dot"), "similarity"),
        (partial(top, query_expansion={"strategy": "max", "length": 3}), "strategy"),
        (partial(top, model_type="ColBERT", skiplist_words="a"), "skiplist_words"),
        (partial(read_mask, Directory(tmp_path), "", TEXT, 8), "keep_only_token_ids"),
        (partial(complete, top(query_length=9, base=EncoderText(b"", 64)), "here"), "no mask token"),
    ):
        with refused(CheckpointError, name):
            read()


def test_the_module_of_tokens_without_a_vector(tmp_path):
    for values, skipped, tasks in (
        ({}, (), ("document",)),
        ({"skiplist_words": [".", "a"]}, (".", "a"), ("document",)),
        ({"skiplist_words": ["a"], "skiplist_tasks": "query"}, ("a",), ("query",)),
        ({"skiplist_tasks": ["query", "document"]}, (), ("query", "document")),
    ):
        (tmp_path / "config.json").write_text(json.dumps(values))
        text, width = read_mask(Directory(tmp_path), "", TEXT, 8)
        assert (text.multi_vector.skipped, text.multi_vector.skipped_in, width) == (skipped, tasks, 8)


def test_the_mask_fills_queries_where_no_other_token_is_named():
    named = {"query_expansion": {"strategy": "min", "length": 8, "token": "[X]"}}
    for values, token in (({"query_length": 9}, "[MASK]"), (named, "[X]"), ({"query_expansion": None}, "")):
        assert complete(top(**values), "here").multi_vector.expansion_token == token
