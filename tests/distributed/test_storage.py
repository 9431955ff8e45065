"""Inputs are found by name, folder and glob, and refused in one line where they are not what a job can read."""

import os
from urllib.parse import quote

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from fastattn.distributed.formats import cut, read_block
from fastattn.distributed.formats.blocks import CorpusBlock
from fastattn.distributed.storage import InputFile, filesystem, find_files, input_covering, open_input
from fastattn.errors import FastattnError, InputError
from tests.messages import refused


@pytest.fixture
def folder(tmp_path):
    """A tree of texts, with files in it that are none."""
    texts = ["b.txt", "a.txt", "sub/c.txt", "sub/deep/d.text", ".hidden.txt", "_work/e.txt", "notes.md", "x[1] é.txt"]
    for name in texts:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(files, folder):
    return [os.path.relpath(file.url, folder) for file in files]


def test_a_file_is_described(folder, monkeypatch):
    monkeypatch.chdir(folder)
    path = folder / "a.txt"
    *first, last = find_files(["sub", "sub/../a.txt"])  # in this order
    assert last == InputFile(str(path), 5, path.stat().st_mtime_ns, "text")
    assert names(first, folder) == ["sub/c.txt", "sub/deep/d.text"]
    found = names(find_files([str(folder)], form="text"), folder)
    assert "notes.md" in found and ".hidden.txt" not in found


