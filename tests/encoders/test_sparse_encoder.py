"""SparseEncoder: vectors by the published formula, as sentence-transformers makes them, and what is done with them."""

import json
import shutil
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn import MultiVectorEncoder, SparseEncoder
from fastattn.encoders import multi_vector_encoder, sparse_encoder
from fastattn.errors import CheckpointError, FastattnError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.text_spec import MAX_EXPANSION, SparseText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.vectors.search import similarity
from fastattn.weights import read
from tests import GOLDENS
from tests.encoders.classifiers import (
    EXPANSION,
    WIDTH,
    by_reference,
    projection,
    some_texts,
    write_masked,
    write_original,
    write_pylate,
    write_sparse,
    write_today,
)
from tests.messages import refused
from tests.weights.native.folders import converted, set_field

slow = partial(by_reference, SparseEncoder)

TEXTS = ["w5 w6 w7", "", "w40", "w5 " * 60, "w9 w8 w9"]


LEFT = {"padding_side": "left"}


def logits(folder):
    """What the head gives the tokens of each of TEXTS, [T, V]."""
    checkpoint = read(folder)
    ids_B = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40).encode(TEXTS)
    model = build_model(checkpoint, reference)
    rows_ND, starts_B1 = model.encode(ids_B)
    return np.split(model.head(rows_ND, starts_B1).astype(np.float64), starts_B1[1:-1])


def test_of_equal_numbers_the_lower_columns_are_kept():
    peaks_BV = np.array([[2, 0, 3, 2, 2], [1, 1, 1, 1, 1]], np.float32)
    head = SimpleNamespace(spec=SimpleNamespace(outputs=5), peaks=lambda rows_ND, starts_B1: peaks_BV, find_fault=str)
    found = sparse_encoder.SparseHead(head, SparseText()).sparse_vectors(np.empty((2, 1)), np.arange(3), 2)
    assert [columns.tolist() for columns, _ in found] == [[0, 2], [0, 1]]


FORMULAS = [
    ({}, lambda x: np.log1p(x).max(axis=0)),
    ({"activation_function": "log1p_relu"}, lambda x: np.log1p(np.log1p(x)).max(axis=0)),
    ({"pooling_strategy": "sum"}, lambda x: np.log1p(x).sum(axis=0)),
]


def test_vectors_are_those_of_the_formula(tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_encoder, "SUM_ROWS", 3)
    for settings, make in FORMULAS:
        encoder = slow(write_sparse(tmp_path, **settings))
        assert (encoder.dimension, encoder.max_length) == (61, 40)
        found = encoder.encode(TEXTS)
        expected = np.array([make(np.maximum(logits_TV, 0)) for logits_TV in logits(tmp_path)])
        np.testing.assert_allclose(found.to_dense(), expected, rtol=1e-5, atol=2e-5)
        assert (found.data.dtype, found.indices.dtype, found.indptr.dtype) == (np.float32, np.int32, np.int64)
        assert found.shape == (5, 61) and len(found) == 5 and (found.data > 0).all()
        for number in range(len(found)):
            assert (np.diff(found.row(number)[0]) > 0).all()


def test_a_folder_of_a_masked_language_model_is_a_sparse_encoder(tmp_path):
    prompts = {"prompts": {"query": "w11 ", "document": None}}
    plain, made = slow(write_masked(tmp_path / "a")), slow(write_sparse(tmp_path / "b", prompts))
    vectors = plain.encode(TEXTS)
    dense_BV = vectors.to_dense()
    np.testing.assert_array_equal(dense_BV, made.encode_document(TEXTS).to_dense())
    for encoder in (plain, made):
        np.testing.assert_allclose(encoder.similarity(vectors, vectors), dense_BV @ dense_BV.T, rtol=1e-5)
    assert made.prompts == {"query": "w11 ", "document": ""}
    np.testing.assert_array_equal(made.encode_query("w5").to_dense(), plain.encode("w11 w5").to_dense())
    model = build_model(read(tmp_path / "a"), operations)
    assert model.encoder.stack.embedding.table is model.head.output, "in memory once"


def test_logits_of_a_text_are_not_stored():
    rng = np.random.default_rng(0)
    packed = operations.pack_linear(rng.standard_normal((20_000, 16), np.float32))
    x_ND, starts_B1 = rng.standard_normal((400, 16), np.float32), np.array([0, 399, 400])
    operations.project_peaks(x_ND, starts_B1, packed)  # compiled and loaded
    tracemalloc.start()
    try:
        operations.project_peaks(x_ND, starts_B1, packed)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * 20_000 * 4  # of 400 rows they would be 400 times as large


