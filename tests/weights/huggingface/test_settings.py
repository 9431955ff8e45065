"""Settings of encoders: DeBERTa's and NomicBERT's names of them, what is left out, and what is refused."""

import json
import string
from functools import partial
from operator import attrgetter

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.architecture import Convolution, Disentangled, ModelSpec
from fastattn.spec.text_spec import EncoderText, MultiVectorText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Directory
from fastattn.weights.huggingface import token_vectors
from fastattn.weights.huggingface.architectures.deberta import DEBERTA
from fastattn.weights.huggingface.architectures.rotary_bert import NOMIC
from fastattn.weights.huggingface.token_vectors import add_expansion_token, read_lengths, read_mask
from fastattn.weights.tensor_mapping import map_tensors
from tests.architectures.case import SIZES
from tests.architectures.cases import DEBERTA_CONFIG
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.messages import refused

CONFIG = SIZES | DEBERTA_CONFIG
NOTHING = JsonObject({}, "tokenizer_config.json")


def tensors_of(config):
    """Drawn weights under the names that the reader asks for; tests/architectures has those that transformers gives."""
    values = JsonObject(config, "config.json")
    spec = DEBERTA.spec(values)
    parts = map_tensors(DEBERTA.table(values, spec), ModelSpec("encoder", spec))
    return draw_all({name: shape for part in parts.values() for name, shape in part.source_shapes.items()}, 0)


def write_deberta(folder, config, tensors=None):
    folder.mkdir(exist_ok=True)
    return write_folder(folder, config, tensors or tensors_of(config))


def rows_of(folder):
    rows_ND, _ = build_model(weights.read(folder), operations).encode([np.arange(5, 30, dtype=np.int32)])
    return np.asarray(rows_ND)


@pytest.mark.parametrize(
    "stated, form", [("c2p", {"to_content": False}), (["p2c"], {"to_position": False}), ("P2C | c2p", {})]
)
def test_terms_of_the_score(stated, form):
    changes = {"pos_att_type": stated, "share_att_key": False, "norm_rel_ebd": "none", "conv_kernel_size": 3}
    spec = DEBERTA.spec(JsonObject(CONFIG | changes, "config.json"))
    assert spec.positions.disentangled == Disentangled(**form) and spec.convolution == Convolution(3, "tanh")


def test_plain_positions_where_attention_is_not_relative(tmp_path):
    config = CONFIG | {"relative_attention": False, "position_biased_input": True, "pos_att_type": None}
    spec = weights.read(write_deberta(tmp_path, config)).spec.encoder
    assert (spec.positions.kind, spec.positions.limit) == ("table", 160)


def test_a_head_beside_it_and_tensors_without_use_change_nothing(tmp_path):
    plain = write_deberta(tmp_path / "plain", CONFIG)
    named = {f"deberta.{name}": value for name, value in tensors_of(CONFIG).items()}
    unused = (
        "deberta.embeddings.position_embeddings.weight", "deberta.embeddings.position_ids", "pooler.dense.weight",
        "classifier.bias", "cls.predictions.bias", "lm_predictions.lm_head.dense.weight",
        "mask_predictions.LayerNorm.weight",
    )  # fmt: skip
    headed = write_deberta(tmp_path / "headed", CONFIG, named | draw_all(dict.fromkeys(unused, (4, 36)), 1))
    np.testing.assert_array_equal(rows_of(headed), rows_of(plain))


CHANGES = [
    {"pos_att_type": "c2p|p2p"}, {"pos_att_type": ["c2p", 3]}, {"pos_att_type": {"c2p": 1}},
    {"conv_kernel_size": 4}, {"conv_kernel_size": 3, "conv_groups": 2}, {"conv_kernel_size": 3, "conv_act": "prelu"},
    {"attention_head_size": 7}, {"position_buckets": 1}, {"position_buckets": 400},
    {"max_relative_positions": 10**400}, {"hidden_size": 3 * 10**400}, {"position_buckets": 18},
    {"norm_rel_ebd": "none"},
]  # fmt: skip


def test_deberta_settings_that_are_refused(tmp_path):
    for changes in CHANGES:
        with refused(CheckpointError):
            weights.read(write_deberta(tmp_path, CONFIG | changes, tensors_of(CONFIG)))


FIRST = {"n_layer": 2, "n_embd": 24, "n_head": 3, "n_inner": 40, "vocab_size": 50}


LIMIT, SCALED = "positions.limit", {"n_positions": 8192, "rotary_scaling_factor": 2}
# NomicBERT's settings, where one arrives, what is there.
NOMICS = [
    ({}, "positions.rotary.base", 10_000), ({"rotary_emb_base": 1000}, "positions.rotary.base", 1000),
    ({}, "feed_forward.activation", "swish"), ({"activation_function": "geglu"}, "feed_forward.activation", "gelu"),
    ({}, "norms.epsilon", 1e-12), ({"layer_norm_epsilon": 1e-5}, "norms.epsilon", 1e-5), ({}, "token_types", 2),
    ({"type_vocab_size": 0}, "token_types", 0), ({}, LIMIT, 2048), ({"n_positions": 64}, LIMIT, 64),
    ({"n_positions": 8192}, LIMIT, 8192), (SCALED, LIMIT, 2048),  # as far as it was trained
    (SCALED | {"max_trained_positions": 4096}, LIMIT, 4096), (SCALED | {"n_positions": 512}, LIMIT, 512),
]  # fmt: skip


