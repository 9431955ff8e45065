"""``fastattn translate`` of documents: files by their form, folders that go on where they were interrupted."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fastattn.documents import translating
from tests import ROOT
from tests.cli.commands import run
from tests.documents.archives import pdf
from tests.documents.backwards import Backwards

PAGE = b"<p>The <b>red</b> house.</p>\n"
TRANSLATED = b"<p>house. <b>red</b> The</p>\n"


@pytest.fixture(autouse=True)
def translator(monkeypatch, tmp_path):
    """One that turns words round, which the command gets for the folder "any"."""
    translator = Backwards()
    monkeypatch.setattr("fastattn.translation.translator.Translator", lambda path, **options: translator)
    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    return translator


def translate(*arguments, stdin=b""):
    return run("translate", "-m", "any", *arguments, stdin=stdin)


def test_a_file_by_its_name(tmp_path, translator):
    (tmp_path / "a.HTM").write_bytes(PAGE + b"<p>one two</p>")
    done = translate("-i", "a.HTM", "-o", "b.html", "-v", "--beam-size", 3)
    assert done.exit_code == 0 and (tmp_path / "b.html").read_bytes() == TRANSLATED + b"<p>two one</p>"
    assert "1 file in " in done.stderr and done.stdout == ""
    # of the guard, and of the translator of texts in capitals
    search = {"beam_size": 3, "return_scores": False, "return_exceptions": True, "details": True}
    marked = search | {"return_attention": True}
    assert translator.told == [("one two", search), ("The red house.", marked)]


def test_extras_the_language_and_what_is_left(tmp_path):
    (tmp_path / "a.md").write_bytes(b"---\ntitle: one two\n---\n\n    code\n")
    done = translate("-i", "a.md", "--extra", "front-matter")
    assert done.stdout == "---\ntitle: two one\n---\n\n    code\n"
    assert done.stderr.splitlines() == ["fastattn: a.md: 4 characters of its text left as before"]
    (tmp_path / "a.html").write_bytes(b"<html lang=en><p>one two</p>")
    done = translate("-i", "a.html", "--to", "Portuguese")
    assert (done.stdout, done.stderr) == ('<html lang="pt"><p>two one</p>', "")


@pytest.fixture
def folder(tmp_path):
    """Documents of several forms."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.html").write_bytes(PAGE)
    (tmp_path / "in" / "deep" / "b.md").write_bytes(b"# The *red* house\n")
    (tmp_path / "in" / "deep" / "c.txt").write_bytes(b"Good morning.\n\n  Good night.\n")
    (tmp_path / "in" / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "in" / ".hidden.md").write_bytes(b"no")
    return tmp_path


FOLDERS = ("-i", "in", "--out-dir", "out")
# Arguments, and the file that is read, its form, the fields that are translated, where it goes.
ASKED = [
    (("-i", "in/a.html", "-o", "b"), [("in/a.html", "html", (), "b")]),
    (("-i", "in/a.html", "--format", "md"), [("in/a.html", "md", (), "-")]),
    (("--format", "html"), [("standard input", "html", (), "-")]),
    (("-i", "-", "--format", "po"), [("standard input", "po", (), "-")]),
    (("-i", "t.csv", "--fields", "text,2"), [("t.csv", "csv", ("text", "2"), "-")]),
    (("-i", "t.csv", "--fields", "a.b", "--format", "jsonl"), [("t.csv", "jsonl", ("a.b",), "-")]),
    (
        (*FOLDERS, "--fields", "text"),
        [
            (f"in/{name}", name.rpartition(".")[2], ("text",) if name == "z.csv" else (), f"out/{name}")
            for name in ("a.html", "z.csv", "deep/b.md", "deep/c.txt")
        ],
    ),
    (
        (*FOLDERS, "--format", "md"),
        [(f"in/{one}", "md", (), f"out/{one}") for one in "a.html picture.png z.csv deep/b.md deep/c.txt".split()],
    ),
]


