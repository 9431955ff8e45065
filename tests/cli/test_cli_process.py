"""The command line as a process: the locale, a terminal, closed pipes, signals, memory, what a killed run leaves."""

import json
import os
import re
import select
import shutil
import subprocess
import sys

import pytest

from fastattn.system import progress
from fastattn.system.cache_folder import cache_root
from fastattn.weights.download.catalog import CATALOG
from tests.children import run_child
from tests.cli.commands import run, running, told
from tests.encoders.test_encoder import _write_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals, locales and pipes")


@pytest.fixture
def endless():
    """A pipe that gives the same line for ever."""
    with subprocess.Popen(["yes", "▁w1 ▁w2".encode()], stdout=subprocess.PIPE) as producer:
        yield producer.stdout
        producer.kill()


def start(*arguments, **options):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "fastattn.cli", *(argument.encode() for argument in arguments)]
    return subprocess.Popen(command, **pipes | options)


def test_utf8_whatever_the_locale(model):
    """An argument, an option, standard input's echo in JSON, and an error's text."""
    poor = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    common = ("translate", "-m", model, "--max-length", "3")
    with start(*common, "--json", "--target-prefix", "▁w7", "▁w1 你好", env=os.environ | poor) as process:
        stdout, stderr = process.communicate()
    assert told(stderr.decode()) == []
    translated = json.loads(stdout)
    assert translated["source"] == "▁w1 你好" and translated["hypotheses"][0]["text"].startswith("▁w7")
    assert "你好".encode() in stdout
    with start(*common, "-i", "没有.txt", env=os.environ | poor) as process:
        _, stderr = process.communicate()
    assert process.returncode == 2
    (line,) = told(stderr.decode())
    assert line.startswith("fastattn: cannot read ") and line.endswith(".txt: No such file or directory")


def test_results_flow_and_a_reader_may_leave(model, endless):
    """The first translations come though the input does not end; a closed pipe ends the run quietly."""
    with start("translate", "-m", model, "--max-length", "3", stdin=endless) as process:
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 141
    assert told(stderr.decode()) == []


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
        start("translate", "-m", model, "--max-length", "3", "w1", stdout=full) as process,
    ):
        _, stderr = process.communicate()
    assert process.returncode == 1
    assert told(stderr.decode()) == ["fastattn: cannot write standard output: No space left on device"]


@pytest.fixture
def watch(monkeypatch):
    """A function: what a command shows on a terminal that its stderr is, each drawing of the progress line, and whole
    lines.
    """
    for name in ("_FIRST_AFTER", "_EVERY"):  # draws the progress line each time, however fast the machine
        monkeypatch.setattr(progress, name, 0)
    monkeypatch.setenv("COLUMNS", "100")

    def watch(*arguments, stdin=None):
        (controller, terminal), shown = os.openpty(), b""
        with open(os.devnull, "rb") as nothing, open(controller, "rb", buffering=0) as reading:
            with running(*arguments, stdin=(stdin or nothing).fileno(), stderr=terminal) as command:
                while command.is_running() or select.select([reading], [], [], 0)[0]:
                    if select.select([reading], [], [], 0.02)[0]:
                        shown += reading.read(1 << 12)
        os.close(terminal)
        assert command.code == 0, shown
        return [text.rstrip(" ") for text in re.split("[\r\n]+", shown.decode()) if text.strip()]

    return watch


def test_a_terminal_shows_how_far_it_is_and_what_is_left(model, tmp_path, watch):
    source = tmp_path / "in.txt"
    source.write_text("▁w1 ▁w2 ▁w3\n" * 2000, encoding="utf-8")
    common = ("translate", "-m", model, "-b", "1", "--max-length", "3")
    output = ("-o", str(tmp_path / "out.txt"))
    shown = watch(*common, "-i", str(source), *output)
    form = r"[\d,]+ lines?, [\d,.]+ lines/s, [\d,]+ characters/s"
    known = [text for text in shown if re.fullmatch(form + r", \d+%, \d+ (s|min) left", text)]
    assert known, shown
    shares = [int(re.search(r"(\d+)%", text)[1]) for text in known]
    assert shares == sorted(shares) and shares[-1] < 100
    with subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE) as producer:
        shown = watch(*common, *output, stdin=producer.stdout)
    assert any(re.fullmatch(form, text) for text in shown), shown
    assert not any("left" in text or "%" in text for text in shown)


def test_a_terminal_is_told_which_model_is_the_default(model, tmp_path, monkeypatch, watch):
    """Once; not where stderr is no terminal, nor where a model or a language was chosen."""
    defaults = {
        "fastattn: en-pt, Firefox Translations English to Portuguese (--from, --to or -m choose another)",
        "fastattn: minilm, all-MiniLM-L6-v2: English sentences to 384 dimensions (-m chooses another)",
    }
    folders = [tmp_path / "checkpoints" / CATALOG[name].folder_name for name in ("en-pt", "minilm")]
    shutil.copytree(model, folders[0])
    folders[1].mkdir()
    _write_folder(folders[1])
    (tmp_path / "kernels").symlink_to(cache_root() / "kernels")  # so that nothing is compiled again
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    translate, encode = ("translate", "--max-length", "3", "▁w1"), ("encode", "a cat")
    assert [line for asked in (translate, encode) for line in watch(*asked) if line in defaults] == sorted(defaults)
    for chosen in ((*translate, "--to", "pt"), (*translate, "-m", str(folders[0])), (*encode, "-m", "minilm")):
        assert not defaults & {*watch(*chosen)}
    for asked in (translate, encode):
        done = run(*asked)  # its stderr is no terminal
        assert (done.exit_code, told(done.stderr)) == (0, [])


LONG_LINE = 16_000  # bytes, for four tokens: lines that are kept would outweigh all else that grows


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell")
@pytest.mark.parametrize("count", [2_500, pytest.param(25_000, marks=pytest.mark.slow)])
def test_a_long_file_takes_no_more_memory_than_its_beginning(model, tmp_path, count):
    """The second half's peak is above the first's by less than a fourth of what its lines would take if kept."""

    def resident():
        with open(f"/proc/{process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    source = tmp_path / "in.txt"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(f"▁w{number % 16} ▁w{number // 16 % 16} {number:0{LONG_LINE}}\n" for number in range(count))
    common = ("translate", "-m", model, "-b", "1", "--max-length", "3", "--min-length", "3", "-i", str(source))
    peaks = [0, 0]
    with start(*common, stderr=subprocess.DEVNULL) as process:
        for done in range(count):
            assert process.stdout.readline()
            if done % 100 == 0 and process.poll() is None:
                half = 2 * done // count
                peaks[half] = max(peaks[half], resident())
        assert not process.stdout.read()
    assert process.returncode == 0
    assert min(peaks) > 0 and peaks[1] - peaks[0] < count / 2 * LONG_LINE / 4, peaks


def test_a_pulled_name_needs_none_of_the_networks_modules(tmp_path):
    code = """
import sys
from fastattn.cli.options import find_model
from fastattn.cli.printing import Progress
from fastattn.weights.download.catalog import CATALOG
CATALOG["minilm"].folder.mkdir(parents=True)
assert find_model("minilm", Progress()) == str(CATALOG["minilm"].folder)
print(*{"ssl", "http.client", "fastattn.weights.download.pull"} & set(sys.modules))
"""
    assert run_child(code, FASTATTN_CACHE=str(tmp_path)) == "\n"