@pytest.mark.parametrize("stated, place, expected", NOMICS)
def test_a_setting_of_nomic(stated, place, expected):
    assert attrgetter(place)(NOMIC.spec(JsonObject(FIRST | stated, "config.json"))) == expected


TEXT = EncoderText(b"", 64, mask_token="[MASK]", prompts={"query": "search: ", "document": "[D] "})


def top(base=TEXT, **values):
    return token_vectors.read_top_config(JsonObject({"model_type": "MultiVectorEncoder"} | values, "config.json"), base)


def original(folder, **values):
    (folder / "artifact.metadata").write_text(json.dumps(values))
    return token_vectors.read_authors_text(Directory(folder), "", TEXT)


FIXED = {"strategy": "fixed", "length": 8, "attend": True, "token": "[X]"}
AS_FIXED = {"expansion": 8, "expansion_cuts": True, "expansion_seen": True, "expansion_token": "[X]"}
BESIDE = [
    ({}, {}), ({"similarity_fn_name": "meanmaxsim"}, {"mean": True}), ({"similarity_fn_name": "maxsim"}, {}),
    ({"query_prefix": "[Q] "}, {"markers": ("[Q] ",), "expansion": 32}),
    ({"query_prefix": "", "document_prefix": ""}, {"expansion": 32}), ({"query_length": 9}, {"expansion": 9}),
    ({"document_length": 70}, {"document_length": 70, "expansion": 32}),
    ({"query_length": 9, "do_query_expansion": False}, {"query_length": 9}),
    ({"attend_to_expansion_tokens": True}, {"expansion": 32, "expansion_seen": True}),
    ({"attend_to_mask_tokens": True}, {"expansion": 32, "expansion_seen": True}),
    ({"attend_to_expansion_tokens": False, "attend_to_mask_tokens": True}, {"expansion": 32}),
    ({"query_length": 9, "query_expansion": None}, {"query_length": 9, "expansion": 0}),
    ({"query_expansion": FIXED}, AS_FIXED),
    ({"query_expansion": {"strategy": "min", "length": 8}}, {"expansion": 8, "expansion_cuts": False}),
    ({"model_type": "ColBERT"}, {"skipped": tuple(string.punctuation)}),
    ({"model_type": "ColBERT", "skiplist_words": ["a", ","]}, {"skipped": ("a", ","), "expansion": 32}),
    ({"skiplist_words": ["a"]}, {"expansion": 32}),  # of others their module says it
]  # fmt: skip


@pytest.mark.parametrize("values, expected", BESIDE)
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


ORIGINALS = [
    ({}, {}), ({"mask_punctuation": False}, {"skipped": ()}),
    ({"attend_to_mask_tokens": True}, {"expansion_seen": True}),
    ({"similarity": "l2", "doc_maxlen": 180, "query_maxlen": 16}, {"document_length": 180, "expansion": 16}),
    ({"query_token_id": "[q]", "doc_token_id": "[d]"}, {"markers": ("[q] ", "[d] ")}),
]  # fmt: skip


@pytest.mark.parametrize("values, expected", ORIGINALS)
def test_the_originals_settings(tmp_path, values, expected):
    usual = {"expansion": 32, "expansion_token": "[MASK]", "skipped": tuple(string.punctuation)}
    text = original(tmp_path, **values)
    expected = MultiVectorText(**usual | {"markers": ("[unused0] ", "[unused1] ")} | expected)
    assert text.multi_vector == expected and text.normalize
    assert text.prompts == dict(zip(("query", "document"), expected.markers))


def test_what_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"keep_only_token_ids": [1]}')
    for read, name in (
        (partial(original, tmp_path, similarity="dot"), "similarity"),
        (partial(top, query_expansion={"strategy": "max", "length": 3}), "strategy"),
        (partial(top, model_type="ColBERT", skiplist_words="a"), "skiplist_words"),
        (partial(read_mask, Directory(tmp_path), "", TEXT, 8), "keep_only_token_ids"),
        (
            partial(add_expansion_token, top(query_length=9, base=EncoderText(b"", 64)), NOTHING, "here"),
            "no mask token",
        ),
    ):
        with refused(CheckpointError, name):
            read()


def test_the_module_of_tokens_without_a_vector(tmp_path):
    for values, skipped, tasks in (
        ({}, (), ("document",)), ({"skiplist_words": [".", "a"]}, (".", "a"), ("document",)),
        ({"skiplist_words": ["a"], "skiplist_tasks": "query"}, ("a",), ("query",)),
        ({"skiplist_tasks": ["query", "document"]}, (), ("query", "document")),
    ):  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(values))
        text, width = read_mask(Directory(tmp_path), "", TEXT, 8)
        assert (text.multi_vector.skipped, text.multi_vector.skipped_in, width) == (skipped, tasks, 8)


def test_the_mask_fills_queries_where_no_other_token_is_named():
    named = {"query_expansion": {"strategy": "min", "length": 8, "token": "[X]"}}
    for values, token in (({"query_length": 9}, "[MASK]"), (named, "[X]"), ({"query_expansion": None}, "")):
        assert add_expansion_token(top(**values), NOTHING, "here").multi_vector.expansion_token == token