def test_what_is_asked_for_arrives(folder, monkeypatch):
    calls = []

    def recorded(translator, data, form, *, name, fields, **options):
        calls.append((name, form, tuple(fields)))
        return translating.TranslatedDocument(f"{form} of {name}: ".encode() + data)

    monkeypatch.setattr(translating, "translate_document", recorded)
    for name in ("in/z.csv", "t.csv"):
        (folder / name).write_bytes(b"text,a\n")
    for arguments, expected in ASKED:
        calls.clear()
        done = translate(*arguments, stdin=b"typed")
        assert (done.exit_code, calls) == (0, [one[:3] for one in expected]), arguments
        for name, form, _, place in expected:
            data = b"typed" if name == "standard input" else (folder / name).read_bytes()
            written = done.stdout_bytes if place == "-" else (folder / place).read_bytes()
            assert written == f"{form} of {name}: ".encode() + data
        for path in (folder / "out").rglob("[!.]*.*"):
            path.unlink()


def test_a_pdf_becomes_a_page(folder):
    pytest.importorskip("pypdfium2", reason="PDF needs the extra fastattn[pdf]")
    (folder / "in" / "a.pdf").write_bytes(pdf([(50, 700, 10, "one two")]))
    note = "fastattn: a PDF becomes HTML: layout, tables and figures are in pictures of its pages alone"
    for arguments, place in ((("-i", "in/a.pdf", "-o", "b.html"), "b.html"), (FOLDERS, "out/a.pdf.html")):
        done = translate(*arguments)
        assert note in done.stderr.splitlines() and b"<p>two one</p>" in (folder / place).read_bytes()
    assert (folder / "out" / "a.html").read_bytes() == TRANSLATED
    assert "4 files translated already" in translate(*FOLDERS).stderr
    refused = translate("-i", "in/a.pdf", "-o", "b.pdf")
    assert refused.exit_code == 2 and "is an HTML page: give -o NAME.html, not b.pdf" in refused.stderr


def test_lines_stay_lines(tmp_path):
    for name in ("a.html", "a.txt"):
        (tmp_path / name).write_bytes(b"one two\n")
    as_lines = translate("-i", "a.html", "--format", "txt", "--json")
    assert '"source": "one two", "translation": "two one"' in as_lines.stdout
    assert translate("-i", "a.txt", "--scores").stdout.endswith("\ttwo one\n")


def test_a_folder(folder):
    done = translate(*FOLDERS)
    assert done.exit_code == 0 and "1 of other forms left out" in done.stderr
    found = {str(path.relative_to(folder / "out")): path.read_bytes() for path in (folder / "out").rglob("[!.]*.*")}
    assert found == {
        "a.html": TRANSLATED,
        os.path.join("deep", "b.md"): b"# house *red* The\n",
        os.path.join("deep", "c.txt"): b"morning. Good\n\n  night. Good\n",
    }
    (folder / "out" / "a.html").write_bytes(b"mine")
    os.utime(folder / "in" / "deep" / "c.txt")
    again = translate(*FOLDERS, "-v")
    assert "2 files translated already" in again.stderr and "1 file in " in again.stderr
    assert (folder / "out" / "a.html").read_bytes() == b"mine"  # it is newer
    for options, count in ((["-b", 3], 3), (["-b", 3, "--threads", 1], 0), (["-b", 3, "--keep", "x"], 3), ([], 3)):
        other = translate(*FOLDERS, *options)
        assert f"{3 - count} files translated already" in other.stderr
    assert (folder / "out" / "a.html").read_bytes() == TRANSLATED


def test_a_damaged_file_in_a_folder(folder):
    (folder / "in" / "0.docx").write_bytes(b"PK\x03\x04 not an archive")
    (folder / "out").mkdir()
    (folder / "out" / "deep").write_text("a file")
    stopped = translate(*FOLDERS)
    assert stopped.exit_code == 2 and "0.docx: cannot be unpacked" in stopped.stderr
    assert not any((folder / "out").rglob("[!.]*.*"))
    done = translate(*FOLDERS, "--on-error", "skip")
    assert done.exit_code == 5 and "3 of 4 files could not be translated, the first: " in done.stderr
    assert sorted(one.name for one in (folder / "out").iterdir()) == [".fastattn", "a.html", "deep"]
    (folder / "out" / "deep").unlink()
    done = translate(*FOLDERS, "--on-error", "skip")
    assert done.exit_code == 5 and "1 of 3 files could not be translated, the first: " in done.stderr
    assert len(list((folder / "out").rglob("[!.]*.*"))) == 3 and done.stderr.count("Traceback") == 0