def test_the_greatest_numbers_are_kept(tmp_path):
    encoder = slow(write_sparse(tmp_path, {"max_active_dims": 4}))
    whole = slow(write_masked(tmp_path / "whole")).encode(TEXTS).to_dense()
    for vectors, most in ((encoder.encode(TEXTS), 4), (encoder.encode(TEXTS, max_active_dims=2), 2)):
        for found, full in zip(vectors.to_dense(), whole):
            least = np.sort(full)[-most]
            np.testing.assert_array_equal(found, np.where(full >= least, full, 0))


def test_vectors_are_decoded_to_tokens(tmp_path):
    encoder = slow(write_masked(tmp_path))
    vectors = encoder.encode(TEXTS)
    for dense_V, decoded in zip(vectors.to_dense(), encoder.decode(vectors)):
        numbers = [number for _, number in decoded]
        assert numbers == sorted(dense_V[dense_V > 0].tolist(), reverse=True)
        named = {5: "w5", 0: "[PAD]", 4: "[MASK]"}
        for column, token in named.items():
            if dense_V[column]:
                assert (token, dense_V[column]) in decoded
    assert encoder.decode(vectors, 2) == [decoded[:2] for decoded in encoder.decode(vectors)]
    assert encoder.decode(encoder.encode([])) == []


def test_similarities_are_those_of_dense_vectors(tmp_path):
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        encoder = slow(write_sparse(tmp_path, {"similarity_fn_name": name}))
        a, b = encoder.encode(TEXTS), encoder.encode(TEXTS[1:3])
        found = encoder.similarity(a, b)
        np.testing.assert_allclose(found, similarity(a.to_dense(), b.to_dense(), name), rtol=1e-4, atol=2e-3)
        assert found.dtype == np.float32


def test_scipy_gets_the_same_arrays(tmp_path, monkeypatch):
    encoder = slow(write_masked(tmp_path))
    with monkeypatch.context() as without, refused(FastattnError, "scipy"):
        without.setitem(sys.modules, "scipy.sparse", None)
        encoder.encode(TEXTS, format="scipy")
    pytest.importorskip("scipy")
    found, vectors = encoder.encode(TEXTS, format="scipy"), encoder.encode(TEXTS)
    np.testing.assert_array_equal(found.toarray(), vectors.to_dense())
    np.testing.assert_array_equal(encoder.similarity(found, vectors), encoder.similarity(vectors, vectors))
    assert encoder.decode(found) == encoder.decode(vectors)


def test_settings_survive_a_conversion(tmp_path):
    original = read(write_sparse(tmp_path / "theirs", {"max_active_dims": 4}, activation_function="log1p_relu"))
    folder = converted(original, tmp_path / "ours", "float32")
    assert read(folder).text == original.text
    expected = SparseEncoder.from_checkpoint(original, ops=reference).encode(TEXTS).to_dense()
    np.testing.assert_array_equal(slow(folder).encode(TEXTS).to_dense(), expected)


def test_splade_tiny_as_its_own_stack_computes_it(pulled):
    encoder = SparseEncoder(pulled("splade-tiny"), precision="float32")
    goldens = json.loads((GOLDENS / "splade_tiny.json").read_text(encoding="utf-8"))["vectors"]
    vectors = encoder.encode([golden["text"] for golden in goldens])
    assert vectors.shape == (len(goldens), 30522)
    for number, golden in enumerate(goldens):
        columns, numbers = vectors.row(number)
        assert len(columns) == golden["nonzero"]
        np.testing.assert_allclose(numbers.sum(dtype=np.float64), golden["sum"], rtol=1e-5)
        np.testing.assert_allclose(vectors.to_dense()[number, golden["columns"]], golden["numbers"], atol=2e-5)
    assert [token for token, _ in encoder.decode(vectors, 2)[0]] == ["man", "food"]


SOME = ["w5 w6 . w7", "", "w40", "w5 w6 " * 60, "w9 [unused0] w8 w9"]
FORMS = {"today": write_today, "pylate": write_pylate, "original": write_original}
# Lengths of queries of SOME, and of documents, whose tokens w6 and "." get no vector.
SHAPES = {
    "today": ([9] * 5, [6, 4, 5, 8, 8]),
    "pylate": ([10] * 5, [6, 3, 4, 10, 7]),
    "original": ([8] * 5, [6, 3, 4, 14, 7]),
}


def load(folder, ops=operations, **how):
    return MultiVectorEncoder.from_checkpoint(read(folder), ops=ops, **how)


