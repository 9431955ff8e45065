"""Lines in, files out: UTF-8 whatever the locale, bad bytes named by line, an output whole or absent."""

import io
import os
import signal
import subprocess
import sys

import click
import pytest

from fastattn.cli.lines import open_lines, open_output, progress_text, rate_text
from fastattn.cli.printing import duration
from fastattn.errors import FastattnError, InputError
from fastattn.system.files import open_file, open_folder
from tests.children import run_python
from tests.messages import refused

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX files and signals")


def texts_of(lines):
    return (text for burst in lines.bursts() for text in burst)


@pytest.fixture
def file(tmp_path):
    """A function that writes a file of some bytes, if there are any, and opens its lines."""
    opened = []

    def of(data, path=tmp_path / "input.txt"):
        if data is not None:
            path.write_bytes(data)
        opened.append(open_lines((), str(path)))
        return opened[-1]

    yield of
    for lines in opened:
        lines._source.close()


def test_lines(file):
    for data, expected in (
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\n\rb\r", ["a\r", "\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("一\u2028二\x0c三\x85四\n".encode(), ["一\u2028二\x0c三\x85四"]),
        (b"x" * 1_000_000 + b"\ny", ["x" * 1_000_000, "y"]),
    ):
        assert list(texts_of(file(data))) == expected
    arguments = texts_of(open_lines(("a", "", "b\nc", os.fsdecode("你好\r".encode())), None))
    assert list(arguments) == ["a", "", "b", "c", "你好"]
    with refused(click.UsageError):
        open_lines(("a",), "-")


def test_what_is_not_text_is_named_by_line(file):
    surrogate = b"\xed\xa0\x80"
    for data in (b"a\nb\xff\n", "你".encode("gb18030"), surrogate, b"a\nb\n\0\n", "你好\n".encode("utf-16")):
        with refused(InputError):
            list(texts_of(file(data)))
    lines = texts_of(file(b"good\n\xff\n"))
    assert next(lines) == "good"
    with refused(InputError):
        next(lines)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no /dev/zero here")
def test_an_endless_line_is_refused_before_it_fills_the_memory(file, monkeypatch):
    monkeypatch.setattr("fastattn.system.files.LONGEST_LINE", 1000)
    assert list(texts_of(file(b"a\n" + b"x" * 999 + b"\n"))) == ["a", "x" * 999]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1001)))
    for lines in (file(None, "/dev/zero"), file(b"a\n" + b"x" * 1000 + b"\n"), open_lines((), None)):
        with refused(InputError):
            list(texts_of(lines))


def test_finished_bytes_are_counted(file, tmp_path, monkeypatch):
    """Not those that are read ahead; of a file that comes as standard input too, of which a part may be gone."""
    lines, finished = file("你\nb\nc\n".encode()), []
    assert (lines.size, list(texts_of(lines))) == (8, ["你", "b", "c"])
    for _ in range(3):
        finished.append((lines.finished, lines.finished_bytes, lines.finished_characters))
        lines.finish()
    assert finished == [(0, 0, 0), (1, 4, 1), (2, 6, 2)] and lines.finished_bytes == 8
    with open(tmp_path / "input.txt", "rb") as rest:
        rest.seek(4)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(rest))
        lines = open_lines((), None)
        assert (lines.size, list(texts_of(lines))) == (4, ["b", "c"])


@POSIX
def test_the_size_of_a_pipe_is_not_known(monkeypatch):
    with subprocess.Popen(["echo"], stdout=subprocess.PIPE) as producer:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(producer.stdout))
        assert open_lines((), None).size is None
    lines = open_lines((), os.devnull)
    assert lines.size is None and list(texts_of(lines)) == []


def test_output_appears_at_the_end_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    with open_output(str(path)) as output:
        output.write(b"one")
        output.flush()
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(ZeroDivisionError), open_output(str(path)) as output:
        output.write(b"partial")
        raise ZeroDivisionError
    assert path.read_bytes() == b"one" and os.listdir(tmp_path) == ["out"]


