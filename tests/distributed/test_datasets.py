"""A Dataset's column translated and encoded."""

import pytest

pytest.importorskip("ray", reason="needs the extra fastattn[ray]")

import numpy as np
import ray
import ray.data

from fastattn import Encoder, Translator
from fastattn.distributed import encode_dataset, translate_dataset
from fastattn.distributed.cluster import cluster_hosts
from fastattn.errors import InputError
from tests.distributed import nodes

pytestmark = nodes.WARNINGS
ROWS = [
    {"id": 0, "body": "Where is the station?"},
    {"id": 1, "body": None},
    {"id": 2, "body": "He bought three apples."},
    {"id": 3, "body": ""},
]
LACKS = "no column 'text'; the dataset has: id, body"


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    with cluster_hosts(None):
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield


def rows_of(dataset) -> list[dict]:
    return sorted(dataset.take_all(), key=lambda row: row["id"])


def test_translations_and_scores_stand_beside_the_columns(pulled):
    dataset = ray.data.from_items(ROWS)
    made = translate_dataset(dataset, str(pulled("en-pt")), "body", output_column="pt", beam_size=2, return_scores=True)
    found = rows_of(made)
    texts = [row["body"] for row in ROWS if row["body"] is not None]
    wanted = iter(Translator(pulled("en-pt")).translate(texts, beam_size=2, return_scores=True, details=True))
    for row, given in zip(found, ROWS, strict=True):
        assert (row["id"], row["body"]) == (given["id"], given["body"])
        one = None if given["body"] is None else next(wanted)
        assert row["pt"] == (one and one.text)
        assert row["score"] == (one and np.float32(one.scores[0]))


def test_vectors_are_those_of_the_encoder(pulled):
    found = rows_of(encode_dataset(ray.data.from_items(ROWS), str(pulled("minilm")), "body", truncate_dim=64))
    texts = [row["body"] for row in ROWS if row["body"] is not None]
    wanted = iter(Encoder(pulled("minilm")).encode(texts, truncate_dim=64))
    for row, given in zip(found, ROWS, strict=True):
        if given["body"] is None:
            assert row["embedding"] is None
        else:
            np.testing.assert_array_equal(np.asarray(row["embedding"], np.float32), next(wanted))


def test_a_dataset_that_has_to_be_read_leaves_a_core_to_read_it(pulled, tmp_path):
    texts = [row["body"] for row in ROWS if row["body"]]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    read = ray.data.read_text(str(tmp_path))
    made = translate_dataset(read, str(pulled("en-pt")), "text").take_all()
    found = {row["text"]: row["translation"] for row in made}
    assert found == dict(zip(texts, Translator(pulled("en-pt")).translate(texts), strict=True))


def test_arguments_are_checked_before_anything_is_computed(pulled):
    clash, reaches = "the dataset has a column 'id' already; name another output_column", "known: path, name, store"
    for name, wrong, said in (
        ("column", "", "column must be a column's name"), ("column", "text", LACKS),
        ("output_column", "id", clash), ("output_column", "body", "output_column must be a new column"),
        ("cores", 0, "cores must be at least 1"), ("beam_size", 0, "beam_size"), ("reach", "mail", reaches),
        ("ds", ROWS, r"expected a ray\.data\.Dataset, got list"),
    ):  # fmt: skip
        asked = {"ds": ray.data.from_items(ROWS), "model": str(pulled("en-pt")), "column": "body"} | {name: wrong}
        with pytest.raises(InputError, match=said):
            translate_dataset(**asked)


# At the end: Ray keeps the cores of actors that failed for ten seconds more.
@pytest.mark.parametrize("column, said", [("text", LACKS), ("id", "should hold texts")])
def test_a_column_that_is_missing_or_no_text_ends_it(pulled, column, said):
    unknown = ray.data.from_items(ROWS).map_batches(lambda rows: rows, batch_format="pyarrow")
    made = translate_dataset(unknown, str(pulled("en-pt")), column, cores=1)
    with pytest.raises(ray.exceptions.RayError, match=said):
        made.take_all()
