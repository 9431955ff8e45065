"""Rows with what was computed for them, as files that others can read."""

import json

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")
import pyarrow as pa
import pyarrow.parquet as pq

from fastattn.distributed.formats.rows import StringRows
from fastattn.distributed.output_folder import as_file, as_json_lines, as_parquet
from fastattn.errors import InputError

VECTORS_NE = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS_NE.ravel()), 5)


def test_parquet_keeps_all_columns_with_their_types():
    table = pa.table(
        {
            "id": pa.array([1, None], pa.uint16()),
            "text": pa.array(["a", "ß"], pa.large_string()),
            "kind": pa.array(["x", "x"]).dictionary_encode(),
            "when": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "nested": [[{"a": 1}], None],
        }
    )
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": pa.array(["b", None]), "vector": VECTORS})))
    assert read.select(table.column_names).equals(table)
    assert read.column_names == [*table.column_names, "translation", "vector"]
    assert read["translation"].to_pylist() == ["b", None]
    assert read["vector"].type == pa.list_(pa.float32(), 5)
    assert np.array_equal(read["vector"].combine_chunks().flatten().to_numpy().reshape(2, 5), VECTORS_NE)


def test_parquet_keeps_no_description_of_columns_that_lacks_the_new_ones():
    table = pa.table({"text": ["a"]}).replace_schema_metadata({"huggingface": '{"info": {"features": {"text": 1}}}'})
    assert pq.read_schema(pa.BufferReader(as_parquet(table, {"n": pa.array([1])}))).metadata is None


def test_a_block_without_rows_is_a_file_with_its_columns():
    table = pa.table({"text": pa.array([], pa.string())})
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": pa.array([], pa.string())})))
    assert (read.num_rows, read.column_names) == (0, ["text", "translation"])
    assert as_json_lines([], {"translation": pa.array([], pa.string())}) == b""


def test_json_lines_have_the_records_own_fields_first():
    objects = ['{"text": "a", "n": {"b": [1, null]}}', "{ }", r'{"text": "\u202e\n\udc80"}']
    lines = as_json_lines(objects, {"translation": pa.array(["ß", None, "x"]), "score": pa.array([1, 2, 3])})
    assert lines.decode().splitlines() == [
        '{"text": "a", "n": {"b": [1, null]}, "translation": "ß", "score": 1}',
        '{"translation": null, "score": 2}',
        r'{"text": "\u202e\n\udc80", "translation": "x", "score": 3}',
    ]


@pytest.mark.parametrize("kind", ["fixed", "list"])
def test_json_lines_give_float32_back(kind):
    vectors = VECTORS if kind == "fixed" else VECTORS.cast(pa.list_(pa.float32()))
    scores = pa.array([0.1, None], pa.float32())
    lines = as_json_lines(["{}", "{}"], {"embedding": vectors.take(pa.array([1, None])), "score": scores}).splitlines()
    first, second = map(json.loads, lines)
    assert np.array_equal(np.array(first["embedding"], np.float32), VECTORS_NE[1])
    assert (first["score"], second) == (0.1, {"embedding": None, "score": None})


def test_json_lines_of_several_hypotheses_are_json():
    hypotheses = [['a "b"\\', "\u2028\x1b", None], None, []]
    columns = {"hypotheses": pa.array(hypotheses, pa.list_(pa.string())), "text": pa.array(["x\n", None, '"'])}
    columns["scores"] = pa.array([[0.5, None], [], None], pa.list_(pa.float32()))
    lines = list(map(json.loads, as_json_lines(["{}"] * 3, columns).decode().splitlines()))
    assert lines == [dict(zip(columns, row)) for row in zip(*(array.to_pylist() for array in columns.values()))]


def test_numbers_that_json_has_no_word_for_are_null():
    def refuse(word):
        raise AssertionError(word)

    vectors = pa.array([[float("nan"), float("inf"), -float("inf"), 1.5]], pa.list_(pa.float32()))
    line = json.loads(as_json_lines(["{}"], {"v": vectors}), parse_constant=refuse)
    assert line == {"v": [None, None, None, 1.5]}


def test_whole_numbers_stay_so():
    vectors = pa.array([[1, -128]], pa.list_(pa.int8()))
    assert as_json_lines(["{}"], {"v": vectors}) == b'{"v": [1, -128]}\n'


def test_a_column_that_is_there_already_is_refused():
    with pytest.raises(InputError, match="the input has a column 'text' already"):
        as_parquet(pa.table({"text": ["a"]}), {"text": pa.array(["b"])})
    with pytest.raises(InputError, match="the input has a column 'text' already"):
        as_file(StringRows(["a"], {}, [0], "", {"text": ["a"]}), {"text": pa.array(["b"])}, "jsonl")
