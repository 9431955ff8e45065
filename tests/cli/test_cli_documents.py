"""``fastattn translate`` of documents: files by their form, folders that go on where they were interrupted."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.commands import run

PAGE = b"<p>The <b>red</b> house.</p>\n"
TRANSLATED = b"<p>A casa <b>vermelha</b>.</p>\n"


@pytest.fixture
def model(pulled):
    return str(pulled("en-pt"))


def translate(model, *arguments, stdin=b""):
    return run("translate", "-m", model, *arguments, stdin=stdin)


def test_a_file_by_its_name(model, tmp_path):
    (tmp_path / "a.HTM").write_bytes(PAGE)
    done = translate(model, "-i", str(tmp_path / "a.HTM"), "-o", str(tmp_path / "b.html"), "-v")
    assert done.exit_code == 0 and (tmp_path / "b.html").read_bytes() == TRANSLATED
    assert "1 file in " in done.stderr and done.stdout == ""


def test_standard_input_by_its_form(model):
    assert translate(model, "--format", "html", stdin=PAGE).stdout_bytes == TRANSLATED
    table = translate(model, "--format", "csv", "--fields", "b,c", stdin=b"a,b,c\nx,Good morning.,Good night.\n")
    assert table.stdout_bytes == b"a,b,c\nx,Bom dia.,Boa noite.\n"


def test_lines_stay_lines(model, tmp_path):
    (tmp_path / "a.html").write_bytes(b"Good morning.\n")
    (tmp_path / "a.txt").write_bytes(b"Good morning.\n")
    as_lines = translate(model, "-i", str(tmp_path / "a.html"), "--format", "txt", "--json")
    assert '"translation": "Bom dia."' in as_lines.stdout
    assert translate(model, "-i", str(tmp_path / "a.txt"), "--scores").stdout.endswith("\tBom dia.\n")


@pytest.fixture
def folder(tmp_path):
    """Documents of several forms, one of which is damaged."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.html").write_bytes(PAGE)
    (tmp_path / "in" / "deep" / "b.md").write_bytes(b"# The *red* house\n")
    (tmp_path / "in" / "deep" / "c.txt").write_bytes(b"Good morning.\n\n  Good night.\n")
    (tmp_path / "in" / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "in" / ".hidden.md").write_bytes(b"no")
    return tmp_path


def test_a_folder(model, folder):
    done = translate(model, "-i", str(folder / "in"), "--out-dir", str(folder / "out"))
    assert done.exit_code == 0 and "1 of other forms left out" in done.stderr
    found = {str(path.relative_to(folder / "out")): path.read_bytes() for path in (folder / "out").rglob("*.*")}
    assert found == {
        "a.html": TRANSLATED,
        os.path.join("deep", "b.md"): b"# A casa *vermelha*\n",
        os.path.join("deep", "c.txt"): b"Bom dia.\n\n  Boa noite.\n",
    }
    (folder / "out" / "a.html").write_bytes(b"mine")
    os.utime(folder / "in" / "deep" / "c.txt")
    again = translate(model, "-i", str(folder / "in"), "--out-dir", str(folder / "out"), "-v")
    assert "2 files translated already" in again.stderr and "1 file in " in again.stderr
    assert (folder / "out" / "a.html").read_bytes() == b"mine"  # it is newer


def test_a_damaged_file_in_a_folder(model, folder):
    (folder / "in" / "0.docx").write_bytes(b"PK\x03\x04 not an archive")
    stopped = translate(model, "-i", str(folder / "in"), "--out-dir", str(folder / "out"))
    assert stopped.exit_code == 2 and "0.docx: cannot be unpacked" in stopped.stderr
    assert not any((folder / "out").rglob("*.*"))
    done = translate(model, "-i", str(folder / "in"), "--out-dir", str(folder / "out"), "--on-error", "skip")
    assert done.exit_code == 5 and "1 of 4 files could not be translated, the first: " in done.stderr
    assert len(list((folder / "out").rglob("*.*"))) == 3 and done.stderr.count("Traceback") == 0


def test_a_folder_within_itself(model, folder):
    for _ in range(2):
        done = translate(model, "-i", str(folder / "in"), "--out-dir", str(folder / "in" / "pt"))
        assert done.exit_code == 0 and not (folder / "in" / "pt" / "pt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--format", "csv"), "name the fields to translate"),
        (("--format", "html", "--fields", "a"), "--fields is for csv, tsv and jsonl"),
        (("--fields", "a"), "--fields is for csv, tsv and jsonl"),
        (("--format", "html", "--json"), "--json, --scores and several hypotheses are for lines"),
        (("--format", "docx"), "standard input: cannot be unpacked: "),
        (("--out-dir", "x"), "--out-dir takes a folder by -i"),
        (("--out-dir", "x", "-i", "FILE"), "--out-dir is for a folder, and FILE is none"),
        (("-i", "no.html"), "cannot read no.html"),
        (("-i", "a.html", "-o", "no/b.html"), "the folder no does not exist"),
    ],
)
def test_what_is_wrong(model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    for name in ("FILE", "a.html"):
        (tmp_path / name).write_bytes(PAGE)
    done = translate(model, *arguments, stdin=PAGE)
    assert done.exit_code == 2 and message in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_a_run_that_is_killed_goes_on(model, tmp_path):
    """kill -9 in the middle of a folder: each file whole, none translated twice."""
    (tmp_path / "in").mkdir()
    text = "".join(
        f"<p>The <b>red</b> house number {n} stands near the old bridge over the river.</p>\n" for n in range(60)
    )
    for number in range(8):
        (tmp_path / "in" / f"{number}.html").write_text(text.replace("house", f"house of {number} windows"))
    folders = ["-i", str(tmp_path / "in"), "--out-dir", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fastattn", "translate", "-m", model, *folders]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(list((tmp_path / "out").glob("*.html"))) < 2 and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "out").glob("*.html")}
    assert 2 <= len(before) < 8 and all(content.count(b"</p>") == 60 for _, content in before.values())
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "out").glob("*.html")}
    assert len(after) == 8 and all(after[name] == known for name, known in before.items())
    assert all(content.count(b"</p>") == 60 for _, content in after.values())
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".html"] == []
