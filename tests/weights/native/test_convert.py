"""``fastattn convert``: a folder whole or none, and the same results from it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastattn.cli.entry import commands
from fastattn.encoders.encoder import Encoder
from fastattn.translation.translator import Translator
from fastattn.weights.native import convert
from tests.weights.native.folders import encoder_model, translation_model

COMMAND = [sys.executable, "-m", "fastattn.cli"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and limits")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return translation_model(tmp_path_factory.mktemp("model"))


def run(*arguments: object) -> tuple[int, str]:
    """Exit code and stderr; a command that fails leaves one line there."""
    result = CliRunner().invoke(commands, ["convert", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines(keepends=True) if "compiling kernels" not in line]
    assert len(lines) == 1 or not result.exit_code
    return result.exit_code, "".join(lines).removeprefix("fastattn: ")


def test_a_folder_is_made_and_its_sizes_told(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said = run(model, out, "--precision", "int8")
    assert code == 0
    assert said == f"{model}: 0.0 MB of float32 weights; {out}: 0.0 MB of int8\n"
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert sorted(os.listdir(out)) == [
        "config.json",
        "model.safetensors",
        "source.spm",
        "source_vocabulary.json",
        "target.spm",
        "target_vocabulary.json",
    ]
    told = CliRunner().invoke(commands, ["inspect", str(out)]).stdout
    for fact in ("fastattn", "int8 in the file", "converted from ctranslate2, float32", "layout version 2"):
        assert fact in told, told


def test_an_encoders_vectors_stay(tmp_path: Path) -> None:
    original = encoder_model(tmp_path / "model")
    texts = ["the garden", "a tree, the", ""]
    expected = Encoder(original).encode(texts)
    for precision, least in (("float32", 1.0), ("bfloat16", 0.999), ("int8", 0.99)):
        out = tmp_path / precision
        assert run(original, out, "-p", precision)[0] == 0
        vectors = Encoder(out).encode(texts)
        if precision == "float32":
            np.testing.assert_array_equal(vectors, expected)
        assert not np.array_equal(vectors, expected) or precision == "float32"
        assert np.diag(Encoder(out).similarity(vectors, expected)).min() > least - 1e-6


@POSIX  # its links
def test_what_is_there_is_not_replaced(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, file, empty, link = tmp_path / "full", tmp_path / "file", tmp_path / "empty", tmp_path / "link"
    full.mkdir()
    (full / "kept").write_text("kept")
    file.write_text("kept")
    empty.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    for out in (full, file):
        assert run(model, out, "-p", "int8") == (2, f"{out} exists already; name a folder that does not\n")
    assert (full / "kept").read_text() == file.read_text() == "kept"
    monkeypatch.chdir(empty)
    assert run(model, ".", "-p", "int8") == (2, ". exists already; name a folder that does not\n")
    monkeypatch.chdir(tmp_path)
    for out in (empty, link):
        assert run(model, out, "-p", "int8")[0] == 0
    assert link.is_symlink() and (tmp_path / "nowhere" / "config.json").is_file()
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full", "link", "nowhere"]


def test_what_cannot_be_done_is_one_line_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    code, said = run(model, tmp_path / "none" / "out", "-p", "int8")
    none = tmp_path / "none"
    assert (code, said) == (2, f"cannot write {none / 'out'}: the folder {none} does not exist\n")
    assert run(tmp_path / "none", tmp_path / "out", "-p", "int8")[0] == 3
    code, said = run(model, tmp_path / "out")
    assert code == 2 and "--precision" in said and "float32" in said and "int8" in said
    assert run(model, tmp_path / "out", "-p", "int3")[0] == 2
    infinite = translation_model(tmp_path / "infinite", "float16", scale_embeddings=1.0)
    data = bytearray((infinite / "model.bin").read_bytes())
    place = data.index(b"encoder/layer_0/ffn/linear_0/weight\0") + 36
    data[place + 20 : place + 22] = np.float16(np.inf).tobytes()
    (infinite / "model.bin").write_bytes(data)
    code, said = run(infinite, tmp_path / "out", "-p", "int8")
    assert code == 3
    assert said == "encoder.layers.0.feed_forward.inner.weight has values that are not finite; int8 cannot hold them\n"
    assert os.listdir(tmp_path) == ["infinite"]
    assert run(infinite, tmp_path / "out", "-p", "bfloat16")[0] == 0


def test_a_disk_that_is_full_leaves_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for place in ("write_tensors", "_sync"):
        with monkeypatch.context() as patched:
            patched.setattr(convert, place, full)
            out = tmp_path / "out"
            assert run(model, out, "-p", "int8") == (1, f"cannot write {out}: No space left on device\n")
        assert os.listdir(tmp_path) == []


@POSIX
def test_a_disk_that_fills_up_leaves_nothing(model: Path, tmp_path: Path) -> None:
    """A limit on a file's size fails a write as a full disk does, half way."""
    out = tmp_path / "out"
    command = ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *COMMAND, "convert", str(model), str(out), "-p", "float32"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"fastattn: cannot write {out}: File too large\n")
    assert os.listdir(tmp_path) == []


