"""``fastattn encode``: tasks, lines that are too long, numbers of other types."""

import csv
import io
import json

import numpy as np
import pytest

from fastattn import quantize_vectors
from tests.cli.commands import fail, run, succeed
from tests.cli.test_cli_encode import TEXTS
from tests.encoders.test_encoder import WIDTH, _encoder, _many_texts

SIXTEEN = "a dog sat on the mat and then ran under some log query cat here now"


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Has the command get an encoder with these attributes of its checkpoint's text for the folder "any"."""

    def serve(**text):
        encoder = _encoder(**text)
        monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda name, **options: encoder)
        return encoder

    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    return serve


def vectors_of(*arguments):
    return np.array(list(csv.reader(io.StringIO(succeed("encode", "-m", "any", "--format", "csv", *arguments)))), float)


def test_a_task_has_its_prompt(served):
    encoder = served(prompts={"query": "query : "}, default_prompt="query")
    for task, expected in (("query", encoder.encode_query(TEXTS)), ("document", encoder.encode_document(TEXTS))):
        np.testing.assert_allclose(vectors_of("--task", task, *TEXTS), expected, atol=1e-6)
    assert "'passage' is not one of" in fail_usage("--task", "passage", "a")


def fail_usage(*arguments):
    result = run("encode", "-m", "any", *arguments)
    assert result.exit_code == 2
    return result.stderr


@pytest.mark.parametrize("output_dtype", ["int8", "uint8", "binary", "ubinary"])
def test_each_type_in_each_format(served, tmp_path, output_dtype):
    encoder, sample = served(), _many_texts(40)
    (tmp_path / "sample.txt").write_text("\n".join(sample))
    succeed("encode", "-m", "any", "-i", "sample.txt", "-o", "sample.npy")
    calibration = ("--calibration", "sample.npy") if "int8" in output_dtype else ()
    asked = ("encode", "-m", "any", "--output-dtype", output_dtype, *calibration)
    expected = quantize_vectors(encoder.encode(TEXTS), output_dtype, calibration=np.load("sample.npy"))
    assert succeed(*asked, "-o", "v.npy", *TEXTS) == ""
    found = np.load("v.npy")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert run(*asked, "--format", "npy", *TEXTS).stdout_bytes == (tmp_path / "v.npy").read_bytes()
    records = [json.loads(line) for line in succeed(*asked, *TEXTS).splitlines()]
    assert [record["embedding"] for record in records] == expected.tolist()
    rows = list(csv.reader(io.StringIO(succeed(*asked, "--format", "csv", *TEXTS))))
    assert rows == [[str(number) for number in row] for row in expected]
    succeed(*asked, "-o", "none.npy")
    none = np.load("none.npy")
    assert none.shape == (0, expected.shape[1]) and none.dtype == expected.dtype


def test_calibration_that_does_not_serve(served, tmp_path):
    served()
    np.save("narrow.npy", np.ones((5, 3), np.float32))
    np.save("whole.npy", np.ones((5, WIDTH), np.int8))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    np.savez("several.npz", a=np.ones(3))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "short.npy").write_bytes((tmp_path / "narrow.npy").read_bytes()[:-1])
    (tmp_path / "empty.npy").write_bytes(b"")
    for name, message in (
        ("narrow.npy", f"calibration of shape (M, {WIDTH}) is expected, got (5, 3)"),
        ("whole.npy", "calibration should be floating-point"),
        ("objects.npy", "objects.npy: a .npy file with an array of numbers is expected"),
        ("several.npz", "several.npz: a .npy file with one array is expected, not an archive"),
        ("text.npy", "text.npy: a .npy file with an array of numbers is expected"),
        ("short.npy", "short.npy: a .npy file with an array of numbers is expected"),
        ("empty.npy", "empty.npy: a .npy file with an array of numbers is expected"),
        ("nowhere.npy", "cannot read nowhere.npy: No such file or directory"),
    ):
        said = fail(2, "encode", "-m", "any", "--output-dtype", "int8", "--calibration", name, "-o", "v.npy", "a")
        assert message in said
        assert not (tmp_path / "v.npy").exists()
    for options in (("--output-dtype", "uint8"), ("--calibration", "narrow.npy")):
        assert "int8 and uint8 need --calibration, others take none" in fail_usage(*options, "a")


def test_cut_lines_are_counted_on_stderr(served):
    served(max_length=8)
    texts = ["a", "the cat sat on the mat", SIXTEEN, "a dog"]
    result = run("encode", "-m", "any", *texts)
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 4
    told = "fastattn: 1 of 4 lines was cut at 8 tokens, by 10 tokens in all; --long mean cuts nothing\n"
    assert result.stderr == told
    assert run("encode", "-m", "any", "--long", "truncate", *texts, "-o", "v.npy").stderr == told
    both = run("encode", "-m", "any", "--task", "query", *texts, "the the the the the").stderr
    assert both == "fastattn: 3 of 5 lines were cut at 8 tokens, by 15 tokens in all; --long mean cuts nothing\n"
    assert run("encode", "-m", "any", *texts[:2]).stderr == ""
    for options in (("--long", "mean"), ("--truncate-dim", 3, "--long", "mean")):
        assert run("encode", "-m", "any", *options, *texts).stderr == ""


def test_cut_lines_are_counted_in_portions(served, monkeypatch):
    encoder = served(max_length=8)
    monkeypatch.setattr("fastattn.cli.vector_options.MOST_LINES", 4)
    texts = _many_texts(50)
    over = np.maximum(encoder.count_tokens(texts) - 8, 0)
    said = run("encode", "-m", "any", stdin="\n".join(texts).encode()).stderr
    assert said.startswith(f"fastattn: {(over > 0).sum()} of 50 lines were cut at 8 tokens, by {over.sum()} tokens in")


def test_long_lines_are_averaged(served):
    encoder = served(max_length=8)
    expected = encoder.encode([SIXTEEN, "a dog"], long="mean")
    np.testing.assert_allclose(vectors_of("--long", "mean", SIXTEEN, "a dog"), expected, atol=1e-6)


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
