"""Wrong usage and input, in each command that takes such: one clear line, an exit code, no traceback."""

import os
import shlex
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import fail, refuse, run
from tests.encoders.classifiers import LABELS, TOKENS, write_classifier
from tests.encoders.test_encoder import WIDTH, _write_folder
from tests.generation.language_models import checkpoint
from tests.weights.native.folders import converted

TRANSLATE, ENCODE, RERANK = ("translate", "-m", "tiny"), ("encode", "-m", "bert"), ("rerank", "-m", "bert", "Who?")
CLASSIFY = ("classify", "-m", "bert")
SEARCH, CALIBRATED = ("search", "-m", "bert", "a", "-i"), ("encode", "-m", "bert", "a", "--output-dtype", "int8")
READERS = (TRANSLATE, ENCODE, RERANK, CLASSIFY)


@pytest.fixture(scope="module")
def files(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(model, folder / "tiny")
    write_classifier(folder / "bert")
    write_classifier(folder / "labels", LABELS)
    write_classifier(folder / "tokens", TOKENS)
    (folder / "prompted").mkdir()
    _write_folder(folder / "prompted")
    converted(checkpoint(max_length=40), folder / "lm", "float32")
    (folder / "folder").mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content.encode("latin-1"))
    vectors = np.ones((5, WIDTH), np.float32)
    for name, array in {
        "nan": np.full((2, 36), np.nan, np.float32),
        "integers": np.zeros((2, 36), np.int8),
        "fitting": vectors,
        "narrow": vectors[:, :3],
        "wide": np.zeros((2, WIDTH + 1), np.float32),
        "whole": vectors.astype(np.int8),
        "double": vectors.astype(float),
        "one": vectors[0],
        "swapped": vectors.astype(">f4"),
        "objects": np.array([{}]),
    }.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    np.savez(folder / "several.npz", a=np.ones(3))
    (folder / "cut.npy").write_bytes((folder / "narrow.npy").read_bytes()[:-1])
    return folder


# Names and contents of files.
FILES = {
    "binary": "".join(map(chr, range(256))) * 10,
    "empty": "",
    "page.pdf": "%PDF-1.4 \xff\n",
    "page.html": "<p>a",
    "text.txt": "a\nb\n",
    "without.jsonl": '{"text": "a"}\n',
    "numbers.jsonl": "[1.5]\n",
    "true.jsonl": '{"embedding": [true]}\n',
    "none.jsonl": '{"embedding": []}\n',
    "letters.csv": "1.5,2.5\n1.5,a\n",
    "ragged.csv": "1.5,2.5\n1.5\n",
    "small.csv": "1,2\n",
    "both.csv": "-1,200\n",
    "long.csv": "1" * 30 + "\n",
}


@pytest.fixture(autouse=True)
def _there(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)


# Exit codes, and command lines that end so.
WRONG = {
    2: """
        sing
        cache claer
        batch tranlate
        tranlate a
        translate --compute-type int8
        translate --max-new-tokens 9
        encode --batch-size 9
        generate -m lm --top-k 3 x
        generate -m lm --max-length 3

        translate -m tiny -b 0 a
        translate -m tiny -b 1000000000 a
        translate -m tiny -b 2 -n 3 a
        translate -m tiny --min-length 4 --max-length 3 a
        translate -m tiny --sampling-topk 9 -b 2 a
        translate -m tiny --prefix-bias 2 a
        translate -m tiny -n 0 a
        translate -m tiny --timeout nan a
        translate -m tiny --length-penalty inf a
        translate -m tiny --sampling-topp 2 a
        translate -m tiny --seed -1 a
        translate -m tiny -i file a
        translate -m tiny --from pt a
        translate -m tiny --to pt a
        translate -m zh-en -m zh-en -m zh-en a
        translate --quality tiny a
        translate --quality tiny --from en a
        translate --quality tiny --from en --to pt -m en-pt a
        translate --prompt alma --from en --to pt a
        translate --cache-precision int8 --from en --to pt a
        translate -m tiny -o none/out a

        translate -m tiny --format csv
        translate -m tiny --format html --fields a
        translate -m tiny --fields a
        translate -m tiny --format html --json
        translate -m tiny --format html -n 2
        translate -m tiny --extra comments
        translate -m tiny --format docx
        translate -m tiny --out-dir x
        translate -m tiny --out-dir x -i text.txt
        translate -m tiny --out-dir x -i . -o y
        translate -m tiny -i no.html
        translate -m tiny -i page.html -o no/b.html

        encode -m prompted -o out.txt a
        encode -m prompted --pooling best a
        encode -m prompted --prompt-name q a
        encode -m prompted --prompt-name query --prompt '' a
        encode -m prompted --output-dtype uint8 a
        encode -m prompted --calibration narrow.npy a
        encode -m prompted -o v.npy --output-dtype int8 a --calibration narrow.npy
        encode -m prompted -o v.npy --output-dtype int8 a --calibration whole.npy
        encode -m prompted -o v.npy --output-dtype int8 a --calibration objects.npy
        encode -m prompted -o v.npy --output-dtype int8 a --calibration several.npz
        encode -m bert -o v.npy --output-dtype int8 a --calibration nan.npy

        search a
        search -m prompted a -i wide.npy
        search -m prompted a -i whole.npy
        search -m prompted a -i double.npy
        search -m prompted a -i one.npy
        search -m prompted a -i swapped.npy
        search -m prompted a -i cut.npy
        search -m prompted a -i fitting.npy --calibration fitting.npy
        search -m prompted a -i fitting.npy --texts text.txt
        search -m bert a -i integers.npy --calibration nan.npy
        search -m prompted a -i without.jsonl
        search -m prompted a -i numbers.jsonl
        search -m prompted a -i true.jsonl
        search -m prompted a -i none.jsonl
        search -m prompted a -i letters.csv
        search -m prompted a -i ragged.csv
        search -m prompted a -i small.csv
        search -m prompted a -i both.csv
        search -m prompted a -i long.csv

        classify a
        classify -m bert --all -k 2 a
        rerank q a
        rerank -m labels q a

        generate x
        generate -m lm --max-new-tokens 0 x
        generate -m lm --sampling-minp 3 x
        generate -m lm --log-probs x
        generate -m lm --system a x
        generate -m lm --score --chat x
        generate -m lm --chat x
        generate -m lm --end-token nowhere x
        generate -m lm xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        generate -m lm --score xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx

        verify tiny --bound nan
        convert tiny bert -p float32
        convert tiny no/a/b -p float32
        convert tiny '' -p float32
        """,
    3: """
        pull minlm
        encode -m minlm a
        inspect minlm
        encode -m tiny a
        generate -m tiny x
        translate -m prompted a
        classify -m tokens a
        classify -m prompted a
        rerank -m prompted q a
        """,
}


