"""Odd surroundings, each in a process of its own: no home, a cache that is none, the compiler's variables, memory."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastattn.cli.entry import _explain
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, InputError, OutOfMemoryError
from fastattn.system import environment
from fastattn.system.cpus import default_threads
from fastattn.weights import read
from fastattn.weights.folder import map_file
from tests.cli.commands import fail
from tests.messages import refused
from tests.weights.ctranslate2.writer import write_tiny

COMMAND = ("-m", "fastattn.cli")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX users and limits")


def run(*arguments: str, cwd: Path | None = None, **variables: str | None) -> tuple[int, str, list[str]]:
    """(exit code, stdout, lines of stderr) of Python with these variables, None to remove one."""
    given = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
    command = [sys.executable, *(argument.encode() for argument in arguments)]  # ASCII locales encode no other
    done = subprocess.run(command, env=given, cwd=cwd, capture_output=True, text=True, encoding="utf-8")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("fastattn: compiling kernels")]
    return done.returncode, done.stdout, lines


REFUSED = [
    *(("NUMBA_NUM_THREADS", value) for value in ("0", "many", "")),
    *(("NUMBA_DISABLE_JIT", value) for value in ("1", "yes")),
    ("FASTATTN_THREADING", "openmp"),
]


def test_the_compilers_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in REFUSED:
        with monkeypatch.context() as patch, refused(InputError, name, repr(value)) as caught:
            patch.setenv(name, value)
            environment._check()
    line = str(caught.value)
    for command in ("translate", "-m", str(write_tiny(tmp_path / "model")), "▁w1"), ("inspect",):
        assert run(*COMMAND, *command, **{name: value}) == (2, "", [f"fastattn: {line}"])
    code = "import fastattn\ntry: fastattn.attention\nexcept fastattn.FastattnError as error: print(error)"
    assert run("-c", code, **{name: value}) == (0, line + "\n", [])
    for name, value in {"NUMBA_NUM_THREADS": " 1 ", "NUMBA_DISABLE_JIT": "0"}.items():
        monkeypatch.setenv(name, value)
    environment._check()
    assert default_threads.__wrapped__() == 1


@needs_posix
def test_a_cache_that_can_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(write_tiny(tmp_path / "model"))
    for chosen in ("~no-such-user/x", "~no-such-user"):
        monkeypatch.setenv("FASTATTN_CACHE", chosen)
        line = f"FASTATTN_CACHE should be the path of a folder, is {chosen}, "
        for arguments in (("translate", "-m", model, "▁w1"), ("inspect",), ("cache",), ("pull",), ("pull", "zh-en")):
            assert fail(2, *arguments).startswith(line), arguments
        with pytest.raises(InputError, match=f"^{line}"):
            Encoder("minilm")
    for arguments in (("translate", "-m", model, "▁w1"), ("warmup",)):  # whose threads have not begun yet
        code, output, lines = run(*COMMAND, *arguments)
        assert (code, output, len(lines)) == (2, "", 1) and lines[0].startswith(f"fastattn: {line}")


# What each command line of a list gives: its exit status, and the lines of both streams. As in a container whose user
# has a number and no name.
SEVERAL = """
import json, os, pwd, sys
def nobody(_): raise KeyError("no such user")
pwd.getpwuid = pwd.getpwnam = nobody
from click.testing import CliRunner
from fastattn.cli.entry import commands
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.weights.download.pip_settings import read_settings
read_settings()
x = np.ones((2, 8), np.float32)
assert operations.rms_norm(x, np.ones(8, np.float32), 0.0).tolist() == x.tolist()
for variables, arguments in json.loads(sys.argv[1]):
    os.environ.update(variables)
    done = CliRunner().invoke(commands, arguments)
    print(json.dumps([done.exit_code, done.stdout, done.stderr.splitlines()]))
"""


@needs_posix
def test_a_user_without_a_home_has_no_cache(tmp_path: Path) -> None:
    """Kernels run, and models that lie here, those that are to be fetched have no place; nothing is left."""
    model = str(write_tiny(tmp_path / "model"))
    place = tmp_path / "place"
    place.mkdir()
    nowhere = dict.fromkeys(("HOME", "FASTATTN_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"))
    nowhere |= {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    asked = [["inspect", model], ["cache"], ["pull", "zh-en"], ["pull", "owner/name"], ["inspect", "~/model"]]
    lines = [[{}, arguments] for arguments in asked] + [[{"FASTATTN_CACHE": "~/cache"}, ["inspect"]]]
    code, output, told = run("-c", SEVERAL, json.dumps(lines), cwd=place, **nowhere)
    assert (code, told) == (0, [])
    inspect, cache, pull, pull_of_hub, inspect_at_home, inspect_cache = map(json.loads, output.splitlines())
    assert inspect[::2] == [0, []] and "none: this user has no home folder; FASTATTN_CACHE names one" in inspect[1]
    assert cache[::2] == [0, []] and "0 entries" in cache[1]
    told = "needs a place to be kept, and this user has no home folder"
    assert pull == [4, "", [f"fastattn: zh-en {told}; FASTATTN_CACHE names one"]]
    assert pull_of_hub == [4, "", [f"fastattn: owner/name {told}; HF_HOME names one"]]
    assert inspect_at_home[0] == 3 and len(inspect_at_home[2]) == 1
    assert inspect_cache[0] == 2 and len(inspect_cache[2]) == 1
    assert "FASTATTN_CACHE should be the path of a folder, is ~/cache" in inspect_cache[2][0]
    assert list(place.iterdir()) == []


def test_a_folder_whose_name_begins_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path / "~no-such-user")
    assert read("~no-such-user").spec.kind == "encoder-decoder"


def test_no_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("fastattn.weights.folder.FileMap", fail)
    with pytest.raises(OutOfMemoryError, match="^not enough memory to read ") as raised:
        map_file(tmp_path / "file")
    assert isinstance(raised.value, MemoryError) and not isinstance(raised.value, CheckpointError)
    monkeypatch.setattr("fastattn.weights.EXPORTERS", {"x": lambda: type("X", (), {"recognize": fail})})
    with pytest.raises(OutOfMemoryError):
        read(tmp_path)


def test_what_the_command_line_makes_of_an_error() -> None:
    of_a_library = ImportError("x.so: failed to map segment from shared object")
    for error, told, code in (
        (MemoryError(), "not enough memory", 1),
        (MemoryError("Unable to allocate 1 GiB"), "not enough memory: Unable to allocate 1 GiB", 1),
        (RuntimeError("can't start new thread"), "not enough memory: can't start new thread", 1),
        (of_a_library, f"not enough memory: {of_a_library}", 1),
        (OutOfMemoryError("not enough memory to read x"), "not enough memory to read x", 1),
        (InputError("no"), "no", 2),
        (RuntimeError("something else"), None, 1),
    ):
        assert _explain(error) == (told, code)