def test_every_form_is_read_and_survives_a_conversion(tmp_path):
    for form, write in FORMS.items():
        original = read(write(tmp_path / form))
        encoder = MultiVectorEncoder.from_checkpoint(original)
        again = load(converted(original, tmp_path / f"our {form}", "float32"))
        assert encoder.dimension == WIDTH
        for name, lengths in zip(("encode_query", "encode_document"), SHAPES[form]):
            found = getattr(encoder, name)(SOME)
            assert [len(vectors) for vectors in found] == lengths
            for vectors, ours in zip(found, getattr(again, name)(SOME), strict=True):
                assert vectors.dtype == np.float32 and vectors.shape[1:] == (WIDTH,)
                np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
                np.testing.assert_array_equal(vectors, ours)


def test_a_converted_folder_that_lies_is_refused(tmp_path):
    for write, section, wrong in (
        (write_today, "multi_vector", {"expansion": -1, "query_length": 0, "skipped": "abc"}),
        (write_sparse, "sparse", {"most": 0}),
    ):
        folder = converted(read(write(tmp_path / section)), tmp_path / f"our {section}", "float32")
        for field, value in wrong.items():
            changed = shutil.copytree(folder, tmp_path / field)
            set_field(changed, ("text", section, field), value)
            with refused(CheckpointError, f"text.{section}.{field} should be"):
                read(changed)


@pytest.mark.parametrize("seen", [False, True])
def test_what_fills_a_query_is_attended_to_where_the_checkpoint_says_so(tmp_path, seen):
    """And stands where the tokenizer pads."""
    own = {"query_expansion": EXPANSION | {"attend": seen}}
    encoder = load(write_today(tmp_path / "right", **own))
    filled, alone = encoder.encode_query("w5 w7"), encoder.encode("w11 w5 w7")
    assert (len(filled), len(alone)) == (9, 5)
    assert np.array_equal(filled[:5], alone) != seen
    assert not np.array_equal(filled[5], filled[6])  # masks at different places
    encoder = load(write_today(tmp_path / "left", **own, processor_kwargs=LEFT))
    (ids,) = encoder._tokenizer.encode(["w11 w5 w7"])
    ids = np.append([encoder._tokenizer.index("[MASK]")] * 4, ids).astype(np.int32)
    rows_ND, _ = encoder._loaded.model.encode([ids], None, [9 if seen else -5])
    np.testing.assert_allclose(encoder.encode_query("w5 w7"), projected(rows_ND), atol=1e-5)


def projected(rows_ND):
    vectors = rows_ND @ projection().T
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_lengths_of_queries(tmp_path):
    for own, lengths in (
        ({"query_expansion": EXPANSION | {"strategy": "min", "length": 6}}, [7, 6, 6, 9, 7]),
        ({"query_expansion": EXPANSION | {"strategy": "min"}, "query_length": None}, [9, 9, 9, 40, 9]),
        ({"query_expansion": None}, [7, 3, 4, 9, 7]),
        ({"query_expansion": None, "query_length": 5}, [5, 3, 4, 5, 5]),
        ({"query_expansion": EXPANSION | {"token": "w20"}}, [9] * 5),
    ):
        encoder = load(write_today(tmp_path, **own), reference)
        assert [len(vectors) for vectors in encoder.encode_query(SOME)] == lengths, own


def test_vectors_of_tokens_are_projected_hidden_states_and_markers_are_single_tokens(tmp_path):
    encoder = load(write_original(tmp_path))
    (ids,) = encoder._tokenizer.encode(["w5 w7 w8"])
    rows_ND, _ = encoder._loaded.model.encode([ids])
    np.testing.assert_allclose(encoder.encode("w5 w7 w8"), projected(rows_ND), atol=1e-5)
    assert encoder.prompts == {"query": "[unused0] ", "document": "[unused1] "}
    assert len(encoder.encode("[unused0] w5")) == 4
    np.testing.assert_array_equal(encoder.encode_query("w5")[:4], encoder.encode("[unused0] w5"))


def test_skipped_tokens(tmp_path):
    encoder = load(write_today(tmp_path, mask={"skiplist_tasks": ["query"]}))
    assert len(encoder.encode_document("w6 w5")) == 6 and len(encoder.encode_query("w6 w5")) == 8
    everything = load(write_today(tmp_path / "whole", mask={"skiplist_words": None}))
    skipping = load(write_today(tmp_path / "kept"))
    whole, kept = everything.encode_document("w6 w5 w6"), skipping.encode_document("w6 w5 w6")
    assert len(whole) == 7
    np.testing.assert_array_equal(kept, whole[[0, 1, 2, 4, 6]])
    # Without a task it is a document too, but for its prompt.
    assert len(everything.encode("w6 w5 w6")) - len(skipping.encode("w6 w5 w6")) == 2


