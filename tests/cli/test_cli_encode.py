"""``fastattn encode``: what it writes, and what it says of long lines."""

import json
import re

import numpy as np
import pytest

from fastattn import quantize_vectors
from fastattn.spec.text_spec import POOLINGS
from tests.children import run_python
from tests.cli.commands import fail, run, succeed
from tests.encoders.test_encoder import _many_texts

TEXTS = ["the cat sat", "", "a dog"]


UNUSED = """
import sys
from fastattn.cli import main
for options in (["--help"], ["--format", "xml", "a"], ["-m", "nowhere", "a"]):
    sys.argv = ["fastattn", "encode", *options]
    try:
        main()
    except SystemExit as end:
        print("ended", end.code, *{"numpy", "numba", "tokenizers"} & set(sys.modules), flush=True)
"""


def test_imports_only_what_it_comes_to_need():
    ended = [line for line in run_python(UNUSED).stdout.splitlines() if line.startswith("ended")]
    assert ended == ["ended 0", "ended 2", "ended 3 numpy"]


def test_help_names_what_an_encoder_takes():
    shown = " ".join(succeed("encode", "--help").split())
    (listed,) = re.findall(r"--pooling \S+ ([\w, ]+) \(default", shown)
    assert listed.split(", ") == list(POOLINGS)


SIXTEEN = "a dog sat on the mat and then ran under some log query cat here now"


def test_each_type_in_each_format(served, tmp_path, monkeypatch):
    encoder, sample = served(), _many_texts(40)
    (tmp_path / "sample.txt").write_text("\n".join(sample))
    succeed("encode", "-m", "any", "-i", "sample.txt", "-o", "sample.npy")
    for output_dtype in ("float32", "int8", "uint8", "binary", "ubinary"):
        calibration = ("--calibration", "sample.npy") if "int8" in output_dtype else ()
        asked = ("encode", "-m", "any", "--output-dtype", output_dtype, *calibration)
        expected = encoder.encode(TEXTS)
        if output_dtype != "float32":
            expected = quantize_vectors(expected, output_dtype, calibration=np.load("sample.npy"))
        assert succeed(*asked, "-o", "v.npy", *TEXTS) == ""
        assert run(*asked, "--format", "npy", *TEXTS).stdout_bytes == (tmp_path / "v.npy").read_bytes()
        records = [json.loads(line) for line in succeed(*asked, *TEXTS).splitlines()]
        assert [record["text"] for record in records] == TEXTS
        rows = [line.split(",") for line in succeed(*asked, "--format", "csv", *TEXTS).splitlines()]
        for found in ([record["embedding"] for record in records], rows):
            np.testing.assert_array_equal(np.array(found, expected.dtype), expected)
        succeed(*asked, "-o", "none.npy")
        for path, array in (("v.npy", expected), ("none.npy", expected[:0])):
            assert np.load(path).dtype == array.dtype
            np.testing.assert_array_equal(np.load(path), array)
    odd = np.array([1.5, np.nan, np.inf, -np.inf], np.float32)
    monkeypatch.setattr(encoder, "encode_iter", lambda texts, **options: (odd for _ in texts))
    record = json.loads(succeed("encode", "-m", "any", "a"), parse_constant=pytest.fail)
    assert record == {"text": "a", "embedding": [1.5, None, None, None]}


def test_cut_lines_are_counted_on_stderr(served, monkeypatch):
    encoder = served(max_length=8)
    texts = ["a", "the cat sat on the mat", SIXTEEN, "a dog"]
    result = run("encode", "-m", "any", *texts)
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 4
    told = "fastattn: {} cut at 8 tokens, by {} tokens in all; --long mean cuts nothing\n"
    assert result.stderr == told.format("1 of 4 lines was", 10)
    assert run("encode", "-m", "any", "--long", "truncate", *texts, "-o", "v.npy").stderr == result.stderr
    both = run("encode", "-m", "any", "--task", "query", *texts, "the the the the the").stderr
    assert both == told.format("3 of 5 lines were", 15)
    assert run("encode", "-m", "any", *texts[:2]).stderr == ""
    for options in (("--long", "mean"), ("--truncate-dim", 3, "--long", "mean")):
        assert run("encode", "-m", "any", *options, *texts).stderr == ""
    monkeypatch.setattr("fastattn.cli.vector_options.MOST_LINES", 4)  # counted in portions
    texts = _many_texts(50)
    over = np.maximum(encoder.count_tokens(texts) - 8, 0)
    said = run("encode", "-m", "any", stdin="\n".join(texts).encode()).stderr
    assert said == told.format(f"{(over > 0).sum()} of 50 lines were", over.sum())


def test_long_lines_fail(served, tmp_path):
    encoder = served(max_length=8)
    texts = ["a", SIXTEEN, "a dog", "\xff", "the cat"]
    (tmp_path / "in.txt").write_bytes(b"a\n" + SIXTEEN.encode() + b"\na dog\n\xff\nthe cat\n")
    asked = ("encode", "-m", "any", "-i", "in.txt", "--long", "error")
    result = run(*asked)
    assert result.exit_code == 2 and len(result.stdout.splitlines()) == 1
    assert result.stderr == "fastattn: in.txt, line 2: 18 tokens, the model takes 8\n"
    assert fail(2, *asked, "--task", "query") == "in.txt, line 2: 20 tokens, the model takes 8"
    said = fail(5, *asked, "--on-error", "skip", "-o", "v.npy")
    assert said == "2 of 5 lines were not encoded, the first: in.txt, line 2: 18 tokens, the model takes 8"
    found = np.load("v.npy")
    assert np.isnan(found[[1, 3]]).all()
    np.testing.assert_allclose(found[[0, 2, 4]], encoder.encode([texts[0], *texts[2::2]]), atol=1e-6)
    fail(5, *asked, "--on-error", "skip", "-o", "bits.npy", "--output-dtype", "ubinary")
    assert not np.load("bits.npy")[[1, 3]].any() and np.load("bits.npy")[[0, 2, 4]].any(axis=1).all()
    marked = [json.loads(line) for line in run(*asked, "--on-error", "mark").stdout.splitlines()]
    assert marked[1] == {"text": SIXTEEN, "embedding": None, "error": "in.txt, line 2: 18 tokens, the model takes 8"}