@POSIX
def test_output_keeps_permissions_and_links(tmp_path):
    kept, link, new = tmp_path / "kept", tmp_path / "link", tmp_path / "new"
    kept.write_bytes(b"")
    kept.chmod(0o640)
    link.symlink_to(kept)
    before = os.umask(0o022)
    try:
        for path in (link, new):
            with open_output(str(path)) as output:
                output.write(b"x")
    finally:
        os.umask(before)
    assert link.is_symlink() and kept.read_bytes() == b"x"
    assert [path.stat().st_mode & 0o777 for path in (kept, new)] == [0o640, 0o644]


def test_unwritable_output_is_found_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, path in (
        *((open_output, path) for path in (tmp_path, "none/out", "none/more/out", "a\0b")),
        *((open_folder, path) for path in ("none/out", "none/more/out", "a\0b")),
    ):
        with refused(FastattnError), place(os.path.normpath(path)):
            pytest.fail("the work was started")
    assert os.listdir(tmp_path) == []


KILLED = """
import os, sys
from fastattn.system.files import open_file, open_folder
opened = globals()[sys.argv[1]](sys.argv[2])
opened.__enter__()
os._exit(9)
"""


@POSIX
@pytest.mark.parametrize("place", [open_file, open_folder])
def test_the_next_run_of_a_name_deletes_what_killed_ones_left(tmp_path, place):
    """And nothing else: not what a living run is at, nor what is another name's or looks alike."""
    strangers = {".fastattn-0123456789ab.part", ".fastattn-0123456789abcdef-01234567.part", "out.part"}
    for stranger in strangers:
        (tmp_path / stranger).write_text("x")
    for name in ("other", "out"):
        run_python(KILLED, place.__name__, str(tmp_path / name))
    left = {*os.listdir(tmp_path)}
    with pytest.raises(ZeroDivisionError), place(str(tmp_path / "out")):
        begun = {*os.listdir(tmp_path)}
        assert len(left - strangers) == 2 and len(left - begun) == len(begun - left) == 1
        with place(str(tmp_path / "out")):
            pass
        assert {*os.listdir(tmp_path)} == begun | {"out"}
        raise ZeroDivisionError
    assert {*os.listdir(tmp_path)} == begun & left | {"out"}


@POSIX
@pytest.mark.skipif(os.path.exists("/dev/full") is False, reason="no /dev/full here")
def test_full_disk_and_devices():
    with open_output(os.devnull) as output:
        output.write(b"gone")
    assert os.path.exists(os.devnull)
    with refused(FastattnError), open_output("/dev/full") as output:
        output.write(b"x")


INTERRUPTED = """
import hashlib, sys
from fastattn.cli.interrupt import exit_on_signals
from fastattn.cli.lines import open_output
exit_on_signals()
with open_output(sys.argv[1]) as output:
    output.write(b"partial")
    output.flush()
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # many minutes of native code without the GIL, as a kernel is
"""


@POSIX
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_native_code_at_once(tmp_path, name):
    number = getattr(signal, name)
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        assert len(os.listdir(tmp_path)) == 1
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)  # were it not to end at once, it would take longer than this
    assert (process.returncode, stderr, os.listdir(tmp_path)) == (128 + number, "", [])


def test_speed_share_and_time_left(file):
    lines = file("你好\nabcd\n".encode())
    assert len(list(texts_of(lines))) == 2
    assert progress_text(lines, 0.5) == rate_text(lines, 0.5) == "0 lines, 0.0 lines/s, 0 characters/s"
    lines.finish()
    assert progress_text(lines, 70.0) == "1 line, 0.0 lines/s, 0 characters/s, 58%, 50 s left"
    assert progress_text(lines, 700.0).endswith(", 58%, 8 min left")
    lines.finish()
    assert progress_text(lines, 0.5) == "2 lines, 4.0 lines/s, 12 characters/s, 100%"
    lines.size = None
    assert progress_text(lines, 0.5) == rate_text(lines, 0.5) == "2 lines, 4.0 lines/s, 12 characters/s"
    told = {0.2: "1 s", 59.4: "59 s", 59.5: "1 min", 3569: "59 min", 3571: "1 h 0 min", 360_000: "100 h 0 min"}
    assert {seconds: duration(seconds) for seconds in told} == told
