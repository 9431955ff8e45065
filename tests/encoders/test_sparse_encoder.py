"""SparseEncoder: vectors by the published formula, as sentence-transformers makes them, and what is done with them."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn.encoders import sparse_encoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.errors import CheckpointError, FastattnError, InputError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.text_spec import SparseText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.vectors.sparse import SparseVectors
from fastattn.weights import read
from tests import GOLDENS
from tests.encoders.classifiers import by_reference, some_texts, write_masked, write_sparse
from tests.weights.native.folders import converted, set_field
from tests.weights.refusals import refusal

slow = partial(by_reference, SparseEncoder)

TEXTS = ["w5 w6 w7", "", "w40", "w5 " * 60, "w9 w8 w9"]


def logits(folder: Path) -> list[np.ndarray]:
    """What the head gives the tokens of each of TEXTS, [T, V]."""
    checkpoint = read(folder)
    ids_B = HuggingFaceTokenizer(checkpoint.text.tokenizer, 40).encode(TEXTS)
    model: Any = build_model(checkpoint, reference)
    rows_ND, starts_B1 = model.encode(ids_B)
    return np.split(model.head(rows_ND, starts_B1).astype(np.float64), starts_B1[1:-1])


def test_of_equal_numbers_the_lower_columns_are_kept() -> None:
    peaks_BV = np.array([[2, 0, 3, 2, 2], [1, 1, 1, 1, 1]], np.float32)
    head: Any = SimpleNamespace(spec=SimpleNamespace(outputs=5), peaks=lambda rows_ND, starts_B1: peaks_BV)
    found = sparse_encoder.SparseHead(head, SparseText()).rows(np.empty((2, 1)), np.arange(3), 2)
    assert [columns.tolist() for columns, _ in found] == [[0, 2], [0, 1]]


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({}, lambda x: np.log1p(x).max(axis=0)),
        ({"activation_function": "log1p_relu"}, lambda x: np.log1p(np.log1p(x)).max(axis=0)),
        ({"pooling_strategy": "sum"}, lambda x: np.log1p(x).sum(axis=0)),
    ],
    ids=["max", "twice", "sum"],
)
def test_vectors_are_those_of_the_formula(settings: dict, make: Callable, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sparse_encoder, "SUM_ROWS", 3)
    encoder = slow(write_sparse(tmp_path, **settings))
    assert (encoder.dimension, encoder.max_length) == (61, 40)
    found = encoder.encode(TEXTS)
    expected = np.array([make(np.maximum(logits_TV, 0)) for logits_TV in logits(tmp_path)])
    np.testing.assert_allclose(found.to_dense(), expected, rtol=1e-5, atol=2e-5)
    assert found.shape == (5, 61) and len(found) == 5
    assert (found.data.dtype, found.indices.dtype, found.indptr.dtype) == (np.float32, np.int32, np.int64)
    assert (found.data > 0).all()
    for number in range(len(found)):
        assert (np.diff(found.row(number)[0]) > 0).all()


def test_a_folder_of_a_masked_language_model_is_a_sparse_encoder(tmp_path: Path) -> None:
    plain, made = slow(write_masked(tmp_path / "a")), slow(write_sparse(tmp_path / "b"))
    vectors = plain.encode(TEXTS)
    np.testing.assert_array_equal(vectors.to_dense(), made.encode(TEXTS).to_dense())
    dense_BV = vectors.to_dense()
    for encoder in (plain, made):
        np.testing.assert_allclose(encoder.similarity(vectors, vectors), dense_BV @ dense_BV.T, rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_neighbours_threads_and_blocks_change_no_bit(precision: str, tmp_path: Path, monkeypatch: Any) -> None:
    checkpoint, texts = read(write_masked(tmp_path)), some_texts(80)
    encoder = SparseEncoder.from_checkpoint(checkpoint, precision, ops=operations)
    found = encoder.encode(texts).to_dense()
    assert encoder.precision == precision
    np.testing.assert_array_equal(encoder.encode(texts[::-1]).to_dense(), found[::-1])
    np.testing.assert_array_equal(encoder.encode(texts[7]).to_dense(), found[7:8])
    alone = SparseEncoder.from_checkpoint(checkpoint, precision, 1, operations)
    np.testing.assert_array_equal(alone.encode(texts).to_dense(), found)
    monkeypatch.setattr(sparse_encoder, "MOST_NUMBERS", 100)
    np.testing.assert_array_equal(encoder.encode(texts).to_dense(), found)
    exact = slow(tmp_path).encode(texts).to_dense()
    least = {"float32": 0.999999, "bfloat16": 0.999, "int8": 0.98}[precision]
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
    assert ((found * exact).sum(axis=1) / lengths).min() > least


def test_logits_of_a_text_are_not_stored() -> None:
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


def test_the_greatest_numbers_are_kept(tmp_path: Path) -> None:
    encoder = slow(write_sparse(tmp_path, {"max_active_dims": 4}))
    whole = slow(write_masked(tmp_path / "whole")).encode(TEXTS).to_dense()
    for vectors, most in ((encoder.encode(TEXTS), 4), (encoder.encode(TEXTS, max_active_dims=2), 2)):
        for found, full in zip(vectors.to_dense(), whole):
            least = np.sort(full)[-most]
            np.testing.assert_array_equal(found, np.where(full >= least, full, 0))


def test_prompts_are_put_before_texts(tmp_path: Path) -> None:
    encoder = slow(write_sparse(tmp_path, {"prompts": {"query": "w11 ", "document": None}}))
    assert encoder.prompts == {"query": "w11 ", "document": ""}
    expected = encoder.encode("w11 w5").to_dense()
    np.testing.assert_array_equal(encoder.encode_query("w5").to_dense(), expected)
    np.testing.assert_array_equal(encoder.encode("w5", prompt="w11 ").to_dense(), expected)
    np.testing.assert_array_equal(encoder.encode_document(["w5"]).to_dense(), encoder.encode(["w5"]).to_dense())


def test_vectors_are_decoded_to_tokens(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_those_of_dense_vectors(name: str, tmp_path: Path) -> None:
    from fastattn.vectors.search import similarity

    encoder = slow(write_sparse(tmp_path, {"similarity_fn_name": name}))
    a, b = encoder.encode(TEXTS), encoder.encode(TEXTS[1:3])
    found = encoder.similarity(a, b)
    np.testing.assert_allclose(found, similarity(a.to_dense(), b.to_dense(), name), rtol=1e-4, atol=2e-3)
    assert found.dtype == np.float32


def test_scipy_gets_the_same_arrays(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    encoder = slow(write_masked(tmp_path))
    found, vectors = encoder.encode(TEXTS, format="scipy"), encoder.encode(TEXTS)
    np.testing.assert_array_equal(found.toarray(), vectors.to_dense())
    np.testing.assert_array_equal(encoder.similarity(found, vectors), encoder.similarity(vectors, vectors))
    assert encoder.decode(found) == encoder.decode(vectors)


def test_without_scipy_its_format_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(FastattnError, match="scipy is not installed"):
        slow(write_masked(tmp_path)).encode(TEXTS, format="scipy")


def _vectors(indices: list[int], indptr: list[int], width: int = 61) -> SparseVectors:
    data = np.ones(len(indices), np.float32)
    return SparseVectors(data, np.array(indices, np.int32), np.array(indptr), (1, width))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros((2, 61)), "sparse vectors are expected, as encode returns them, got ndarray"),
        (_vectors([3], [0, 1], 60), "sparse vectors of 61 columns are expected, got 60"),
        (_vectors([61], [0, 1]), "sparse vectors of 61 columns have one numbered 61"),
        (_vectors([3], [0, 2]), "the arrays of sparse vectors do not fit each other"),
        (_vectors([3, 4], [0, 1, 2]), "the arrays of sparse vectors do not fit each other"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        slow(write_masked(tmp_path)).decode(vectors)


def test_an_encoder_takes_no_folder_of_a_sparse_encoder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="made for sparse vectors: use fastattn.SparseEncoder"):
        Encoder.from_checkpoint(read(write_sparse(tmp_path / "sparse")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling_strategy": "mean"}, "pooling_strategy should be one of max, sum, is 'mean'"),
        ({"activation_function": "gelu"}, "activation_function should be one of relu, log1p_relu, is 'gelu'"),
    ],
)
def test_unknown_settings_are_refused(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(write_sparse(tmp_path, **settings))


def test_settings_survive_a_conversion(tmp_path: Path) -> None:
    original = read(write_sparse(tmp_path / "theirs", {"max_active_dims": 4}, activation_function="log1p_relu"))
    folder = converted(original, tmp_path / "ours", "float32")
    assert read(folder).text == original.text
    expected = SparseEncoder.from_checkpoint(original, ops=reference).encode(TEXTS).to_dense()
    np.testing.assert_array_equal(slow(folder).encode(TEXTS).to_dense(), expected)


def test_a_converted_folder_that_lies_is_refused(tmp_path: Path) -> None:
    original = read(write_sparse(tmp_path / "theirs", {"max_active_dims": 4}))
    folder = converted(original, tmp_path / "ours", "float32")
    set_field(folder, ("text", "sparse", "most"), 0)
    refusal(folder, "text.sparse.most should be at least 1")


def test_the_tied_embedding_is_in_memory_once(tmp_path: Path) -> None:
    model: Any = build_model(read(write_masked(tmp_path)), operations)
    assert model.encoder.stack.embedding.table is model.head.output


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("top", [{}, {"max_active_dims": 3, "prompts": {"query": "w9 "}}])
@pytest.mark.parametrize("settings", [{}, {"pooling_strategy": "sum"}, {"activation_function": "log1p_relu"}])
def test_vectors_are_those_of_sentence_transformers(top: dict, settings: dict, tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers", minversion="6")
    peer = theirs.SparseEncoder(str(write_sparse(tmp_path, top, **settings)), device="cpu")
    encoder = slow(tmp_path)
    for name in ("encode_query", "encode_document"):
        expected = getattr(peer, name)(TEXTS)
        found = getattr(encoder, name)(TEXTS)
        np.testing.assert_allclose(found.to_dense(), expected.to_dense().numpy(), rtol=1e-5, atol=3e-5)
        np.testing.assert_allclose(encoder.similarity(found, found), peer.similarity(expected, expected), rtol=1e-4)
        assert [[token for token, _ in one] for one in encoder.decode(found, 1)] == [
            [token for token, _ in one] for one in peer.decode(expected, top_k=1)
        ]


def test_splade_tiny_as_its_own_stack_computes_it(pulled: Callable[[str], Path]) -> None:
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
