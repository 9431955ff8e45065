"""``fastattn encode``: what it writes, what it hands on, and that its examples run."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fastattn.spec.text_spec import POOLINGS
from tests import ROOT
from tests.cli.commands import fail, run, succeed
from tests.encoders.test_encoder_checkpoints import _write_folder


@pytest.fixture
def encoder(monkeypatch, tmp_path):
    """A random encoder, which the command gets for the folder "any"; the vectors need no compiled kernel."""
    from tests.encoders.test_encoder import _encoder

    encoder = _encoder()
    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda name, **options: encoder)
    return encoder


TEXTS = ["the cat sat", "", "a dog"]


def test_encode_writes_each_format(encoder, tmp_path):
    expected = encoder.encode(TEXTS)
    records = [json.loads(line) for line in succeed("encode", "-m", "any", *TEXTS).splitlines()]
    assert [record["text"] for record in records] == TEXTS
    np.testing.assert_array_equal(np.array([record["embedding"] for record in records], np.float32), expected)
    rows = list(csv.reader(io.StringIO(succeed("encode", "-m", "any", "--format", "csv", *TEXTS))))
    np.testing.assert_array_equal(np.array(rows, np.float32), expected)
    assert succeed("encode", "-m", "any", "-o", tmp_path / "v.npy", *TEXTS) == ""
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    piped = run("encode", "-m", "any", "--format", "npy", *TEXTS).stdout_bytes
    assert piped == (tmp_path / "v.npy").read_bytes()


def test_a_vector_that_is_not_finite_is_still_json(encoder, monkeypatch):
    def vectors(texts, **options):
        return (np.array([1.5, np.nan, np.inf, -np.inf], np.float32) for _ in texts)

    monkeypatch.setattr(encoder, "encode_iter", vectors)
    record = json.loads(succeed("encode", "-m", "any", "a"), parse_constant=pytest.fail)
    assert record == {"text": "a", "embedding": [1.5, None, None, None]}


def test_encode_in_a_precision(encoder, monkeypatch):
    asked = []
    monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda name, **options: asked.append(options) or encoder)
    for options in ((), ("--precision", "int8"), ("--precision", "auto", "--threads", 2), ("--processes", 3)):
        succeed("encode", "-m", "any", *options, "a")
    assert asked == [{}, {"precision": "int8"}, {"precision": "auto", "threads": 2}, {"processes": 3}]


def test_encode_in_several_windows(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("fastattn.encoders.encoder.FIRST_WINDOW", 2)
    path = tmp_path / "v.npy"
    succeed("encode", "-m", "any", "-o", path, stdin="\n".join(TEXTS).encode())
    np.testing.assert_allclose(np.load(path), encoder.encode(TEXTS), atol=1e-6)
    succeed("encode", "-m", "any", "-o", path)
    assert np.load(path).shape == (0, encoder.dimension)


def test_encode_hands_its_options_on(encoder):
    options = ("--no-normalize", "--pooling", "cls,max", "--truncate-dim", "3")
    chosen = {"normalize_embeddings": False, "pooling": ("cls", "max"), "truncate_dim": 3}
    for name, value in (("prompt", "query : the "), ("prompt_name", "query")):
        option = "--" + name.replace("_", "-")
        (line,) = succeed("encode", "-m", "any", "--format", "csv", *options, option, value, TEXTS[0]).splitlines()
        expected = encoder.encode(TEXTS[0], **chosen, **{name: value})
        np.testing.assert_array_equal(np.array(line.split(","), np.float32), expected)
    assert "pooling" in fail(2, "encode", "-m", "any", "--pooling", "best", "a")
    assert "pooling" in fail(2, "encode", "-m", "any", "--pooling", "", "a")
    assert "unknown prompt_name 'q'; known: query, empty" in fail(2, "encode", "-m", "any", "--prompt-name", "q", "a")
    both = ("--prompt-name", "query", "--prompt", "")
    assert "give --prompt or --prompt-name, not both" in fail(2, "encode", "-m", "any", *both, "a")


UNUSED = """
import sys
from fastattn.cli import main
try: main()
finally: print(*{"numpy", "numba", "tokenizers"} & set(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "options, code, imported",
    [(("--help",), 0, set()), (("-m", "nowhere", "a"), 3, {"numpy"}), (("--format", "xml", "a"), 2, set())],
)
def test_imports_only_what_it_comes_to_need(options, code, imported):
    done = subprocess.run([sys.executable, "-c", UNUSED, "encode", *options], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert {*done.stderr.splitlines()[-1].split()} <= imported


README = ROOT / "README.md"


def shell_examples(text, command="encode"):
    """The lines that begin with a command, without what follows three spaces."""
    found = re.findall(rf"^ *(fastattn {command} .*?)(?:   .*)?$", text, re.MULTILINE)
    assert found
    return found


@pytest.mark.skipif(os.name != "posix", reason="the examples are a shell's")
def test_the_examples_run(pulled, tmp_path):
    """Those of --help and of the README, as a shell reads them; the files that they name are here."""
    pulled("minilm")
    (tmp_path / "my-encoder").mkdir()
    _write_folder(tmp_path / "my-encoder")
    for name in ("sentences.txt", "questions.txt", "english.txt"):
        (tmp_path / name).write_text("the cat sat\na dog\n")
    command = f'fastattn() {{ "{sys.executable}" -m fastattn.cli "$@"; }}\n'
    for example in {*shell_examples(succeed("encode", "--help")), *shell_examples(README.read_text("utf-8"))}:
        done = subprocess.run(["sh", "-c", command + example], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (example, done.stderr)
        written = re.search(r"(?:-o|>) *(\S+)", example)
        assert (tmp_path / written[1]).stat().st_size if written else done.stdout
    assert np.load(tmp_path / "vectors.npy").shape == (2, 384)
    record = json.loads((tmp_path / "vectors.jsonl").read_text())
    assert record["text"] == "A man is eating food." and len(record["embedding"]) == 384


def test_the_readmes_python_runs(pulled, tmp_path):
    """Whole blocks, those with an Encoder: what they open is in examples/."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if re.search(r"\bEncoder\(", block)]
    assert blocks
    for name in ("minilm", "zh-en", "en-pt"):
        pulled(name)
    shutil.copytree(README.parent / "examples", tmp_path, dirs_exist_ok=True)
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONUTF8": "1"}, "capture_output": True, "encoding": "utf-8"}
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block.encode()], **options)
        assert done.returncode == 0, done.stderr


def test_help_names_what_an_encoder_takes():
    shown = " ".join(succeed("encode", "--help").split())
    (listed,) = re.findall(r"--pooling \S+ ([\w, ]+) \(default", shown)
    assert listed.split(", ") == list(POOLINGS)
    assert "--precision [float32|bfloat16|int8|auto]" in shown
    assert "intgemm" in succeed("translate", "--help")
    assert "'intgemm' is not one of" in fail(2, "encode", "--precision", "intgemm", "a")


def test_a_sentence_encoder_does_not_translate(tmp_path):
    _write_folder(tmp_path)
    said = fail(3, "translate", "-m", tmp_path, "a")
    assert said.endswith("this one is an encoder model's: use Encoder, or fastattn encode")
