"""The lines of all blocks put together are those that the plain command reads of the file."""

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from fastattn.distributed.formats import block_bytes, cut, read_block
from fastattn.distributed.storage import InputFile, find_files
from fastattn.errors import FastattnError, InputError
from fastattn.system import files
from tests.distributed.jobs import rows_of
from tests.messages import check, refused

SUFFIX = ".txt"

PIECES = [b"a", b"bc", "é好".encode(), b"\n", b"\n", b"\r\n", b"\r", b" ", b"\xef\xbb\xbf", "\u2028".encode()]


def texts_of(path, size):
    return [text for rows in rows_of(path, size) for text in rows.texts]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.integers(1, 40))
def test_blocks_of_any_size_hold_the_lines_of_the_plain_command_once(path, content, size):
    path.write_bytes(content)
    with files.open_text(path) as lines:
        assert texts_of(path, size) == list(lines)


def test_blocks_are_even_and_follow_each_other_over_all_files(tmp_path):
    for name, size in (("a.txt", 10), ("b.txt", 0), ("c.txt", 7)):
        (tmp_path / name).write_bytes(b"x" * size)
    blocks = cut(find_files([str(tmp_path)]), "text", 4)
    assert [(b.number, b.url[-5:], b.start, b.stop, b.size) for b in blocks] == [
        (0, "a.txt", 0, 3, 3),
        (1, "a.txt", 3, 6, 3),
        (2, "a.txt", 6, 10, 4),
        (3, "c.txt", 0, 3, 3),
        (4, "c.txt", 3, 7, 4),
    ]


def test_blocks_are_a_two_hundredth_within_bounds():
    for total, expected in ((0, 128 << 10), (200_000_000, 1_000_000), (1 << 40, 4 << 20)):
        assert block_bytes([InputFile("a", total // 2, 0, "text"), InputFile("b", total // 2, 0, "text")]) == expected


def test_a_line_that_is_no_text_is_a_fault_with_its_place_and_spoils_no_other(path):
    path.write_bytes(b"one\nt\xffwo\nth\0ree\nfour\n")
    for size in (3, 1000):
        assert texts_of(path, size) == ["one", None, None, "four"]
        for fault in (0, 1):
            check([reason for rows in rows_of(path, size) for reason in rows.faults.values()][fault])


def test_a_line_over_the_limit_is_one_fault(path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 20)
    path.write_bytes(b"a\n" + b"x" * 100 + b"\n" + b"y" * 20 + b"\n" + b"b" * 19 + b"\nc")
    for size in (1, 7, 50, 1000):
        rows = rows_of(path, size)
        assert [text for row in rows for text in row.texts] == ["a", None, None, "b" * 19, "c"]
        reasons = [reason for row in rows for reason in row.faults.values()]
        assert [reason.split(": ")[1] for reason in reasons] == ["longer than 20 bytes, so this is not text"] * 2


def test_table_and_records_have_null_for_what_is_no_text(path):
    path.write_bytes("é\n\xff\n".encode("latin-1") + "好\n".encode())
    (rows,) = rows_of(path, 1000)
    assert rows.records() == [{"text": None}, {"text": None}, {"text": "好"}]
    assert rows.table().to_pylist() == rows.records()
    assert str(rows.table().schema.field("text").type) == "string"


def test_a_file_that_has_shrunk_or_gone_is_named(path):
    path.write_bytes(b"one\ntwo\n")
    (block,) = cut(find_files([str(path)]), "text", 100)
    path.write_bytes(b"one\n")
    with refused(FastattnError, "a.txt"):
        read_block(block, "text")
    path.unlink()
    with refused(InputError, "a.txt"):
        read_block(block, "text")


def test_another_column_of_a_text_and_a_block_of_no_bytes_are_refused(path):
    path.write_bytes(b"one\n")
    for column, size in (("title", 100), ("text", 0)):
        with refused(InputError):
            cut(find_files([str(path)]), column, size)
