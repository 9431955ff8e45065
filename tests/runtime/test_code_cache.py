"""Compiled code in the cache: what is damaged or another's is compiled anew and told of, never run."""

import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.runtime import compiling, handle
from fastattn.runtime.code_cache import Code, CodeFolder
from fastattn.runtime.handle import kernel_named

CHILD = """
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime.compiling import on_compile
on_compile(lambda name: print("compiled", name))
x = np.arange(160, dtype=np.float32).reshape(10, 16)
print("result", operations.rms_norm(x, np.ones(16, np.float32), 1e-5).tobytes().hex()[:64])
"""

FORM = "f2C,f2C,f1C,f1C,D,B,f2C"  # of the kernel's arguments there


def run(cache: Path, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "FASTATTN_CACHE": str(cache)}
    return subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], str]:
    """(the cache's files with a kernel in them, what it gives)."""
    cache = tmp_path_factory.mktemp("compiled")
    first = run(cache)
    assert first.returncode == 0 and "compiled norm._normalise" in first.stdout, first.stderr
    files = {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("norm*")}
    assert len(files) == 1
    return files, first.stdout.splitlines()[-1]


def written(cache: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = cache / name
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_bytes(data)
        path.chmod(0o600)
    return path


def damaged(data: bytes, damage: str) -> bytes:
    rng = random.Random(damage)
    if damage.startswith("byte"):
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :]
    if damage == "zeros":
        at = len(data) // 2
        return data[:at] + bytes(4096) + data[at + 4096 :]
    cut = {"truncated": data[:-1], "a beginning": data[:99], "empty": b"", "longer": data + b"\0"}
    return (cut | {"foreign": b"\x80\x04I am no cache"})[damage]


DAMAGES = ["byte 1", "zeros", "truncated", "a beginning", "empty", "longer", "foreign"]


@pytest.mark.parametrize("damage", [*DAMAGES, *(f"byte {n}" for n in range(2, 12))])
def test_a_damaged_file_is_not_loaded(tmp_path: Path, compiled: tuple[dict[str, bytes], str], damage: str) -> None:
    ((name, data),) = compiled[0].items()
    path = written(tmp_path, {name: data})
    folder, label = CodeFolder(lambda: path.parent), "norm._normalise"
    assert folder.load(label, FORM) is not None
    path.write_bytes(damaged(data, damage))
    with pytest.warns(UserWarning, match="^a compiled kernel in .* is damaged"):
        assert folder.load(label, FORM) is None


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[str]]:
    """A function that runs the kernel as a process would that has only this folder of compiled code.

    Returns what is compiled, the result and what is warned of.
    """
    kernel = kernel_named("norm", "_normalise")
    monkeypatch.setattr(kernel, "variants", {})
    monkeypatch.setattr(kernel, "wrappers", [])
    told: list[str] = []
    monkeypatch.setattr(compiling, "_listeners", [lambda name: told.append(f"compiled {name}")])
    x = np.arange(160, dtype=np.float32).reshape(10, 16)

    def call(folder: Path) -> list[str]:
        kernel.variants, kernel.wrappers = {}, []
        told.clear()
        monkeypatch.setattr(handle, "_folder", CodeFolder(lambda: folder))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = operations.rms_norm(x, np.ones(16, np.float32), 1e-5).tobytes().hex()[:64]
        return [*told, f"result {result}"] + [str(warning.message) for warning in caught]

    return call


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_anew_with_one_line(
    tmp_path: Path, compiled: tuple[dict[str, bytes], str], call: Callable[[Path], list[str]], damage: str
) -> None:
    files, result = compiled
    path = written(tmp_path, {name: damaged(data, damage) for name, data in files.items()})
    *found, told = call(path.parent)
    assert found == ["compiled norm._normalise", result]
    assert told.startswith("a compiled kernel in ")
    assert path.read_bytes() != damaged(files[str(path.relative_to(tmp_path))], damage)
    assert call(path.parent) == [result]


class Planted:
    """What unpickling would run."""

    def __reduce__(self):
        return os.system, ("echo planted",)


