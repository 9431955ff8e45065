"""The records of all blocks put together are those that Python's parser reads of the whole file."""

import csv
import io
import sys

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.distributed import formats as forms
from fastattn.errors import InputError
from fastattn.system import files
from tests.distributed.jobs import rows_of
from tests.messages import refused

SUFFIX = ".csv"


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """Chunks with and without quotes, in files of a few lines."""
    chunk, forms.csv._CHUNK = forms.csv._CHUNK, 16
    yield
    forms.csv._CHUNK = chunk


def records_of(path, size=1 << 20):
    return [list(record.values()) for rows in rows_of(path, size) for record in rows.records()]


SIGNS = ["a", "é", '"', '"', '""', ",", ",", "\n", "\n", "\r\n", "\r", " ", "ab,c\n", '"a",b\n']


@settings(deadline=None)
@given(st.lists(st.sampled_from(SIGNS), max_size=40).map("".join), st.booleans(), st.integers(1, 60))
def test_blocks_of_any_size_hold_the_records_of_one_block_with_stray_quotes_too(path, content, has_mark, size):
    path.write_bytes(b"\xef\xbb\xbf" * has_mark + b"n,text\n" + content.encode("utf-8"))
    (whole,) = rows_of(path) or [None]
    parts = rows_of(path, size)
    assert [record for rows in parts for record in rows.records()] == (whole.records() if whole else [])
    assert [text for rows in parts for text in rows.texts] == (whole.texts if whole else [])
    faults = [reason for rows in parts for reason in rows.faults.values()]
    assert faults == (list(whole.faults.values()) if whole else [])


@settings(deadline=None)
@given(st.lists(st.sampled_from([sign for sign in SIGNS if sign != "\r"]), max_size=40).map("".join))
def test_the_records_are_python_s(path, content):
    path.write_bytes(b"n,text\n" + content.encode("utf-8"))
    expected = [row for row in csv.reader(io.StringIO(content, newline="\n")) if row]
    assert records_of(path) == [(row + [None] * 2)[:2] for row in expected]
    faulty = {number for number, row in enumerate(expected) if len(row) != 2}
    (rows,) = rows_of(path) or [None]
    unfinished = {len(expected) - 1} if rows and "does not end" in rows.faults.get(len(expected) - 1, "") else set()
    assert set(rows.faults if rows else []) == faulty | unfinished


def test_columns_are_text_as_it_is(path):
    path.write_bytes(b'id,text,n\n007,"a ""b""\nc",1.50\n\n,,\n')
    (rows,) = rows_of(path)
    assert rows.records() == [{"id": "007", "text": 'a "b"\nc', "n": "1.50"}, {"id": "", "text": "", "n": ""}]
    assert rows.table().to_pylist() == rows.records()
    assert rows.table().schema.names == ["id", "text", "n"]
    assert {str(field.type) for field in rows.table().schema} == {"string"}
    assert rows.texts == ['a "b"\nc', ""] and rows.faults == {}


def test_tabs_separate_a_tsv(tmp_path):
    for name in ("a.tsv", "A.TSV"):
        (tmp_path / name).write_text('text\tn\na, b\t"1\t2"\n')
        assert records_of(tmp_path / name) == [["a, b", "1\t2"]]


def test_a_record_that_is_no_row_is_a_fault_with_its_place_and_spoils_no_other(path):
    for size in (1, 1000):
        for line, fault, kept in (
            (b"\xff,b", "not UTF-8 (byte 0xff); convert", [None, "b"]),
            # Python 3.10's parser reads no line with one.
            (b"a\0,b", ("a NUL byte", "not CSV (line contains NUL)")[sys.version_info < (3, 11)], None),
            (b"a", "1 field, where the header has 2", ["a", None]),
            (b"a,b,c", "3 fields, where the header has 2", ["a", "b"]),
            (b"a\rb,c", "not CSV (new-line character seen in unquoted field)", [None, None]),
        ):
            path.write_bytes(b"text,n\none,1\n" + line + b"\nthree,3\n")
            parts = rows_of(path, size)
            assert [text for rows in parts for text in rows.texts] == ["one", None, "three"]
            (found,) = [reason for rows in parts for reason in rows.faults.values()]
            assert found.startswith(f"{path}, byte 13: {fault}")
            assert kept is None or records_of(path, size)[1] == kept


def test_a_quote_that_does_not_end_is_a_fault_with_the_place_where_its_record_begins(path):
    path.write_bytes(b'text,n\none,1\n"two,2\nthree,3\n')
    (rows,) = rows_of(path)
    assert rows.texts == ["one", None]
    assert rows.faults == {1: f"{path}, byte 13: a quoted field that does not end"}


def test_a_record_over_the_limit_is_one_fault_and_one_of_it_is_none(path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 30)
    path.write_bytes(b"text\none\n" + b"x" * 100 + b'\ntwo\n"' + b"y\n" * 20 + b"three\n")
    for size in (1, 30, 1000):
        texts = [text for rows in rows_of(path, size) for text in rows.texts]
        assert texts[:3] == ["one", None, "two"] and texts[-1] == "three" and texts[3] is None
        assert records_of(path, size) == records_of(path)
    for longest in ("z" * 29, f'"{"z" * 13}\n{"z" * 13}"'):  # of 30 bytes with their ends
        path.write_bytes(f"text\n{longest}\n{longest.replace('z', 'zz', 1)}\n".encode())
        (rows,) = rows_of(path)
        assert rows.texts[0] == longest.strip('"') and 1 in rows.faults and 0 not in rows.faults


def test_a_field_over_python_s_own_limit_is_read(path):
    path.write_bytes(b'text,n\n"' + b"x " * 100_000 + b'",1\n')
    (rows,) = rows_of(path)
    assert len(rows.texts[0]) == 200_000


def test_a_file_without_the_column_is_refused_with_its_columns(path):
    for content in (b"title,body\na,b\n", b"text,n,text\na,b,c\n", b"te\xffxt\na\n", b'"text\na\n'):
        path.write_bytes(content)
        with refused(InputError, "a.csv"):
            rows_of(path)


def test_a_file_without_rows_has_none(path):
    for content in (b"", b"\n\n", b"text\n", b"\xef\xbb\xbftext"):
        path.write_bytes(content)
        assert records_of(path) == []


def test_the_digest_is_that_of_the_records_and_the_header(path):
    digests = []
    for content in (b"text,n\none,1\ntwo,2\n", b"text,n\none,1\ntwo,3\n", b"text,m\none,1\ntwo,2\n"):
        path.write_bytes(content)
        digests.append([rows.digest for rows in rows_of(path, 6)])
    assert digests[0][0] == digests[1][0] and digests[0][1] != digests[1][1]
    assert digests[0][0] != digests[2][0]
