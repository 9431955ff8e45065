"""The command line as a process: the locale, pipes that close, signals, and what a killed run leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ctranslate2_writer import random_transformer, vocabulary, write_config, write_model, write_vocabularies

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals, locales and pipes")

COMMAND = [sys.executable, "-m", "fastattn.cli"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, random_transformer(np.random.default_rng(3), source_vocabulary=19, target_vocabulary=19))
    write_vocabularies(path, vocabulary(19), vocabulary(19))
    write_config(path)
    return str(path)


@pytest.fixture
def endless():
    """A pipe that gives the same line for ever."""
    with subprocess.Popen(["yes", "▁w1 ▁w2"], stdout=subprocess.PIPE) as producer:
        yield producer.stdout
        producer.kill()


def start(*arguments, **options):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *arguments], **pipes | options)


def without_notice(stderr):
    """stderr less the line that the first run on a machine begins with."""
    lines = stderr.decode().splitlines()
    return [line for line in lines if not line.startswith("fastattn: compiling kernels")]


def test_utf8_whatever_the_locale(model):
    """An argument, standard input's echo in JSON, and an error's text."""
    poor = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    common = ("translate", "-m", model, "--max-length", "3")
    with start(*common, "--json", "▁w1 你好", env=os.environ | poor) as process:
        stdout, stderr = process.communicate()
    assert without_notice(stderr) == []
    assert json.loads(stdout)["source"] == "▁w1 你好"
    assert "你好".encode() in stdout
    with start(*common, "-i", "没有.txt", env=os.environ | poor) as process:
        _, stderr = process.communicate()
    assert process.returncode == 2
    (line,) = without_notice(stderr)
    assert line.startswith("fastattn: cannot read ") and line.endswith(".txt: No such file or directory")


def test_results_flow_and_a_reader_may_leave(model, endless):
    """The first translations come though the input does not end; a closed pipe ends the run quietly."""
    with start("translate", "-m", model, "--max-length", "3", stdin=endless) as process:
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 141
    assert without_notice(stderr) == []


@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGKILL", -9)])
def test_an_interrupted_run_leaves_no_output(model, endless, tmp_path, name, code):
    output = tmp_path / "out.txt"
    with start("translate", "-m", model, "--max-length", "3", "-o", str(output), stdin=endless) as process:
        while not any(path.stat().st_size for path in tmp_path.iterdir()):  # until something has been translated
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(getattr(signal, name))
        stderr = process.communicate()[1]  # the input is endless: nothing but the signal ends the run
    assert process.returncode == code
    assert without_notice(stderr) == []
    assert not output.exists()
    if name == "SIGINT":
        assert list(tmp_path.iterdir()) == []


def test_an_interrupt_during_the_imports_ends_in_silence(tmp_path):
    """As soon as fastattn's own code runs; here it comes while click is imported."""
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with start("--help", env=os.environ | {"PYTHONPATH": path}) as process:
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout, stderr) == (130, b"", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line(model):
    with (
        open("/dev/full", "wb") as full,
        start("translate", "-m", model, "--max-length", "3", "w1", stdout=full) as run,
    ):
        _, stderr = run.communicate()
    assert run.returncode == 1
    assert without_notice(stderr) == ["fastattn: cannot write standard output: No space left on device"]


def test_a_disk_that_fills_up_leaves_no_file(model, tmp_path):
    """A limit on a file's size fails a write as a full disk does, half way."""
    source, output = tmp_path / "in.txt", tmp_path / "out" / "out.txt"
    source.write_text("▁w1 ▁w2\n" * 1000, encoding="utf-8")
    output.parent.mkdir()
    command = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *COMMAND]
    command += ["translate", "-m", model, "--max-length", "3", "-i", str(source), "-o", str(output)]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 1
    assert without_notice(done.stderr) == [f"fastattn: cannot write {output}: File too large"]
    assert list(output.parent.iterdir()) == []