SLOW = """
import sys, time
from fastattn.weights.native import convert
write = convert.write_tensors
def slow(stream, tensors, progress):
    stream.write(b"a beginning")
    stream.flush()
    print("ready", flush=True)
    time.sleep(600)
convert.write_tensors = slow
from fastattn.cli import main
sys.argv = ["fastattn", *sys.argv[1:]]
main()
"""


@POSIX
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_run_leaves_nothing(model: Path, tmp_path: Path, name: str, code: int) -> None:
    command = [sys.executable, "-c", SLOW, "convert", str(model), str(tmp_path / "out"), "-p", "bfloat16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(os.listdir(tmp_path)) == 1
        process.send_signal(getattr(signal, name))
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, b"")
    assert os.listdir(tmp_path) == []


CHINESE = ["我们明天去北京开会。", "你好"]
ENGLISH = ["A man is eating food.", "A man eats something.", "The girl is carrying a baby.", "Two men push carts."]


def test_a_real_translation_model_translates_the_same(pulled, tmp_path: Path) -> None:
    """It is int8 and its numbers are kept, so the products have the same bits."""
    original, out = Translator(pulled("zh-en"), "int8"), tmp_path / "int8"
    results = original.translate(CHINESE, beam_size=2, num_hypotheses=2, details=True)
    code, said = run(pulled("zh-en"), out, "-p", "int8")
    assert code == 0 and "82.7 MB of int8 weights" in said
    again = Translator(out).translate(CHINESE, beam_size=2, num_hypotheses=2, details=True)
    assert [(r.hypotheses, r.scores) for r in again] == [(r.hypotheses, r.scores) for r in results]
    assert (out / "SOURCE.txt").read_bytes() == (pulled("zh-en") / "SOURCE.txt").read_bytes()


def test_a_real_encoders_vectors_stay(pulled, tmp_path: Path) -> None:
    expected = Encoder(pulled("minilm"), "float32").encode(ENGLISH)
    cosines = {}
    for precision, most in (("float32", 90.5), ("bfloat16", 46), ("int8", 24)):
        out = tmp_path / precision
        assert run(pulled("minilm"), out, "-p", precision)[0] == 0
        assert (out / "model.safetensors").stat().st_size < most * 1e6
        vectors = Encoder(out, "float32").encode(ENGLISH)  # what the weights alone lose
        cosines[precision] = (vectors * expected).sum(axis=1).min()
        if precision == "float32":
            np.testing.assert_array_equal(vectors, expected)
    assert 1 > cosines["bfloat16"] > cosines["int8"] > 0.99, cosines
    assert cosines["bfloat16"] > 0.9999, cosines