def test_a_folder_is_all_that_is_below_and_a_glob_is_a_shell_s(folder):
    for pattern, expected in (
        ("", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.text", "x[1] é.txt"]),
        ("*.txt", ["a.txt", "b.txt", "x[1] é.txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[bc].txt", ["b.txt"]),
        ("*/c.txt", ["sub/c.txt"]),
        ("s*/*/*.text", ["sub/deep/d.text"]),
        ("**/*.txt", ["_work/e.txt", "a.txt", "b.txt", "sub/c.txt", "x[1] é.txt"]),
        ("sub/**", ["sub/c.txt", "sub/deep/d.text"]),
        ("**/d*/*", ["sub/deep/d.text"]),
        (".h*", [".hidden.txt"]),
        ("x[1] é.txt", ["x[1] é.txt"]),
        ("x?1? *", ["x[1] é.txt"]),
    ):
        assert names(find_files([str(folder / pattern)]), folder) == expected


def test_urls_are_found_and_opened_as_paths_are(folder):
    for name in ("", "a.txt", "*.txt", "x*", "x[1] é.txt", "sub", "**/d*"):
        base = f"file://{folder}"
        found = find_files([f"{base}/{name}".rstrip("/")])
        paths = [quote(file.url) for file in find_files([str(folder / name)])]
        assert names(found, base) == [os.path.relpath(path, folder) for path in paths]
        for file in found:
            with open_input(file.url) as stream:
                assert stream.read() == (folder / filesystem(file.url)[1]).read_bytes()


def secret(path):
    """A URL of a local file with an option that nobody is to see; pyarrow passes over the options of local files."""
    return f"file://{path}?sig=SECRET"


@pytest.mark.parametrize("address", [str, secret])
def test_what_cannot_be_a_job_is_refused_in_a_line(folder, address):
    """Which has nothing of a URL's options."""
    for name in ("empty", "packed", "twice/sub"):
        (folder / name).mkdir(parents=True)
    for name in ("packed/b.jsonl.gz", "packed/other.tar.gz", "t.csv", "twice/sub/c.txt"):
        (folder / name).write_text("text\n")
    for inputs in (
        ["empty"], ["nothing.txt"], ["*.tx"], ["no/*.txt"], ["a.txt", "a.txt"], ["twice", "twice/sub/c.txt"],
        ["notes.md"], ["a.txt", "t.csv"], ["packed"], ["packed/b.jsonl.gz"],
    ):  # fmt: skip
        with refused(InputError, str(folder)):
            find_files([address(folder / name) for name in inputs])


def test_a_name_that_names_nothing_is_refused_in_a_line():
    for name in ("", "-", "a\0b", "/dev/zero"):
        with refused(InputError):
            find_files([name])
    for name in ("zz://bucket/x", "file:///no/such", "s3://"):
        with pytest.raises(InputError, match="^cannot read "):
            find_files([name])
    with refused(InputError):
        find_files(["a"], form="xml")


@pytest.mark.parametrize("pattern", ["", "**/*.txt"])
def test_a_link_to_a_folder_is_followed_unless_it_leads_back(folder, pattern):
    (folder / "elsewhere").symlink_to(folder / "sub")
    assert "elsewhere/deep/d.text" in names(find_files([str(folder)]), folder)
    (folder / "sub" / "back").symlink_to(folder)
    with refused(InputError, "back"):
        find_files([str(folder / pattern)])


def test_a_name_that_is_not_utf8_is_refused(folder):
    for pattern in ("", "*.txt", os.fsdecode(b"\xff.txt")):
        try:
            (folder / os.fsdecode(b"\xff.txt")).write_text("a")
        except OSError:
            pytest.skip("this file system has no such names")
        with pytest.raises(InputError, match=r"^cannot read .*: pyarrow takes no file names that are not UTF-8$"):
            find_files([str(folder / pattern)])


def test_the_options_of_a_url_that_is_none_are_in_no_message():
    for url in ("zz://bucket/x?sig=SECRET", "s3://?sig=SECRET", "s3://bucket/x?sig=SECRET&region=a%zz"):
        with pytest.raises(InputError) as raised:
            filesystem(url)
        assert "SECRET" not in str(raised.value)


FAULTY = {"text": b"w1\n\xff\n", "csv": b"text\nw1\n\xff\n", "jsonl": b'{"text": "w1"}\n{\n'}


def test_the_options_of_a_url_are_in_no_fault_of_a_row(tmp_path):
    for form, data in FAULTY.items():
        path = tmp_path / f"a.{form}"
        path.write_bytes(data)
        rows = read_block(CorpusBlock(0, secret(path), form, 5 if form == "csv" else 0, len(data), 1), "text")
        assert len(rows.faults) == 1 and "SECRET" not in str(rows.faults)
        with pytest.raises(FastattnError) as raised:
            read_block(CorpusBlock(0, secret(path), form, 0, 99, 1), "text")
        assert "SECRET" not in str(raised.value)


def test_the_options_of_a_url_are_in_no_message_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a\0b"], "number": [1]}), path)
    block = CorpusBlock(0, secret(path), "parquet", 0, 1, 1)
    assert list(read_block(block, "text").faults) == [0] and "SECRET" not in str(read_block(block, "text").faults)
    for column, stop in (("number", 1), ("gone", 1), ("text", 9)):
        with pytest.raises(FastattnError) as raised:
            read_block(CorpusBlock(0, secret(path), "parquet", 0, stop, 1), column)
        assert "SECRET" not in str(raised.value)
    path.write_bytes(b"no Parquet")
    with pytest.raises(InputError) as raised:
        read_block(block, "text")
    assert "SECRET" not in str(raised.value)


def test_a_file_that_is_gone_or_a_folder_is_named(tmp_path):
    for name, reason in (("gone.txt", ".*gone.txt: No such file or directory"), ("", ".*: .*is a directory")):
        with pytest.raises(FastattnError, match=f"^cannot read {reason}$"), open_input(str(tmp_path / name)):
            pass


TEXTS = {"in/a.txt": "one\ntwo\n", "in/sub/b c%.txt": "three\n", "in/_work/c.txt": "no\n", "other/d.txt": "four"}


@pytest.fixture(scope="module")
def options(store_options):
    """The options of URLs of the bucket, which holds TEXTS."""
    system, _ = filesystem(f"s3://bucket/?{store_options}")
    system.create_dir("bucket")
    for name, text in TEXTS.items():
        with system.open_output_stream(f"bucket/{name}") as file:
            file.write(text.encode())
    return f"?{store_options}"


def test_objects_are_found_and_read_as_files_are(options):
    for name, expected in (
        ("in", ["in/a.txt", "in/sub/b%20c%25.txt"]),
        ("in/", ["in/a.txt", "in/sub/b%20c%25.txt"]),
        ("*/*.txt", ["in/a.txt", "other/d.txt"]),
        ("**/[bd]*.txt", ["in/sub/b%20c%25.txt", "other/d.txt"]),
        ("in/sub/b c%25.txt", ["in/sub/b%20c%25.txt"]),
    ):
        files = find_files([f"s3://bucket/{name}{options}"])
        assert [file.url for file in files] == [f"s3://bucket/{path}{options}" for path in expected]
        texts = [text for block in cut(files, "text", 5) for text in read_block(block, "text").texts]
        names = [path.replace("%20", " ").replace("%25", "%") for path in expected]
        assert texts == [line for path in names for line in TEXTS[path].split()]
        assert all(file.modified > 0 for file in files)


def test_what_is_not_there_is_refused_in_a_line(options):
    for name in ("bucket/nothing.txt", "bucket/x*.txt", "nobody/a.txt", "someone:hush@bucket/nothing.txt"):
        with pytest.raises(InputError, match=f"s3://{name.rpartition('@')[2][:6]}.*") as error:
            find_files([f"s3://{name}{options}"])
        assert "\n" not in str(error.value) and "hush" not in str(error.value)


def test_an_output_within_an_input_is_told(options):
    for given, out, found in (
        ("bucket/in", "bucket/in/out", True),
        ("bucket/in/", "bucket/in/out/", True),
        ("bucket", "bucket/out", True),
        ("bucket/in/**", "bucket/in/out", True),
        ("bucket/in", "bucket/in/_out", False),
        ("bucket/in", "bucket/in2", False),
        ("bucket/in/*", "bucket/in/out", False),
    ):
        given, other = f"s3://{given}{options}", f"s3://{out}{options}"
        assert input_covering(other, "part-0.parquet", ["/in", given]) == (given if found else None)
