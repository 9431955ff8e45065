"""The rows of all blocks put together are those of the table that was written, with their types."""

import datetime
import decimal
import json
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.distributed.formats import parquet, read_block
from fastattn.errors import FastattnError, InputError
from fastattn.system import files
from tests.distributed.jobs import blocks_of, rows_of
from tests.messages import check, refused

SUFFIX = ".parquet"

KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    """Batches that end inside small tables."""
    batch, parquet._BATCH_ROWS = parquet._BATCH_ROWS, 7
    yield
    parquet._BATCH_ROWS = batch


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.integers(0, 9))),
    st.lists(st.integers(0, 9), max_size=5),
    st.sampled_from(KINDS),
    st.integers(1, 300),
)
def test_blocks_of_any_size_hold_each_row_once(path, rows, groups, kind, size):
    table = pa.table({"n": pa.array([n for _, n in rows]), "text": pa.array([text for text, _ in rows], kind)})
    table = table.cast(pa.schema([("n", pa.int64()), ("text", kind)]))
    with pq.ParquetWriter(path, table.schema) as writer:
        for count in groups:
            writer.write_table(table.slice(0, count))
            table = table.slice(count)
        writer.write_table(table)
    blocks = blocks_of(path, size)
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks)][: len(blocks)]
    parts = [read_block(block, "text") for block in blocks]
    assert [text for part in parts for text in part.texts] == [text for text, _ in rows]
    assert [record["n"] for part in parts for record in part.records()] == [n for _, n in rows]
    assert all(part.table().schema.field("text").type == kind and part.faults == {} for part in parts)


def test_small_row_groups_share_a_block_and_a_large_one_has_several(path):
    table = pa.table({"text": [f"{number:0100d}" for number in range(1000)]})
    pq.write_table(table, path, row_group_size=10, use_dictionary=False)
    assert [(block.start, block.stop) for block in blocks_of(path, 1 << 20)] == [(0, 1000)]
    pq.write_table(table, path, use_dictionary=False)
    blocks = blocks_of(path, 10_000)
    assert 9 <= len(blocks) <= 11 and all(5_000 < block.size <= 10_000 for block in blocks[:-1])


def test_wide_columns_beside_the_text_make_blocks_and_batches_of_fewer_rows(path, monkeypatch):
    monkeypatch.setattr(parquet, "_MOST_FOOTER_BYTES", 64 << 10)
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 3 << 10)
    pq.write_table(pa.table({"text": ["a"] * 90, "picture": [bytes([n]) * (1 << 10) for n in range(90)]}), path)
    assert len(blocks_of(path, 4 << 20)) == 2
    assert sum(rows.count for rows in rows_of(path, 4 << 20)) == 90


def test_equal_texts_that_are_stored_once_are_not_taken_for_none(path):
    for text, count in (("a", 10), ("the same text of each row" * 8, 63)):
        pq.write_table(pa.table({"text": [text] * 10_000}), path)
        assert len(blocks_of(path, 32_000)) == count


def test_a_block_that_holds_more_than_the_footer_says_is_refused(path, monkeypatch):
    monkeypatch.setattr(parquet, "_MOST_MEMORY_BYTES", 100_000)
    pq.write_table(pa.table({"text": ["x" * 1000] * 1000}), path)
    with refused(InputError, "a.parquet"):
        rows_of(path)


def test_a_text_that_is_none_is_a_fault_with_its_row_and_null(path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 30)
    for kind in KINDS:
        raw = pa.array([b"one", b"t\xffo", b"th\0ree", None, b"x" * 31, b"x" * 30])
        text = raw.cast(pa.string() if pa.types.is_dictionary(kind) else kind, safe=False)
        pq.write_table(pa.table({"text": text.dictionary_encode() if pa.types.is_dictionary(kind) else text}), path)
        (rows,) = rows_of(path)
        assert rows.texts == ["one", None, None, None, None, "x" * 30]
        assert list(rows.faults) == [1, 2, 4]
        for reason in rows.faults.values():
            check(reason)
        assert rows.table().column("text").to_pylist() == ["one", None, "th\0ree", None, "x" * 31, "x" * 30]
        assert [record["text"] for record in rows.records()] == rows.table().column("text").to_pylist()
        assert rows.table().schema.field("text").type == kind


