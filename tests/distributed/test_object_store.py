"""Inputs in an object store, which a server in this process stands for."""

import pytest

pytest.importorskip("pyarrow", reason="files of a job are read by pyarrow")

from fastattn.distributed.formats import cut, read_block
from fastattn.distributed.storage import filesystem, find_files, input_with
from fastattn.errors import InputError

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


@pytest.mark.parametrize(
    "name, expected",
    [
        ("in", ["in/a.txt", "in/sub/b%20c%25.txt"]),
        ("in/", ["in/a.txt", "in/sub/b%20c%25.txt"]),
        ("*/*.txt", ["in/a.txt", "other/d.txt"]),
        ("**/[bd]*.txt", ["in/sub/b%20c%25.txt", "other/d.txt"]),
        ("in/sub/b c%25.txt", ["in/sub/b%20c%25.txt"]),
    ],
)
def test_objects_are_found_and_read_as_files_are(options, name, expected):
    files = find_files([f"s3://bucket/{name}{options}"])
    assert [file.url for file in files] == [f"s3://bucket/{path}{options}" for path in expected]
    texts = [text for block in cut(files, "text", 5) for text in read_block(block, "text").texts]
    names = [path.replace("%20", " ").replace("%25", "%") for path in expected]
    assert texts == [line for path in names for line in TEXTS[path].split()]
    assert all(file.modified > 0 for file in files)


@pytest.mark.parametrize("name", ["bucket/nothing.txt", "bucket/x*.txt", "nobody/a.txt"])
def test_what_is_not_there_is_refused_in_a_line(options, name):
    with pytest.raises(InputError, match=f"s3://{name[:6]}.*") as error:
        find_files([f"s3://{name}{options}"])
    assert "\n" not in str(error.value)


def test_a_secret_in_a_url_is_in_no_message(options):
    with pytest.raises(InputError) as error:
        find_files([f"s3://someone:hush@bucket/nothing.txt{options}"])
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    "given, out, found",
    [
        ("bucket/in", "bucket/in/out", True),
        ("bucket/in/", "bucket/in/out/", True),
        ("bucket", "bucket/out", True),
        ("bucket/in/**", "bucket/in/out", True),
        ("bucket/in", "bucket/in/_out", False),
        ("bucket/in", "bucket/in2", False),
        ("bucket/in/*", "bucket/in/out", False),
    ],
)
def test_an_output_within_an_input_is_told(options, given, out, found):
    given, other = f"s3://{given}{options}", f"s3://{out}{options}"
    assert input_with(other, "part-0.parquet", ["/in", given]) == (given if found else None)