def test_a_planted_pickle_is_not_unpickled(tmp_path: Path, compiled: tuple[dict[str, bytes], str]) -> None:
    files, result = compiled
    written(tmp_path, dict.fromkeys(files, pickle.dumps(Planted())))
    done = run(tmp_path)
    assert done.stdout.splitlines() == ["compiled norm._normalise", result]
    assert done.stderr.count("UserWarning: a compiled kernel in ") == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize("whose", ["file for all", "folder for all", "file of another", "link"])
def test_what_others_may_have_written_is_not_run(
    tmp_path: Path, compiled: tuple[dict[str, bytes], str], call: Callable[[Path], list[str]], whose: str
) -> None:
    files, result = compiled
    path = written(tmp_path, files)
    if whose == "file for all":
        path.chmod(0o666)
    elif whose == "folder for all":
        path.parent.chmod(0o777)
    elif whose == "file of another":
        if os.geteuid() != 0:
            pytest.skip("needs root, who may give files away")
        os.chown(path, 54321, 54321)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    *found, told = call(path.parent)
    assert found == ["compiled norm._normalise", result] and "others may have written them" in told


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_nobody_else_may_write_what_is_made_whatever_the_umask(tmp_path: Path) -> None:
    assert run(tmp_path / "cache", umask=0).returncode == 0
    made = list((tmp_path / "cache").rglob("*"))
    assert made and not [path for path in made if path.stat().st_mode & 0o022]


AGED = """
import os, sys, time
from pathlib import Path
from fastattn.runtime.handle import cache_folder
kernels, days = Path(os.environ["FASTATTN_CACHE"], "kernels"), 86400
for name, age in (("a" * 24, 31), ("b" * 24, 29), ("c" * 24, 31), ("mine-and-foreign", 31), (cache_folder().name, 31)):
    (kernels / name).mkdir(parents=True)
    (kernels / name / "norm.some").write_text("code")
    times = (time.time() - age * days,) * 2
    os.utime(kernels / name / "norm.some", times)
    os.utime(kernels / name, times)
for name, age in (("a" * 24, 31), ("b" * 24, 29)):  # a digest of sources
    (kernels / (name + ".sources")).write_text("digest")
    os.utime(kernels / (name + ".sources"), (time.time() - age * days,) * 2)
old = time.time() - 31 * days
os.utime(kernels / ("c" * 24) / "norm.some", (time.time() - days, old))  # read by who may not mark the folder
(kernels / ("d" * 24)).symlink_to(kernels / ("a" * 24))
"""


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_what_nobody_used_for_thirty_days_goes_when_something_is_compiled(tmp_path: Path) -> None:
    environment = {**os.environ, "FASTATTN_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", AGED], env=environment, check=True)
    kernels = tmp_path / "kernels"
    before = {path.name for path in kernels.iterdir()}
    assert len(before) == 9
    assert "compiled norm._normalise" in run(tmp_path).stdout
    assert {path.name for path in kernels.iterdir()} == before - {"a" * 24, "a" * 24 + ".sources"}


LEAVER = """
import os, sys
from pathlib import Path
from fastattn.runtime.code_cache import CodeFolder
with CodeFolder(lambda: Path(sys.argv[1])).claimed("norm.some", "key"):
    os._exit(0)
"""


@pytest.mark.skipif(os.name == "nt", reason="no claims")
def test_the_claim_of_a_process_that_was_killed_goes_when_something_is_compiled(tmp_path: Path) -> None:
    """And that of a living one stays."""
    folder = CodeFolder(lambda: tmp_path)
    subprocess.run([sys.executable, "-c", LEAVER, str(tmp_path)], check=True)
    (left,) = tmp_path.iterdir()
    with folder.claimed("norm.other", "key"):
        folder.save("norm.third", "key", Code({}, [], b""))
        assert not left.exists() and len(list(tmp_path.iterdir())) == 2
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["norm.third"]


def test_nothing_goes_where_nothing_is_compiled(tmp_path: Path, compiled: tuple[dict[str, bytes], str]) -> None:
    written(tmp_path, compiled[0])
    old = tmp_path / "kernels" / ("a" * 24)
    old.mkdir()
    os.utime(old, (0, 0))
    assert run(tmp_path).stdout.splitlines() == [compiled[1]]
    assert old.exists()