def test_types_are_kept_and_have_a_form_in_json(path):
    day, second = datetime.date(2024, 1, 1), datetime.time(23, 59, 1)
    values = (
        (pa.array([1], pa.timestamp("ns", "UTC")), "1970-01-01T00:00:00.000000001Z"),
        (pa.array([datetime.date(2024, 2, 29)]), "2024-02-29"),
        (pa.array([decimal.Decimal("1.50")]), "1.50"),
        (pa.array([b"\xff"]), "/w=="),
        (pa.array([float("nan")]), None),
        (pa.array([[1.5, None]]), [1.5, None]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), [["k", 1]]),
        (pa.array([{"d": day, "t": ["x"], "at": second}]), {"d": "2024-01-01", "t": ["x"], "at": "23:59:01"}),
        (pa.array([[datetime.time(1, 2, 3, 4)]]), ["01:02:03.000004"]),
        (pa.array([b"\xe9"]).cast(pa.string(), safe=False), None),
        (pa.array(["a"]), "a"),
    )
    names = [*map(str, range(len(values) - 1)), "text"]
    pq.write_table(pa.table([array for array, _ in values], names), path)
    (rows,) = rows_of(path)
    assert rows.table().schema.types == [array.type for array, _ in values]
    assert json.loads(json.dumps(rows.records())) == [dict(zip(names, (value for _, value in values)))]


def test_a_value_without_a_form_in_json_is_named(path):
    for values in (
        pa.array([1], pa.duration("s")),
        pa.array([10**9], pa.date32()),  # Python's own end with the year 9999
        pa.array([[1 << 61]], pa.list_(pa.timestamp("us"))),
    ):
        pq.write_table(pa.table({"text": ["a"], "span": values}), path)
        (rows,) = rows_of(path)
        message = r"a.parquet: the column 'span' of type \w+\S* .*has no form in JSON \(.*\); use --format parquet"
        with pytest.raises(InputError, match=message):
            rows.records()


def test_a_file_without_a_column_of_text_is_refused(path):
    tables = [pa.table({"text": [value]}) for value in (1, b"a", ["a"], {"text": "a"})]
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    for table in (pa.table({"title": ["a"], "n": [1]}), *tables, twice):
        pq.write_table(table, path)
        with refused(InputError, "a.parquet", "'text'"):
            blocks_of(path)


def test_a_column_is_found_among_nested_ones_whose_paths_are_its_name(path):
    plain = {"use_dictionary": False, "compression": "none"}
    inner = pa.struct({"x": pa.list_(pa.int8()), "y": pa.int8()})
    for name in ("a.b", "x"):
        nested = {
            "a": pa.array([{"b": "long " * 20, "c": [1]}] * 50),
            "map": pa.array([[("k", {"x": [1], "y": 2})]] * 50, pa.map_(pa.string(), inner)),
            "x.y": pa.array(range(50)),
        }
        pq.write_table(pa.table({name: ["t" * 40] * 50}), path, **plain)
        alone = blocks_of(path, 400, name)
        pq.write_table(pa.table(nested | {name: ["t" * 40] * 50}), path, **plain)
        assert blocks_of(path, 400, name) == alone
        assert [text for block in alone for text in read_block(block, name).texts] == ["t" * 40] * 50


def test_a_file_cut_short_anywhere_is_refused_in_a_line(path):
    pq.write_table(pa.table({"text": ["a" * 50] * 100}), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 29):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="^cannot read .*a.parquet: ") as error:
            blocks_of(path)
        assert "\n" not in str(error.value)


MUTANTS = """
import sys
from pathlib import Path
from fastattn.distributed.formats import cut
from fastattn.distributed.formats import read_block
from fastattn.distributed.storage import find_files
from fastattn.errors import FastattnError

path = Path(sys.argv[1])
whole = path.read_bytes()
for place in range(len(whole) - 540, len(whole) - 8):
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        for block in cut(find_files([str(path)]), "text", 1000)[:4]:
            read_block(block, "text").records()
    except FastattnError as error:
        assert "\\n" not in str(error)
print("done", end="")
"""


def test_no_changed_byte_of_the_footer_ends_the_process_or_is_more_than_one_line(path):
    """In a process of its own: of some footers pyarrow makes an abort."""
    pq.write_table(pa.table({"text": ["a", "b"] * 20, "n": [1] * 40}), path)
    done = subprocess.run([sys.executable, "-c", MUTANTS, str(path)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("done", 0), done.stderr


def test_a_file_that_has_fewer_rows_now_is_named(path):
    pq.write_table(pa.table({"text": ["a"] * 10}), path)
    (block,) = blocks_of(path)
    pq.write_table(pa.table({"text": ["a"] * 9}), path)
    with refused(FastattnError, "a.parquet"):
        read_block(block, "text")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert blocks_of(path) == []


def test_the_digest_is_that_of_all_columns(path):
    digests = []
    for last in (9, 9, 0):
        pq.write_table(pa.table({"text": ["a"] * 10, "n": [*range(9), last]}), path)
        digests.append([rows.digest for rows in rows_of(path, 160)])
    assert digests[0] == digests[1] and digests[0][0] == digests[2][0] and digests[0][1] != digests[2][1]
