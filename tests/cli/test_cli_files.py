"""Lines in, files out: UTF-8 whatever the locale, bad bytes named by line, an output whole or absent."""

import io
import os
import signal
import subprocess
import sys
import textwrap

import click
import pytest

from fastattn.cli.lines import open_lines, open_output
from fastattn.cli.printing import Progress, duration, pace, rate
from fastattn.errors import FastattnError, InputError
from fastattn.system import progress
from fastattn.system.files import open_folder

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX files and signals")


def texts_of(lines):
    return (text for burst in lines.bursts() for text in burst)


def lines_of(tmp_path, data):
    path = tmp_path / "input.txt"
    path.write_bytes(data)
    return list(texts_of(open_lines((), str(path))))


def test_lines(tmp_path):
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
        assert lines_of(tmp_path, data) == expected


def test_what_is_not_text_is_named_by_line(tmp_path):
    for data, message in (
        (b"a\nb\xff\n", r"input.txt, line 2: not UTF-8 \(byte 0xff at column 2\)"),
        ("你".encode("gb18030"), "line 1: not UTF-8"),
        (b"\xed\xa0\x80", "line 1: not UTF-8"),  # a lone surrogate
        (b"a\nb\n\0\n", "line 3: a NUL byte"),
        ("你好\n".encode("utf-16"), "line 1: not UTF-8"),
    ):
        with pytest.raises(InputError, match=message):
            lines_of(tmp_path, data)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no /dev/zero here")
