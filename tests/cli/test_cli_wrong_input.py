"""Wrong input of each kind, in each command that takes such: one clear line, an exit code, no traceback."""

import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import fail, run
from tests.encoders.classifiers import write_classifier

WRITES = pytest.mark.skipif(os.name != "posix", reason="devices")
TRANSLATE, ENCODE, RERANK = ("translate", "-m", "tiny"), ("encode", "-m", "bert"), ("rerank", "-m", "bert", "Who?")
CLASSIFY = ("classify", "-m", "bert")
SEARCH, CALIBRATED = ("search", "-m", "bert", "a", "-i"), ("encode", "-m", "bert", "a", "--output-dtype", "int8")
READERS = (TRANSLATE, ENCODE, RERANK, CLASSIFY)


@pytest.fixture(scope="module")
def files(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(model, folder / "tiny")
    write_classifier(folder / "bert")
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)) * 10)
    (folder / "empty").touch()
    (folder / "page.pdf").write_bytes(b"%PDF-1.4 \xff\n")
    (folder / "text.txt").write_text("a\nb\n", encoding="utf-8")
    np.save(folder / "nan.npy", np.full((2, 36), np.nan, np.float32))
    np.save(folder / "integers.npy", np.zeros((2, 36), np.int8))
    return folder


@pytest.fixture(autouse=True)
def _there(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)


def test_files_of_lines():
    for command, (name, told) in product(
        READERS,
        (
            ("missing", "cannot read missing: No such file"),
            ("folder", "cannot read folder: "),
            ("binary", "binary, line 1: a NUL byte, so this is not text"),
            ("page.pdf", "page.pdf, line 1: not UTF-8"),
        ),
    ):
        assert fail(2, *command, "-i", name).startswith(told), command


def test_a_file_without_lines_gives_none():
    for command in READERS:
        result = run(*command, "-i", "empty")
        assert (result.exit_code, result.stdout) == (0, ""), command


def test_files_of_vectors():
    for before in (SEARCH, (*CALIBRATED, "--calibration")):
        for name in ("missing", "folder", "binary", "empty", "text.txt", "page.pdf"):
            told = fail(2, *before, name)
            expected = (f"cannot read {name}: ", f"{name}: a .npy file with an array of numbers is expected")
            assert told.startswith(expected), before
    told = "ranges that float32 can hold are expected, got numbers that are not finite or too far apart"
    assert fail(2, *CALIBRATED, "--calibration", "nan.npy") == told
    assert fail(2, *SEARCH, "integers.npy", "--calibration", "nan.npy") == told


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "a", "-m"),
        ("encode", "a", "-m"),
        ("rerank", "a", "b", "-m"),
        ("classify", "a", "-m"),
        ("search", "a", "-i", "nan.npy", "-m"),
        ("inspect",),
        ("verify",),
        ("convert", "-p", "int8"),
    ],
)
def test_models(command):
    out = ["out"] if command[0] == "convert" else []
    for name in ("missing", "folder", "binary", "empty", "page.pdf", "text.txt"):
        told = fail(3, *command, name, *out)
        assert "neither an existing path nor in the catalog" in told or "not a checkpoint of a known format" in told
    assert not os.path.exists("out")


@WRITES
def test_places_of_output():
    for command in ((*TRANSLATE, "--max-length", 2, "a"), (*ENCODE, "a", "--format", "jsonl")):
        for name in ("folder", "no/out", "text.txt/out", "/dev/full", ""):
            told = run(*command, "-o", name)
            assert told.exit_code in (1, 2) and told.stderr.splitlines()[-1].startswith(
                (f"fastattn: cannot write {name}: ", "fastattn: a file's path should not be empty")
            )
            assert "Traceback" not in told.stderr
    for name, code in (("bert", 2), ("text.txt", 2), ("no/a/b", 2), ("text.txt/out", 1), ("", 2)):
        told = fail(code, "convert", "tiny", name, "-p", "float32")
        assert told.startswith(
            (f"{name} exists already", f"cannot write {name}: ", "a file's path should not be empty")
        )


def test_threads():
    for command in ((*TRANSLATE, "a"), (*ENCODE, "a"), (*RERANK, "a"), (*CLASSIFY, "a"), (*SEARCH, "nan.npy")):
        for value in (0, -1, "two"):
            assert fail(2, *command, "-t", value).startswith("Invalid value for '-t' / '--threads'")
    common = (*TRANSLATE, "--max-length", 2, "▁w1")  # more than there are is all of them
    assert run(*common, "-t", 1000).stdout == run(*common, "-t", 1).stdout != ""


def test_numbers_of_a_search():
    for option in (
        ("-n", 0),
        ("-n", -1),
        ("-b", 0),
        ("-b", 10**20),
        ("--timeout", "nan"),
        ("--patience", "nan"),
        ("--length-penalty", "inf"),
        ("--word-penalty", "nan"),
        ("--max-length", 0),
        ("--sampling-topp", 2),
        ("--sampling-temperature", "nan"),
        ("--seed", -1),
        ("--prefix-bias", 1),
    ):
        assert fail(2, *TRANSLATE, "a", *option).startswith("--"), option


# Other arguments, and how what is told of them begins.
OTHER = [
    (("translate", "--from", "xx", "a"), "no model of the catalog translates from xx; "),
    (("translate", "--from", "klingon", "a"), "no model of the catalog translates from klingon; "),
    (("translate", "--from", "en", "--to", "xx", "a"), "no model of the catalog translates from en to xx; "),
    (
        ("translate", "--from", "en", "-m", "tiny", "a"),
        "--from 'en' does not go with this model, which does not say",
    ),
    (("search", "-i", "nan.npy", "-k", 0, "a"), "Invalid value for '-k' / '--top-k'"),
    (("search", "-i", "nan.npy", "--texts", "empty", "a"), "empty has 0 lines, nan.npy 2 vectors: "),
    (("verify", "tiny", "--bound", "nan"), "--bound should be a finite number, got nan"),
    (("verify", "tiny", "--bound", "-1"), "Invalid value for '--bound'"),
    (("cache", "clear", "--all", "--older-than", "nan"), "Invalid value for '--older-than'"),
    (("cache", "claer"), "no command 'claer'; did you mean clear?"),
    (("batch", "tranlate"), "no command 'tranlate'; did you mean translate?"),
    (("warmup", "a"), "Got unexpected extra argument (a)"),
    (("pull", "minlm"), "no 'minlm' in the catalog; "),
]


def test_other_arguments():
    for arguments, told in OTHER:
        assert fail(3 if arguments[0] == "pull" else 2, *arguments).startswith(told), arguments
