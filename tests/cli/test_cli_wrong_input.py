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
from tests.encoders.test_encoder import _write_folder
from tests.generation.language_models import checkpoint
from tests.weights.native.folders import converted

WIDTH = 36  # of the model that _write_folder writes

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
    "page.old": "%PDF-1.4 \xff\n",
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


# An exit code and how command lines begin -> their ends, each of them wrong.
WRONG = {
    (2, ""): "sing | tranlate a | cache claer | batch tranlate | classify a | rerank q a | generate x",
    (2, "translate a"): """
        --compute-type int8 | --max-new-tokens 9 | -m zh-en -m zh-en -m zh-en | --prompt alma --from en --to pt
        | --cache-precision int8 --from en --to pt | --quality tiny | --quality tiny --from en
        | --quality tiny --to pt | --quality tiny --from en --to pt -m en-pt""",
    (2, "translate -m tiny a"): """
        -b 0 | -b 1000000000 | -b 2 -n 3 | --min-length 4 --max-length 3 | --sampling-topk 9 -b 2 | --prefix-bias 2
        | -n 0 | --timeout nan | --timeout 0 | --length-penalty inf | --sampling-topp 2 | --seed -1 | -i file
        | --from pt | --to pt | -o none/out""",
    (2, "translate -m tiny"): """
        --format csv | --format html --fields a | --fields a | --format html --json | --format html --scores
        | --format html --alignments | --format html -n 2 | --extra comments | --format docx | --out-dir x
        | --out-dir x -i text.txt | --out-dir x -i . -o y | -i no.html | -i page.html -o no/b.html""",
    (2, "encode -m prompted a"): """
        --batch-size 9 | -o out.txt | --pooling best | --pooling '' | --prompt-name q | --prompt-name query --prompt ''
        | --output-dtype uint8 | --calibration narrow.npy""",
    (2, "encode -m prompted a -o v.npy --output-dtype int8 --calibration"): """
        narrow.npy | whole.npy | objects.npy | several.npz""",
    (2, "encode -m bert a -o v.npy --output-dtype int8 --calibration"): "nan.npy",
    (2, "search -m prompted a -i"): """
        wide.npy | whole.npy | double.npy | one.npy | swapped.npy | cut.npy | fitting.npy --calibration fitting.npy
        | fitting.npy --texts text.txt | without.jsonl | numbers.jsonl | true.jsonl | none.jsonl | letters.csv
        | ragged.csv | small.csv | both.csv | long.csv""",
    (2, "search -m bert a -i"): "integers.npy --calibration nan.npy",
    (2, "classify a -m bert"): "--all -k 2",
    (2, "rerank q a"): "-m labels",
    (2, "generate -m lm x"): """
        --top-k 3 | --max-length 3 | --max-new-tokens 0 | --sampling-minp 3 | --log-probs | --system a | --score --chat
        | --chat | --end-token nowhere""",
    (2, "generate -m lm " + "x" * 50): "-b 1 | --score",
    (2, "verify tiny"): "--bound nan",
    (2, "convert tiny -p float32"): "bert | no/a/b | ''",
    (3, ""): """
        pull minlm | encode -m minlm a | inspect minlm | encode -m tiny a | generate -m tiny x | translate -m prompted a
        | classify -m tokens a | classify -m prompted a | rerank -m prompted q a""",
}


def test_what_is_wrong_is_told_in_one_line():
    before = {*os.listdir()}
    for (code, beginning), ends in WRONG.items():
        for end in ends.split("|"):
            refuse(code, *shlex.split(f"{beginning} {end}"), stdin=b"<p>a")
    assert {*os.listdir()} == before


# What is told by click, or with a list of what there is.
BEGINNINGS = [
    ("translate -m tiny -b many a", "Invalid value for '-b' / '--beam-size': 'many' is not a valid integer"),
    ("translate --from xx a", "no model of the catalog translates from xx; "),
    ("search a", "Missing option '-i' / '--input'"),
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
            ("page.old", "page.old, line 1: not UTF-8"),
        ),
    ):
        assert fail(2, *command, "-i", name).startswith(told), command
    for command in READERS:
        result = run(*command, "-i", "empty")
        assert (result.exit_code, result.stdout) == (0, ""), command
        assert fail(2, *command, "a", "-i", "b").startswith("give texts or --input, not both"), command


def test_files_of_vectors():
    for before in (SEARCH, (*CALIBRATED, "--calibration")):
        for name in ("missing", "folder", "binary", "empty", "text.txt", "page.old"):
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
    for name in ("missing", "folder", "binary", "empty", "page.old", "text.txt"):
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
