"""``fastattn convert``: a folder whole or none, and what it tells."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.cli.commands import fail, run, succeed
from tests.weights.native.folders import translation_model

COMMAND = [sys.executable, "-m", "fastattn.cli"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and limits")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = translation_model(tmp_path_factory.mktemp("model"))
    (folder / "SOURCE.txt").write_text("licence: CC0-1.0")
    return folder


def convert(*arguments):
    """What stderr says of a conversion."""
    result = run("convert", *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return [line for line in result.stderr.splitlines() if "compiling kernels" not in line]


def test_a_folder_is_made_and_its_sizes_told(model, tmp_path):
    out = tmp_path / "out"
    said = convert(model, out, "--precision", "int8")
    assert said == [f"{model}: 0.0 MB of float32 weights; {out}: 0.0 MB of int8"]
    assert os.listdir(tmp_path) == ["out"]
    vocabularies, models = (["source" + end, "target" + end] for end in ("_vocabulary.json", ".spm"))
    others = ["config.json", "model.safetensors", "SOURCE.txt"]
    assert sorted(os.listdir(out)) == sorted([*others, *vocabularies, *models])
    assert (out / "SOURCE.txt").read_text() == "licence: CC0-1.0"
    told = succeed("inspect", out)
    for fact in ("fastattn", "int8 in the file", "converted from ctranslate2, float32", "layout version 2"):
        assert fact in told, told


@POSIX  # its links
def test_what_is_there_is_not_replaced(model, tmp_path, monkeypatch):
    full, file, empty, link = (tmp_path / name for name in ("full", "file", "empty", "link"))
    full.mkdir()
    empty.mkdir()
    for kept in (full / "kept", file):
        kept.write_text("kept")
    link.symlink_to(tmp_path / "nowhere")
    monkeypatch.chdir(empty)
    for out in (full, file, "."):
        assert fail(2, "convert", model, out, "-p", "int8") == f"{out} exists already; name a folder that does not"
    assert (full / "kept").read_text() == file.read_text() == "kept"
    monkeypatch.chdir(tmp_path)
    for out in (empty, link):
        convert(model, out, "-p", "int8")
    assert link.is_symlink() and (tmp_path / "nowhere" / "config.json").is_file()
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full", "link", "nowhere"]


def test_what_cannot_be_done_is_one_line_and_leaves_nothing(model, tmp_path):
    none, out = tmp_path / "none", tmp_path / "out"
    said = fail(2, "convert", model, none / "out", "-p", "int8")
    assert said == f"cannot write {none / 'out'}: the folder {none} does not exist"
    fail(3, "convert", none, out, "-p", "int8")
    said = fail(2, "convert", model, out)
    assert "--precision" in said and "float32" in said and "int8" in said
    infinite = translation_model(tmp_path / "infinite", "float16", scale_embeddings=1.0)
    data = bytearray((infinite / "model.bin").read_bytes())
    place = data.index(b"encoder/layer_0/ffn/linear_0/weight\0") + 36
    data[place + 20 : place + 22] = np.float16(np.inf).tobytes()
    (infinite / "model.bin").write_bytes(data)
    said = fail(3, "convert", infinite, out, "-p", "int8")
    assert said == "encoder.layers.0.feed_forward.inner.weight has values that are not finite; int8 cannot hold them"
    assert os.listdir(tmp_path) == ["infinite"]
    convert(infinite, out, "-p", "bfloat16")


@POSIX
def test_a_disk_that_fills_up_leaves_nothing(model, tmp_path):
    """A limit on a file's size fails a write as a full disk does, half way.

    Python itself writes no bytecode under the limit: it would keep half a file, which no later process can read.
    """
    out = tmp_path / "out"
    command = ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *COMMAND, "convert", str(model), str(out), "-p", "float32"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
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
def test_an_interrupted_run_leaves_nothing(model, tmp_path, name, code):
    command = [sys.executable, "-c", SLOW, "convert", str(model), str(tmp_path / "out"), "-p", "bfloat16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        assert len(os.listdir(tmp_path)) == 1
        process.send_signal(getattr(signal, name))
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, b"")
    assert os.listdir(tmp_path) == []