def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("fastattn.system.files.LONGEST_LINE", 1000)
    with pytest.raises(InputError, match="/dev/zero, line 1: longer than 1,000 bytes"):
        list(texts_of(open_lines((), "/dev/zero")))
    assert lines_of(tmp_path, b"a\n" + b"x" * 999 + b"\n") == ["a", "x" * 999]
    with pytest.raises(InputError, match="line 2: longer"):
        lines_of(tmp_path, b"a\n" + b"x" * 1000 + b"\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1001)))
    with pytest.raises(InputError, match="standard input, line 1: longer"):
        list(texts_of(open_lines((), None)))


def test_lines_before_a_bad_one_come_first(tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes(b"good\n\xff\n")
    lines = texts_of(open_lines((), str(path)))
    assert next(lines) == "good"
    with pytest.raises(InputError, match="line 2"):
        next(lines)


def test_input_that_cannot_be_read(tmp_path):
    for path, reason in ((tmp_path / "none.txt", "No such file"), (tmp_path, "directory|denied")):
        with pytest.raises(InputError, match=f"cannot read .*{path.name}.*({reason})"):
            open_lines((), str(path))


def test_arguments_are_lines():
    assert list(texts_of(open_lines(("a", "", "b\nc", os.fsdecode("你好\r".encode())), None))) == [
        "a",
        "",
        "b",
        "c",
        "你好",
    ]
    with pytest.raises(click.UsageError, match="not both"):
        open_lines(("a",), "-")


def test_finished_bytes_are_counted(tmp_path, monkeypatch):
    """Not those that are read ahead; of a file that comes as standard input too, of which a part may be gone."""
    path = tmp_path / "input.txt"
    path.write_bytes("你\nb\nc\n".encode())
    lines = open_lines((), str(path))
    assert lines.size == 8
    assert list(texts_of(lines)) == ["你", "b", "c"]
    assert (lines.finished, lines.finished_bytes, lines.finished_characters) == (0, 0, 0)
    lines.finish()
    assert (lines.finished, lines.finished_bytes, lines.finished_characters) == (1, 4, 1)
    lines.finish()
    lines.finish()
    assert (lines.finished, lines.finished_bytes, lines.finished_characters) == (3, 8, 3)
    with open(path, "rb") as file:
        file.seek(4)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        lines = open_lines((), None)
        assert (lines.size, list(texts_of(lines))) == (4, ["b", "c"])


@POSIX
def test_the_size_of_a_pipe_is_not_known(monkeypatch):
    with subprocess.Popen(["echo"], stdout=subprocess.PIPE) as producer:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(producer.stdout))
        assert open_lines((), None).size is None
    lines = open_lines((), os.devnull)
    assert lines.size is None and list(texts_of(lines)) == []


def test_output_appears_at_the_end(tmp_path):
    path = tmp_path / "out"
    with open_output(str(path)) as output:
        output.write(b"one")
        output.flush()
        assert not path.exists()
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["out"]


def test_output_of_a_failure_is_not_seen(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), open_output(str(path)) as output:
        output.write(b"partial")
        raise ZeroDivisionError
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["out"]


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


def test_unwritable_output_is_found_before_the_work(tmp_path):
    for path in (tmp_path, tmp_path / "none" / "out"):
        with pytest.raises(FastattnError, match=f"cannot write .*{path.name}: "), open_output(str(path)):
            pytest.fail("the work was started")
    with pytest.raises(InputError, match="cannot write 'a.x00b': a NUL byte"), open_output("a\0b"):
        pytest.fail("the work was started")
    with pytest.raises(InputError, match="cannot write 'a.x00b': a NUL byte"), open_folder("a\0b"):
        pytest.fail("the work was started")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (open_output, open_folder):
        for path, folder in (("none/out", "none"), ("none/more/out", "none/more")):
            path, folder = os.path.normpath(path), os.path.normpath(folder)
            with pytest.raises(InputError) as raised, place(path):
                pytest.fail("the work was started")
            assert str(raised.value) == f"cannot write {path}: the folder {folder} does not exist"
    assert os.listdir(tmp_path) == []


@POSIX
@pytest.mark.skipif(os.path.exists("/dev/full") is False, reason="no /dev/full here")
def test_full_disk_and_devices():
    with open_output(os.devnull) as output:
        output.write(b"gone")
    assert os.path.exists(os.devnull)
    with pytest.raises(FastattnError, match="cannot write /dev/full: No space"), open_output("/dev/full") as output:
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
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_end_native_code_at_once(tmp_path, name):
    path = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        assert len(os.listdir(tmp_path)) == 1
        process.send_signal(getattr(signal, name))
        _, stderr = process.communicate(timeout=60)  # were it not to end at once, it would take longer than this
    assert process.returncode == 128 + getattr(signal, name)
    assert stderr == ""
    assert os.listdir(tmp_path) == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_redraws_one_line_on_a_terminal_alone(monkeypatch):
    for stream, shown in ((io.StringIO(), ""), (Terminal(), "\rcompiling one\rtwo          \r   \r")):
        monkeypatch.setattr("sys.stderr", stream)
        with Progress() as progress:
            progress.show("compiling one", at_once=True)
            progress.show("too soon after")
            progress.show("two", at_once=True)
        assert stream.getvalue() == shown


def test_progress_of_hours_is_a_line_a_minute_where_there_is_no_terminal(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr("sys.stderr", stream)
        with Progress(log=True) as line:
            for second in range(0, 200, 7):
                now[0] = 100.0 + second
                line.show(f"{second} s\n")
        logged = "".join(f"fastattn: {second} s\\n\n" for second in (63, 126, 189))
        assert stream.getvalue() == logged or stream.isatty() and "\n" not in stream.getvalue()


def test_speed_share_and_time_left(tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes("你好\nabcd\n".encode())
    lines = open_lines((), str(path))
    assert len(list(texts_of(lines))) == 2
    assert pace(lines, 0.5) == rate(lines, 0.5) == "0 lines, 0.0 lines/s, 0 characters/s"
    lines.finish()
    assert pace(lines, 70.0) == "1 line, 0.0 lines/s, 0 characters/s, 58%, 50 s left"
    assert pace(lines, 700.0).endswith(", 58%, 8 min left")
    lines.finish()
    assert pace(lines, 0.5) == "2 lines, 4.0 lines/s, 12 characters/s, 100%"
    lines.size = None
    assert pace(lines, 0.5) == rate(lines, 0.5) == "2 lines, 4.0 lines/s, 12 characters/s"


def test_durations():
    told = {0.2: "1 s", 59.4: "59 s", 59.5: "1 min", 3569: "59 min", 3571: "1 h 0 min", 360_000: "100 h 0 min"}
    assert {seconds: duration(seconds) for seconds in told} == told
