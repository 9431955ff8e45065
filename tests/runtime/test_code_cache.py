"""Compiled code in the cache: what is damaged or another's is compiled anew and told of, never run."""

import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastattn.ops import cpu as operations
from fastattn.runtime import code_cache, compiling, handle
from fastattn.runtime.code_cache import Code, CodeFolder
from fastattn.runtime.handle import kernel_named

LABEL, FORM = "norm._normalise", "f2C,f2C,f1C,f1C,D,B,f2C"
OURS = Path("kernels") / ("e" * 24)  # of a cache, the folder that the process has
Call = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """The kernel's, compiled once."""
    cache = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handle, "_folder", CodeFolder(lambda: cache / OURS))
        kernel = kernel_named("norm", "_normalise")
        made = kernel._compile_and_save(FORM, [])
    found = CodeFolder(lambda: cache / OURS).load(LABEL, FORM)
    assert found is not None and found == made
    return made


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: Code) -> Call:
    """A function that runs the kernel as a process would that has only this folder of compiled code.

    Returns what is compiled, the result and what is warned of.
    """
    kernel = kernel_named("norm", "_normalise")
    for name, value in {"variants": {}, "wrappers": [], "_compile": lambda key, classes: code}.items():
        monkeypatch.setattr(kernel, name, value)
    told: list[str] = []
    monkeypatch.setattr(compiling, "_listeners", [lambda name: told.append(f"compiled {name}")])
    monkeypatch.setattr(code_cache, "warn_once", told.append)
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    x = np.arange(160, dtype=np.float32).reshape(10, 16)

    def call(folder: Path) -> list[str]:
        kernel.variants, kernel.wrappers = {}, []
        told.clear()
        monkeypatch.setattr(handle, "_folder", CodeFolder(lambda: folder))
        result = operations.rms_norm(x, np.ones(16, np.float32), 1e-5)
        np.testing.assert_allclose((result**2).mean(axis=1), 1, rtol=1e-4)
        return [*dict.fromkeys(told)]  # a warning that comes again is told once

    return call


@pytest.fixture
def file(call: Call, tmp_path: Path) -> Path:
    """That of the kernel, in a cache at ``tmp_path``."""
    assert call(tmp_path / OURS) == [f"compiled {LABEL}"]
    (path,) = (tmp_path / OURS).iterdir()
    return path


def aged(path: Path, days: float, read: float | None = None) -> None:
    """Make a file or a folder so many days old."""
    now = time.time()
    os.utime(path, (now - 86_400 * (days if read is None else read), now - 86_400 * days))


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


def test_a_damaged_file_is_compiled_anew_with_one_line_and_never_loaded(file: Path, call: Call) -> None:
    data = file.read_bytes()
    for damage in (*DAMAGES, *(f"byte {n}" for n in range(2, 12))):
        wrong = damaged(data, damage)
        file.write_bytes(wrong)
        told, compiled = call(file.parent)
        assert compiled == f"compiled {LABEL}", damage
        assert told.startswith("a compiled kernel in ") and " is damaged" in told
        assert file.read_bytes() == data
        assert call(file.parent) == []


class Planted:
    """What unpickling would run."""

    def __reduce__(self):
        return os.system, ("echo planted",)


def test_a_planted_pickle_is_not_unpickled(file: Path, call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(pickle.dumps(Planted()))
    told, compiled = call(file.parent)
    assert compiled == f"compiled {LABEL}" and told.startswith("a compiled kernel in ")
    assert capfd.readouterr() == ("", "")


def test_a_file_of_another_form_or_with_odd_symbols_is_not_loaded(tmp_path: Path, code: Code) -> None:
    """Whose digest is right: it was renamed, say."""
    folder = CodeFolder(lambda: tmp_path / OURS)
    folder.save(LABEL, "another", code)
    (other,) = (tmp_path / OURS).iterdir()
    folder.save(LABEL, FORM, code)
    (mine,) = {*(tmp_path / OURS).iterdir()} - {other}
    other.replace(mine)
    with pytest.raises(ValueError, match="another variant"):
        folder.load(LABEL, FORM)
    folder.save(LABEL, FORM, code._replace(needs=["a symbol"]))
    with pytest.raises(ValueError, match="another variant"):
        folder.load(LABEL, FORM)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize("whose", ["file for all", "folder for all", "file of another", "link"])
def test_what_others_may_have_written_is_not_run(tmp_path: Path, file: Path, call: Call, whose: str) -> None:
    if whose == "file for all":
        file.chmod(0o666)
    elif whose == "folder for all":
        file.parent.chmod(0o777)
    elif whose == "file of another":
        if os.geteuid() != 0:
            pytest.skip("needs root, who may give files away")
        os.chown(file, 54321, 54321)
    else:
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    told, compiled = call(file.parent)
    assert compiled == f"compiled {LABEL}" and "others may have written them" in told


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_nobody_else_may_write_what_is_made_whatever_the_umask(tmp_path: Path, call: Call) -> None:
    before = os.umask(0)
    try:
        call(tmp_path / "cache" / OURS)
    finally:
        os.umask(before)
    made = list((tmp_path / "cache").rglob("*"))
    assert len(made) == 3 and not [path for path in made if path.stat().st_mode & 0o022]


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_what_nobody_used_for_thirty_days_goes_when_something_is_compiled(tmp_path: Path, call: Call) -> None:
    kernels = tmp_path / "kernels"
    for name, days in (("a" * 24, 31), ("b" * 24, 29), ("c" * 24, 31), ("mine-and-foreign", 31), (OURS.name, 31)):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "norm.some").write_text("code")
        # one was read by who may not mark the folder
        aged(kernels / name / "norm.some", days, read=1 if name[0] == "c" else None)
        aged(kernels / name, days)
    for name, days in (("a" * 24, 31), ("b" * 24, 29)):  # a digest of sources
        (kernels / f"{name}.sources").write_text("digest")
        aged(kernels / f"{name}.sources", days)
    (kernels / ("d" * 24)).symlink_to(kernels / ("a" * 24))
    before = {path.name for path in kernels.iterdir()}
    assert len(before) == 8
    assert call(tmp_path / OURS) == [f"compiled {LABEL}"]
    assert {path.name for path in kernels.iterdir()} == before - {"a" * 24, "a" * 24 + ".sources"}


def test_nothing_goes_where_nothing_is_compiled(tmp_path: Path, file: Path, call: Call) -> None:
    old = tmp_path / "kernels" / ("a" * 24)
    old.mkdir()
    aged(old, 31)
    assert call(file.parent) == [] and old.exists()


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
