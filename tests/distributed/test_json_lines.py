"""The objects of all blocks put together are those of the file's lines, whatever they hold."""

import json
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.distributed.output_folder import as_file
from fastattn.errors import InputError
from tests.distributed.jobs import blocks_of, rows_of
from tests.messages import check, refused

SUFFIX = ".jsonl"

VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just([{"a": [1]}])
OBJECTS = st.builds(
    lambda text, more: {"text": text} | more, st.none() | st.text(), st.dictionaries(st.sampled_from("abc"), VALUES)
)
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\r\n"])


@settings(deadline=None)
@given(st.lists(st.tuples(OBJECTS, ENDS), max_size=8), st.booleans(), st.booleans(), st.integers(1, 120))
def test_blocks_of_any_size_hold_each_object_once(path, lines, has_mark, ends, size):
    content = "".join(json.dumps(made, ensure_ascii=False) + end for made, end in lines)
    content = content if ends else content.rstrip()
    path.write_bytes(b"\xef\xbb\xbf" * has_mark + content.encode("utf-8"))
    rows = rows_of(path, size)
    assert [made for row in rows for made in row.records()] == [made for made, _ in lines]
    for row in rows:
        expected = [None if "\0" in (made["text"] or "") else made["text"] for made in row.records()]
        assert row.texts == expected and row.count == len(expected)


def test_a_line_that_is_no_row_is_a_fault_with_its_place_and_spoils_no_other(path):
    digits, brackets = (b'{"text": "a", "n": ' + b"9" * 5000 + b"}", b'{"text": ' + b"[" * 200_000 + b"}")
    for line in (
        b'{"text": "\xff"}', b'{"text": "a\0"}', rb'{"text": "a\u0000"}', b'{"text": "a"', b'["a"]', b'{"text": 7}',
        b'{"text": ["a"]}', digits, brackets, rb'{"text": "\ud83d"}',
    ):  # fmt: skip
        path.write_bytes(b'{"text": "one", "n": 1}\n' + line + b'\n{"n": 3, "text": "three"}\n')
        (rows,) = rows_of(path)
        assert rows.texts == ["one", None, "three"]
        assert list(rows.faults) == [1]
        check(rows.faults[1])
        whole = ['{"text": "one", "n": 1}', '{"n": 3, "text": "three"}']
        assert rows.table().column("json").take([0, 2]).to_pylist() == whole
        assert [json.loads(made) for made in rows.objects()] == rows.records()


def test_a_fault_keeps_the_line_where_it_is_an_object(path):
    path.write_bytes(b'{"text": 7, "n": 1}\n{"text": "\\ud83d", "n": 2}\n[]\n')
    (rows,) = rows_of(path)
    whole = ['{"text": 7, "n": 1}', r'{"text": "\ud83d", "n": 2}', None]
    assert rows.objects() == [*whole[:2], "{}"]
    assert rows.table().to_pylist() == [{"text": None, "json": line} for line in whole]


class Written(NamedTuple):
    """A number as it is written."""

    digits: str


def exact(line):
    """JSON's value, each number as it is written, objects as lists of their fields; ValueError for what is no JSON."""
    return json.loads(line, parse_int=Written, parse_float=Written, parse_constant=int, object_pairs_hook=list)


def test_fields_are_carried_through_as_they_are_written(path):
    for fields in (
        '"n": 1e400, "m": -1E-400, "big": 12345678901234567890123, "zero": -0.0, "long": 0.1234567890123456789',
        '"a": 1, "a": 2, "": {"b": [], "b": {}}',
        r'"half": "\ud83d", "\udc00": ["\ud83d\ude00", "\/", "\u0041"]',
        '"is": "NaN and \\"Infinity\\"", "Infinity": ["-Infinity"]',
        '"x": "\\\\", "sign": "\u2028\u2029\x85\x9b\u202e"',
        '"tabs":\t1 ,\r"x" :2',
    ):
        line = f'\t{{"text": "a", {fields} }} '
        path.write_text(line + "\r\n" + line, encoding="utf-8", newline="")
        (rows,) = rows_of(path)
        assert (rows.texts, rows.faults) == (["a", "a"], {})
        lines = as_file(rows, {"more": pa.array(["x", None])}, "jsonl").decode()
        assert list(map(exact, lines.splitlines())) == [[*exact(line), ("more", more)] for more in ("x", None)]


def test_words_for_numbers_that_json_has_not_become_null(path):
    path.write_text('{"text": "a", "x": NaN, "y": [-Infinity, Infinity, "NaN \\"", {"NaN": NaN}]}')
    (rows,) = rows_of(path)
    assert rows.objects() == ['{"text": "a", "x": null, "y": [null, null, "NaN \\"", {"NaN": null}]}']


def test_a_table_has_the_text_and_the_lines_as_they_came(path):
    lines = ['{"text": "\\u00e9", "n":1.50, "n": [7]}', ' {"n": "é", "text": null}\t', '{"n": {"x": true}}']
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, "[]", ""]).encode())
    (rows,) = rows_of(path)
    assert (rows.texts, list(rows.faults)) == (["é", None, None, None], [3])
    table = rows.table()
    assert [(field.name, str(field.type)) for field in table.schema] == [("text", "string"), ("json", "string")]
    assert table.column("text").to_pylist() == ["é", None, None, None]
    assert table.column("json").to_pylist() == [*lines, None]


def test_blocks_whose_values_are_of_other_types_have_one_schema(path):
    path.write_bytes(b'{"text": "a", "n": 1}\n{"text": "b", "n": "x", "m": []}\n{"text": "c", "n": [{"a": 1}]}\n[1]\n')
    tables = [row.table() for row in rows_of(path, 20)]
    assert len(tables) > 3 and sum(table.num_rows for table in tables) == 4
    assert {str(table.schema) for table in tables} == {"text: string\njson: string"}


def test_a_column_that_is_named_as_that_of_the_lines_is_for_json_lines_alone(path):
    path.write_bytes(b'{"json": "a"}\n')
    (rows,) = rows_of(path, column="json")
    assert rows.texts == ["a"] and rows.records() == [{"json": "a"}]
    with refused(InputError):
        rows.table()


def test_a_file_without_the_column_is_refused_with_its_fields(path):
    late = b'{"text": "late"}\n'
    for content in (b'{"title": "a"}\n{"body": "b"}\n', b"[\n1,\n2]\n", b'{"n": 1}\n' * 100 + late):
        path.write_bytes(content)
        with refused(InputError, "a.jsonl"):
            blocks_of(path, 100)
    path.write_bytes(b'{"n": 1}\n' * 99 + late)
    assert sum(row.count for row in rows_of(path, 100)) == 100


def test_a_file_without_rows_has_none(path):
    path.write_bytes(b"\n\n \r\n")
    assert [row.texts for row in rows_of(path)] in ([], [[]])
