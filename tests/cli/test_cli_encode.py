"""``fastattn encode``: what it writes, what it hands on, and that its examples run."""

import csv
import io
import json
import os
import re

import numpy as np
import pytest

from fastattn import quantize_vectors
from fastattn.spec.text_spec import POOLINGS
from tests import ROOT
from tests.children import run_python
from tests.cli.commands import fail, run, run_line, succeed
from tests.encoders.test_encoder import WIDTH, _many_texts, _write_folder

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


README = ROOT / "README.md"


def shell_examples(text, command="encode"):
    """The lines that begin with a command, without what follows three spaces."""
    found = re.findall(rf"^ *(fastattn {command} .*?)(?:   .*)?$", text, re.MULTILINE)
    assert found
    return found


@pytest.mark.skipif(os.name != "posix", reason="the examples are a shell's")
def test_the_examples_run(pulled, tmp_path, monkeypatch):
    """Those of --help and of the README; the files that they name are here."""
    pulled("minilm")
    (tmp_path / "my-encoder").mkdir()
    _write_folder(tmp_path / "my-encoder")
    for name in ("sentences.txt", "questions.txt", "english.txt"):
        (tmp_path / name).write_text("the cat sat\na dog\n")
    monkeypatch.chdir(tmp_path)
    for example in {*shell_examples(succeed("encode", "--help")), *shell_examples(README.read_text("utf-8"))}:
        output, written = run_line(example), re.search(r"(?:-o|>) *(\S+)", example)
        assert (tmp_path / written[1]).stat().st_size if written else output
    assert np.load(tmp_path / "vectors.npy").shape == (2, 384)
    record = json.loads((tmp_path / "vectors.jsonl").read_text())
    assert record["text"] == "A man is eating food." and len(record["embedding"]) == 384


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


SIXTEEN = "a dog sat on the mat and then ran under some log query cat here now"


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


def test_each_type_in_each_format(served, tmp_path):
    encoder, sample = served(), _many_texts(40)
    (tmp_path / "sample.txt").write_text("\n".join(sample))
    succeed("encode", "-m", "any", "-i", "sample.txt", "-o", "sample.npy")
    for output_dtype in ("int8", "uint8", "binary", "ubinary"):
        check_type(encoder, tmp_path, output_dtype)


def check_type(encoder, tmp_path, output_dtype):
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