def test_what_is_wrong_is_told_in_one_line(files: Path):
    before = {*os.listdir()}
    for code, lines in WRONG.items():
        for line in filter(None, map(str.strip, lines.splitlines())):
            refuse(code, *shlex.split(line), stdin=b"<p>a")
    assert {*os.listdir()} == before


# What is told by click, or with a list of what there is.
BEGINNINGS = [
    ("translate -m tiny -b many a", "Invalid value for '-b' / '--beam-size': 'many' is not a valid integer"),
    ("translate --from xx a", "no model of the catalog translates from xx; "),
    ("translate --from EN --to fr a", "no model of the catalog translates from en to fr; "),
    ("translate -m tiny --precision float16 a", "Invalid value for '--precision': 'float16' is not one of 'float32', "),
    ("encode --precision intgemm a", "Invalid value for '--precision': 'intgemm' is not one of 'float32', "),
    ("encode --task passage a", "Invalid value for '--task': 'passage' is not one of "),
    ("encode --truncate-dims 3 a", "No such option"),
    ("search -i nan.npy -k 0 a", "Invalid value for '-k' / '--top-k'"),
    ("verify tiny --bound -1", "Invalid value for '--bound'"),
    ("cache clear --all --older-than nan", "Invalid value for '--older-than'"),
    ("warmup a", "Got unexpected extra argument (a)"),
    ("rerank -m bert", "Missing argument 'QUERY'"),
]


def test_what_is_told_begins_so():
    for line, told in BEGINNINGS:
        assert fail(2, *shlex.split(line)).startswith(told), line


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
    for command in READERS:
        result = run(*command, "-i", "empty")
        assert (result.exit_code, result.stdout) == (0, ""), command
        assert fail(2, *command, "a", "-i", "b").startswith("give texts or --input, not both"), command


def test_files_of_vectors():
    for before in (SEARCH, (*CALIBRATED, "--calibration")):
        for name in ("missing", "folder", "binary", "empty", "text.txt", "page.pdf"):
            told = fail(2, *before, name)
            expected = (f"cannot read {name}: ", f"{name}: a .npy file with an array of numbers is expected")
            assert told.startswith(expected), before


@pytest.mark.parametrize(
    "command",
    [
        *(f"{name} a -m".split() for name in ("translate", "encode", "rerank q", "classify", "search -i nan.npy")),
        *(["inspect"], ["verify"], ["convert", "-p", "int8"]),
    ],
)
def test_models(command):
    out = ["out"] if command[0] == "convert" else []
    for name in ("missing", "folder", "binary", "empty", "page.pdf", "text.txt"):
        told = fail(3, *command, name, *out)
        assert "neither an existing path nor in the catalog" in told or "not a checkpoint of a known format" in told
    assert not os.path.exists("out")


@pytest.mark.skipif(os.name != "posix", reason="devices")
def test_places_of_output():
    for command in ((*TRANSLATE, "--max-length", 2, "a"), (*ENCODE, "a", "--format", "jsonl")):
        for name in ("folder", "no/out", "text.txt/out", "/dev/full", ""):
            told = run(*command, "-o", name)
            assert told.exit_code in (1, 2) and told.stderr.splitlines()[-1].startswith(
                (f"fastattn: cannot write {name}: ", "fastattn: a file's path should not be empty")
            )
    assert fail(1, "convert", "tiny", "text.txt/out", "-p", "float32").startswith("cannot write text.txt/out: ")


def test_threads():
    for command in ((*TRANSLATE, "a"), (*ENCODE, "a"), (*RERANK, "a"), (*CLASSIFY, "a"), (*SEARCH, "nan.npy")):
        for value in (0, "two"):
            assert fail(2, *command, "-t", value).startswith("Invalid value for '-t' / '--threads'")
    common = (*TRANSLATE, "--max-length", 2, "▁w1")  # more than there are is all of them
    assert run(*common, "-t", 1000).stdout == run(*common, "-t", 1).stdout != ""
