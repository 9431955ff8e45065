"""SparseEncoder: vectors by the published formula, as sentence-transformers makes them, and what is done with them."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn.encoders import sparse_encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.errors import CheckpointError, FastattnError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.text_spec import SparseText
from fastattn.text.huggingface import HuggingFaceTokenizer
from fastattn.vectors.search import similarity
from fastattn.weights import read
from tests import GOLDENS
from tests.encoders.classifiers import by_reference, write_masked, write_sparse
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


FORMULAS: list[tuple[dict[str, str], Callable[[np.ndarray], np.ndarray]]] = [
    ({}, lambda x: np.log1p(x).max(axis=0)),
    ({"activation_function": "log1p_relu"}, lambda x: np.log1p(np.log1p(x)).max(axis=0)),
    ({"pooling_strategy": "sum"}, lambda x: np.log1p(x).sum(axis=0)),
]


def test_vectors_are_those_of_the_formula(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sparse_encoder, "SUM_ROWS", 3)
    for settings, make in FORMULAS:
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


def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    for settings, message in (
        ({"pooling_strategy": "mean"}, "pooling_strategy should be one of max, sum, is 'mean'"),
        ({"activation_function": "gelu"}, "activation_function should be one of relu, log1p_relu, is 'gelu'"),
    ):
        with pytest.raises(CheckpointError, match=message):
            read(write_sparse(tmp_path, **settings))


def test_a_folder_of_a_masked_language_model_is_a_sparse_encoder(tmp_path: Path) -> None:
    plain, made = slow(write_masked(tmp_path / "a")), slow(write_sparse(tmp_path / "b"))
    vectors = plain.encode(TEXTS)
    np.testing.assert_array_equal(vectors.to_dense(), made.encode(TEXTS).to_dense())
    dense_BV = vectors.to_dense()
    for encoder in (plain, made):
        np.testing.assert_allclose(encoder.similarity(vectors, vectors), dense_BV @ dense_BV.T, rtol=1e-5)


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


def test_similarities_are_those_of_dense_vectors(tmp_path: Path) -> None:
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        encoder = slow(write_sparse(tmp_path, {"similarity_fn_name": name}))
        a, b = encoder.encode(TEXTS), encoder.encode(TEXTS[1:3])
        found = encoder.similarity(a, b)
        np.testing.assert_allclose(found, similarity(a.to_dense(), b.to_dense(), name), rtol=1e-4, atol=2e-3)
        assert found.dtype == np.float32


def test_scipy_gets_the_same_arrays(tmp_path: Path, monkeypatch: Any) -> None:
    encoder = slow(write_masked(tmp_path))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "scipy.sparse", None)
        with pytest.raises(FastattnError, match="scipy is not installed"):
            encoder.encode(TEXTS, format="scipy")
    pytest.importorskip("scipy")
    found, vectors = encoder.encode(TEXTS, format="scipy"), encoder.encode(TEXTS)
    np.testing.assert_array_equal(found.toarray(), vectors.to_dense())
    np.testing.assert_array_equal(encoder.similarity(found, vectors), encoder.similarity(vectors, vectors))
    assert encoder.decode(found) == encoder.decode(vectors)


def test_settings_survive_a_conversion(tmp_path: Path) -> None:
    original = read(write_sparse(tmp_path / "theirs", {"max_active_dims": 4}, activation_function="log1p_relu"))
    folder = converted(original, tmp_path / "ours", "float32")
    assert read(folder).text == original.text
    expected = SparseEncoder.from_checkpoint(original, ops=reference).encode(TEXTS).to_dense()
    np.testing.assert_array_equal(slow(folder).encode(TEXTS).to_dense(), expected)
    set_field(folder, ("text", "sparse", "most"), 0)
    refusal(folder, "text.sparse.most should be at least 1")


def test_the_tied_embedding_is_in_memory_once(tmp_path: Path) -> None:
    model: Any = build_model(read(write_masked(tmp_path)), operations)
    assert model.encoder.stack.embedding.table is model.head.output


@pytest.mark.filterwarnings("ignore")  # theirs
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers", minversion="6")
    tops: list[dict[str, Any]] = [{}, {"max_active_dims": 3, "prompts": {"query": "w9 "}}]
    for number, ((settings, _), top) in enumerate(product(FORMULAS, tops)):
        folder = write_sparse(tmp_path / str(number), top, **settings)
        peer, encoder = theirs.SparseEncoder(str(folder), device="cpu"), slow(folder)
        for name in ("encode_query", "encode_document"):
            expected, found = getattr(peer, name)(TEXTS), getattr(encoder, name)(TEXTS)
            np.testing.assert_allclose(found.to_dense(), expected.to_dense().numpy(), rtol=1e-5, atol=3e-5)
            similarities = peer.similarity(expected, expected)
            np.testing.assert_allclose(encoder.similarity(found, found), similarities, rtol=1e-4)
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