def test_a_folder_within_itself(folder):
    for _ in range(2):
        done = translate("-i", "in", "--out-dir", "in/pt")
        assert done.exit_code == 0 and not (folder / "in" / "pt" / "pt").exists()
    for same in ("in", "in/", "./in"):
        done = translate("-i", "in", "--out-dir", same)
        assert done.exit_code == 2 and "--out-dir is the folder of -i" in done.stderr
    assert (folder / "in" / "a.html").read_bytes() == PAGE


# A command whose translator takes its time.
SLOW = """
import sys, time
from fastattn.cli import main
from fastattn.translation import translator
from tests.documents.backwards import Backwards

class Slow(Backwards):
    def translate_iter(self, texts, **options):
        for result in super().translate_iter(texts, **options):
            time.sleep(0.001)
            yield result

translator.Translator = lambda path, **options: Slow()
main()
"""


def test_a_run_that_is_killed_goes_on(tmp_path):
    """kill -9 in the middle of a folder: each file whole, none translated twice."""
    (tmp_path / "in").mkdir()
    for number in range(8):
        text = "".join(f"<p>The <b>red</b> house number {n} of {number} windows</p>\n" for n in range(60))
        (tmp_path / "in" / f"{number}.html").write_text(text)
    folders = ["-i", str(tmp_path / "in"), "--out-dir", str(tmp_path / "out")]
    command = [sys.executable, "-c", SLOW, "translate", "-m", str(tmp_path / "any"), *folders]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    while len(list((tmp_path / "out").glob("*.html"))) < 2:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "out").glob("*.html")}
    assert 2 <= len(before) < 8 and all(content.count(b"</p>") == 60 for _, content in before.values())
    subprocess.run(command, stderr=subprocess.DEVNULL, cwd=ROOT, check=True)
    after = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tmp_path / "out").glob("*.html")}
    assert len(after) == 8 and all(after[name] == known for name, known in before.items())
    assert all(content.count(b"</p>") == 60 for _, content in after.values())
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".html"] == [".fastattn"]


def test_tables_of_a_folder_without_fields_are_left_out(folder):
    (folder / "in" / "a.csv").write_bytes(b"a,b\n")
    done = translate(*FOLDERS)
    assert done.exit_code == 0 and "2 of other forms left out" in done.stderr


def test_a_memory_is_read_in_the_languages_of_the_models(tmp_path, monkeypatch):
    monkeypatch.setattr("fastattn.cli.translate.find_entry", lambda entry, progress: "any")
    (tmp_path / "en-pt").mkdir()
    texts = "".join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("en", "A"), ("de", "B"), ("pt", "C"))
    )
    (tmp_path / "t.tmx").write_text(f"<tmx><body><tu>{texts}</tu></body></tmx>")
    for languages in (
        ("--from", "en", "--to", "pt"),
        ("-m", "en-pt"),
        ("-m", "any", "--from", "en", "--to", "Portuguese"),
    ):
        assert run("translate", *languages, "--memory", "t.tmx", "A").stdout == "C\n", languages
    done = run("translate", "-m", "any", "--memory", "t.tmx", "A")
    assert done.exit_code == 2 and "t.tmx: has en, de, pt: name the two languages" in done.stderr


def test_a_folder_is_translated_anew_with_another_glossary_of_the_same_name(folder):
    for terms, files in (("one\ttwo\n", "3 files"), ("", "0 files"), ("one\tthree x\n", "3 files")):
        if terms:
            (folder / "terms.tsv").write_text(terms)
        done = translate(*FOLDERS, "--memory", "terms.tsv", "-v")
        assert done.exit_code == 0 and f"{files} in " in done.stderr, done.stderr
    done = translate(*FOLDERS, "--memory", "none.tsv")
    assert done.exit_code == 2 and "none.tsv" in done.stderr and "Traceback" not in done.stderr
