"""MultiVectorEncoder: vectors of tokens as sentence-transformers and PyLate make them; MaxSim."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.encoders import multi_vector_encoder
from fastattn.encoders.multi_vector_encoder import MultiVectorEncoder
from fastattn.errors import CheckpointError
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.text_spec import MOST_FILLED
from fastattn.weights import read
from tests.encoders.classifiers import some_texts
from tests.encoders.multi_vector import EXPANSION, WIDTH, projection, write_original, write_pylate, write_today
from tests.weights.native.folders import converted, set_field
from tests.weights.refusals import refusal

TEXTS = ["w5 w6 . w7", "", "w40", "w5 w6 " * 60, "w9 [unused0] w8 w9"]
FORMS: dict[str, Callable[..., Path]] = {"today": write_today, "pylate": write_pylate, "original": write_original}
# Lengths of queries of TEXTS, and of documents, whose tokens w6 and "." get no vector.
SHAPES = {
    "today": ([9] * 5, [6, 4, 5, 8, 8]),
    "pylate": ([10] * 5, [6, 3, 4, 10, 7]),
    "original": ([8] * 5, [6, 3, 4, 14, 7]),
}


def load(folder: Path, ops: Any = operations, **how: Any) -> MultiVectorEncoder:
    return MultiVectorEncoder.from_checkpoint(read(folder), ops=ops, **how)


def test_every_form_is_read_and_survives_a_conversion(tmp_path: Path) -> None:
    for form, write in FORMS.items():
        original = read(write(tmp_path / form))
        encoder = MultiVectorEncoder.from_checkpoint(original)
        again = load(converted(original, tmp_path / f"our {form}", "float32"))
        assert encoder.dimension == WIDTH
        for name, lengths in zip(("encode_query", "encode_document"), SHAPES[form]):
            found = getattr(encoder, name)(TEXTS)
            assert [len(vectors) for vectors in found] == lengths
            for vectors, ours in zip(found, getattr(again, name)(TEXTS), strict=True):
                assert vectors.dtype == np.float32 and vectors.shape[1:] == (WIDTH,)
                np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
                np.testing.assert_array_equal(vectors, ours)


def test_a_converted_folder_that_lies_is_refused(tmp_path: Path) -> None:
    folder = converted(read(write_today(tmp_path / "theirs")), tmp_path / "ours", "float32")
    for field, value, message in (
        ("expansion", -1, "text.multi_vector.expansion should be at least 0"),
        ("query_length", 0, "text.multi_vector.query_length should be at least 1"),
        ("skipped", "abc", "text.multi_vector.skipped should be"),
    ):
        changed = shutil.copytree(folder, tmp_path / field)
        set_field(changed, ("text", "multi_vector", field), value)
        refusal(changed, message)


def test_what_fills_a_query_is_attended_to_where_the_checkpoint_says_so(tmp_path: Path) -> None:
    for seen in (False, True):
        encoder = load(write_today(tmp_path, query_expansion=EXPANSION | {"attend": seen}))
        filled, alone = encoder.encode_query("w5 w7"), encoder.encode("w11 w5 w7")
        assert (len(filled), len(alone)) == (9, 5)
        assert np.array_equal(filled[:5], alone) != seen
        assert not np.array_equal(filled[5], filled[6])  # masks at different places


def test_lengths_of_queries(tmp_path: Path) -> None:
    for own, lengths in (
        ({"query_expansion": EXPANSION | {"strategy": "min", "length": 6}}, [7, 6, 6, 9, 7]),
        ({"query_expansion": EXPANSION | {"strategy": "min"}, "query_length": None}, [9, 9, 9, 40, 9]),
        ({"query_expansion": None}, [7, 3, 4, 9, 7]),
        ({"query_expansion": None, "query_length": 5}, [5, 3, 4, 5, 5]),
        ({"query_expansion": EXPANSION | {"token": "w20"}}, [9] * 5),
    ):
        encoder = load(write_today(tmp_path, **own), reference)
        assert [len(vectors) for vectors in encoder.encode_query(TEXTS)] == lengths, own


def test_vectors_are_projected_hidden_states(tmp_path: Path) -> None:
    encoder = load(write_today(tmp_path), reference)
    (ids,) = encoder._tokenizer.encode(["w5 w7 w8"])
    rows_ND, _ = encoder._loaded.model.encode([ids])
    expected = rows_ND @ projection().T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode("w5 w7 w8"), expected, atol=1e-5)


def test_markers_are_single_tokens(tmp_path: Path) -> None:
    encoder = load(write_original(tmp_path))
    assert encoder.prompts == {"query": "[unused0] ", "document": "[unused1] "}
    assert len(encoder.encode("[unused0] w5")) == 4
    np.testing.assert_array_equal(encoder.encode_query("w5")[:4], encoder.encode("[unused0] w5"))


def test_skipped_tokens(tmp_path: Path) -> None:
    encoder = load(write_today(tmp_path, mask={"skiplist_tasks": ["query"]}))
    assert len(encoder.encode_document("w6 w5")) == 6 and len(encoder.encode_query("w6 w5")) == 8
    everything = load(write_today(tmp_path / "whole", mask={"skiplist_words": None}))
    skipping = load(write_today(tmp_path / "kept"))
    whole, kept = everything.encode_document("w6 w5 w6"), skipping.encode_document("w6 w5 w6")
    assert len(whole) == 7
    np.testing.assert_array_equal(kept, whole[[0, 1, 2, 4, 6]])
    # Without a task it is a document too, but for its prompt.
    assert len(everything.encode("w6 w5 w6")) - len(skipping.encode("w6 w5 w6")) == 2


def test_a_score_is_the_sum_of_greatest_products(tmp_path: Path, monkeypatch: Any) -> None:
    encoder = load(write_today(tmp_path))
    queries, documents = encoder.encode_query(TEXTS[:3]), encoder.encode_document(some_texts(50))
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


def test_a_score_may_be_a_mean(tmp_path: Path) -> None:
    mean, whole = (
        load(write_today(tmp_path / str(kind), {"similarity_fn_name": kind})) for kind in ("meanmaxsim", "maxsim")
    )
    queries, documents = whole.encode_query(TEXTS), whole.encode_document(TEXTS)
    np.testing.assert_allclose(mean.score(queries, documents), whole.score(queries, documents) / 9, rtol=1e-6)


def test_a_model_without_a_limit_of_positions_has_one_of_what_fills_queries(tmp_path: Path) -> None:
    """They are filled before anything else looks at them."""
    checkpoint = read(write_today(tmp_path))
    stack, text = checkpoint.spec.encoder, checkpoint.text
    spec = replace(checkpoint.spec, encoder=replace(stack, positions=replace(stack.positions, limit=0)))
    for length in (MOST_FILLED + 1, 10**13):
        settings = replace(text.multi_vector, expansion=length)
        changed = replace(checkpoint, spec=spec, input=replace(text, multi_vector=settings))
        with pytest.raises(CheckpointError, match=f"^queries should be filled up to at most 32768 ids, not {length}$"):
            MultiVectorEncoder.from_checkpoint(changed)


def test_bad_files_are_one_clear_line(tmp_path: Path) -> None:
    expansion, today = {"strategy": "fixed", "length": 9}, write_today
    bad: list[tuple[Callable[..., Path], dict[str, Any], str]] = [
        (today, {"mask": {"keep_only_token_ids": [3]}}, "keep_only_token_ids should be null"),
        (today, {"mask": {"skiplist_words": "abc"}}, "skiplist_words should be a list of strings"),
        (today, {"query_expansion": expansion | {"strategy": "some"}}, "strategy should be one of fixed"),
        (today, {"query_expansion": {"strategy": "fixed"}}, "length is missing"),
        (today, {"query_expansion": EXPANSION | {"token": "none"}}, "has no 'none', which fills queries"),
        (today, {"query_expansion": EXPANSION | {"length": 41}}, "query_length 41 does not fit"),
        (today, {"document_length": 2}, "document_length 2 does not fit 2 special tokens"),
        (today, {"query_length": "long"}, "query_length should be an integer of at least 1"),
        (write_pylate, {"skiplist_words": [5]}, "skiplist_words should be a list of strings"),
        (write_original, {"metadata": {"similarity": "fish"}}, "similarity should be 'cosine', is 'fish'"),
        (write_original, {"metadata": {"query_maxlen": 0}}, "query_maxlen should be an integer of at least 1"),
        (write_original, {"hidden_size": 39}, "linear.weight should be"),
    ]
    for number, (write, how, message) in enumerate(bad):
        with pytest.raises(CheckpointError, match=message):
            load(write(tmp_path / str(number), **how), reference)


@pytest.mark.filterwarnings("ignore")  # theirs
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers", minversion="6.2")
    for attend in (False, True):
        folders = [
            write_today(tmp_path / f"today {attend}", query_expansion=EXPANSION | {"attend": attend}),
            write_pylate(tmp_path / f"pylate {attend}", attend_to_expansion_tokens=attend),
            write_original(tmp_path / f"original {attend}", {"attend_to_mask_tokens": attend}),
        ]
        for folder in folders:
            peer, encoder = theirs.MultiVectorEncoder(str(folder), device="cpu"), load(folder)
            both = []
            for name in ("encode_query", "encode_document"):
                expected, found = getattr(peer, name)(TEXTS, convert_to_numpy=True), getattr(encoder, name)(TEXTS)
                both.append((expected, found))
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-5)
            wanted, scored = zip(*both)
            np.testing.assert_allclose(encoder.score(*scored), peer.similarity(*wanted).numpy(), rtol=1e-5)