def test_a_score_is_the_sum_of_greatest_products(tmp_path, monkeypatch):
    encoder = load(write_today(tmp_path))
    queries, documents = encoder.encode_query(SOME[:3]), encoder.encode_document(some_texts(50))
    expected = [[(query @ document.T).max(axis=1).sum() for document in documents] for query in queries]
    scores = encoder.score(queries, documents)
    assert scores.shape == (3, 50) and scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(encoder.score(queries[1], documents), scores[1])
    np.testing.assert_array_equal(encoder.score(queries[1], documents[7:9]), scores[1, 7:9])
    monkeypatch.setattr(multi_vector_encoder, "SCORED_ROWS", 10)
    np.testing.assert_array_equal(encoder.score(queries, documents), scores)
    nothing = np.empty((0, WIDTH), np.float32)
    assert encoder.score(queries, [nothing, documents[0]]).tolist() == [[-np.inf, score] for score in scores[:, 0]]
    assert encoder.score([nothing], documents).tolist() == [[0] * 50]
    assert encoder.score(queries, []).shape == (3, 0)
    mean = load(write_today(tmp_path / "mean", {"similarity_fn_name": "meanmaxsim"}))
    np.testing.assert_allclose(mean.score(queries, documents), scores / 9, rtol=1e-6)


def test_a_model_without_a_limit_of_positions_has_one_of_what_fills_queries(tmp_path):
    """They are filled before anything else looks at them."""
    checkpoint = read(write_today(tmp_path))
    stack, text = checkpoint.spec.encoder, checkpoint.text
    spec = replace(checkpoint.spec, encoder=replace(stack, positions=replace(stack.positions, limit=0)))
    for length in (MAX_EXPANSION + 1, 10**13):
        settings = replace(text.multi_vector, expansion=length)
        changed = replace(checkpoint, spec=spec, input=replace(text, multi_vector=settings))
        with refused(CheckpointError, str(length)):
            MultiVectorEncoder.from_checkpoint(changed)


def test_bad_files_are_one_clear_line(tmp_path):
    expansion, today, original = {"strategy": "fixed", "length": 9}, write_today, write_original
    bad = [
        *((write_sparse, one) for one in ({"pooling_strategy": "mean"}, {"activation_function": "gelu"})),
        *((today, {"mask": mask}) for mask in ({"keep_only_token_ids": [3]}, {"skiplist_words": "abc"})),
        *((today, {"query_expansion": one}) for one in (expansion | {"strategy": "some"}, {"strategy": "fixed"})),
        *((today, {"query_expansion": EXPANSION | one}) for one in ({"token": "none"}, {"length": 41})),
        *((today, one) for one in ({"document_length": 2}, {"query_length": "long"})),
        (write_pylate, {"skiplist_words": [5]}),
        *((original, {"metadata": one}) for one in ({"similarity": "fish"}, {"query_maxlen": 0})),
        (original, {"hidden_size": 39}),
        (today, {"query_expansion": EXPANSION | {"strategy": "min"}, "processor_kwargs": LEFT}),
    ]
    for number, (write, how) in enumerate(bad):
        with refused(CheckpointError):
            load(write(tmp_path / str(number), **how), reference)


@pytest.mark.filterwarnings("ignore")  # theirs
def test_vectors_of_tokens_are_those_of_sentence_transformers(tmp_path):
    theirs = pytest.importorskip("sentence_transformers", minversion="6.2")
    for attend in (False, True):
        expansion = EXPANSION | {"attend": attend}
        folders = [
            write_today(tmp_path / f"today {attend}", query_expansion=expansion),
            write_today(tmp_path / f"left {attend}", query_expansion=expansion, processor_kwargs=LEFT),
            write_pylate(tmp_path / f"pylate {attend}", attend_to_expansion_tokens=attend),
            write_original(tmp_path / f"original {attend}", {"attend_to_mask_tokens": attend}),
        ]
        for folder in folders:
            peer, encoder = theirs.MultiVectorEncoder(str(folder), device="cpu"), load(folder)
            both = []
            for name in ("encode_query", "encode_document"):
                # One at a time: what pads a batch on the left moves their positions.
                expected = getattr(peer, name)(SOME, convert_to_numpy=True, batch_size=1)
                found = getattr(encoder, name)(SOME)
                both.append((expected, found))
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-5)
            wanted, scored = zip(*both)
            np.testing.assert_allclose(encoder.score(*scored), peer.similarity(*wanted).numpy(), rtol=1e-5)
