"""Compiled code in the cache: its folder's name changes with every source; what is damaged or another's never runs."""

import ast
import contextlib
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numba
import numpy as np
import pytest

import fastattn
from fastattn.errors import FastattnError
from fastattn.ops import cpu as operations
from fastattn.runtime import code_cache, compiling, handle
from fastattn.runtime.code_cache import Code, CodeFolder, kernel_sources, sources_digest
from fastattn.runtime.handle import Kernel, kernel_named
from fastattn.simd.target import compiled_features
from tests import ROOT
from tests.children import run_child
from tests.messages import refused

PACKAGE = Path(fastattn.__file__).parent


def imported(path: Path) -> set[str]:
    """Names of fastattn's own modules, or what is in them, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return {name for name in names if name.startswith("fastattn.")}


def test_all_that_kernels_import_is_among_the_sources() -> None:
    """As Python's own parser sees the imports."""
    found = set(kernel_sources(PACKAGE))
    assert {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "kernels").rglob("*.py")} <= found
    for name in found:
        for module in imported(PACKAGE / name):
            place = "/".join(module.split(".")[1:])
            for file in (f"{place}.py", f"{place}/__init__.py"):
                if (PACKAGE / file).is_file():
                    assert file in found, f"{name} imports {module}"
    assert {"runtime/pool_code.py", "runtime/kernel_code.py"} <= found, "which are named where they are called"
    named = "spec/architecture.py", "simd/emit.py", "runtime/loop.py", "runtime/__init__.py", "simd/arguments.py"
    assert set(named) <= found
    assert not {name for name in found if name.startswith(("models/", "decoding/", "cli/", "weights/", "ops/cpu/"))}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("sources") / "fastattn"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def changed_by(tree: Path, name: str, change: Callable[[bytes], bytes]) -> bool:
    """Whether the digest is another one while a file is changed; afterwards it is as before."""
    before, path = sources_digest(tree), tree / name
    contents = path.read_bytes()
    assert change(contents) != contents
    path.write_bytes(change(contents))
    changed = sources_digest(tree)
    path.write_bytes(contents)
    assert sources_digest(tree) == before
    return changed != before


def test_each_source_changes_the_folder_and_nothing_else_does(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of activations too: their places in spec/architecture.py are the codes by which kernels know them."""
    sources = kernel_sources(tree)
    assert changed_by(tree, "spec/architecture.py", lambda text: text.replace(b'"relu", "gelu"', b'"gelu", "relu"'))
    assert not changed_by(tree, "translation/translator.py", lambda text: text + b"\n")
    found = dict(sources)
    monkeypatch.setattr(code_cache, "kernel_sources", lambda package: found)
    monkeypatch.setattr(code_cache, "open_trusted", Mock(side_effect=OSError))  # what is remembered is of the files
    whole = sources_digest(tree)
    for name, contents in sources.items():
        found[name] = contents + b"\n"
        assert sources_digest(tree) != whole, name
        found[name] = contents
    renamed = {name.replace("kernels/norm", "kernels/other"): contents for name, contents in sources.items()}
    monkeypatch.setattr(code_cache, "kernel_sources", lambda package: renamed)
    assert sources_digest(tree) != whole


def test_a_new_import_is_followed(tree: Path) -> None:
    norm, new = tree / "kernels" / "norm.py", tree / "new.py"
    contents = norm.read_text("utf-8")
    new.write_text("X = 1\n")
    for how in ("import fastattn.new", "from fastattn.new import X", "    from fastattn import new"):
        norm.write_text(contents + f"\n{how}\n", "utf-8")
        assert "new.py" in kernel_sources(tree)
    norm.write_text(contents, "utf-8")
    assert "new.py" not in kernel_sources(tree)


def test_a_digest_is_remembered_unless_a_file_was_written_a_moment_ago(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written once more, a file may have the same size and, by the clock of the file system, the same times."""
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    monkeypatch.setattr(code_cache, "_CLOCK_LAG", 10**15)
    digest = sources_digest(tree)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(code_cache, "_CLOCK_LAG", 0)
    (tree / "gone.py").symlink_to(tree / "nowhere.py")
    assert sources_digest(tree) == digest, "a link to nowhere is left alone"
    (tree / "gone.py").unlink()
    (memory,) = (tmp_path / "kernels").iterdir()
    memory.write_text(memory.read_text().replace(digest, "remembered"))
    assert sources_digest(tree) == "remembered"
    (tree / "spec/architecture.py").touch()
    assert sources_digest(tree) == digest


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that this process takes for its own, as if its first kernel were called now."""
    code_cache.code_digest()  # of the real one
    package = tmp_path / "fastattn"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_cache, "_PACKAGE", package)
    time.sleep(0.05)  # the file system's clock may be behind
    monkeypatch.setattr(code_cache, "_CLOCK_LAG", 0)
    monkeypatch.setattr(fastattn, "_imported_at", time.time_ns())
    time.sleep(0.05)
    look = code_cache._Snapshot(dict(code_cache._statuses(package)), time.time_ns())
    monkeypatch.setattr(code_cache, "_first_snapshot", lambda: look)
    return package


def change(file: Path, how: str) -> None:
    status = file.stat()
    if how == "replaced":  # by one of the same size and time
        file.rename(file.with_name("kept"))
        file.write_bytes(bytes(status.st_size))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif how == "changed back":
        file.touch()
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["replaced", "changed back", "gone"])
def test_nothing_is_made_of_sources_that_change(package: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A checkout, say, or an upgrade, while a process is up: what it made would be loaded by all that come later."""
    spec, compiled, saved = package / "spec" / "architecture.py", [], []

    def compile_kernel(key: str, classes: list[type]) -> Code:
        compiled.append(key)
        change(spec, how)
        return Code({}, [], b"")

    folder = SimpleNamespace(save=lambda *given: saved.append(given), load=lambda *form: None)
    folder.claimed = lambda *form: contextlib.nullcontext(True)
    monkeypatch.setattr(handle, "_folder", folder)
    monkeypatch.setattr(handle, "start_processes", lambda: None)
    kernel = Kernel("fastattn.made_up", "kernel")
    monkeypatch.setattr(kernel, "_compile", compile_kernel)
    monkeypatch.setattr(kernel, "_link", Mock(side_effect=AssertionError))
    (package / "link").hardlink_to(spec)  # as installers do; the time of the last change of its status is another
    (package / "translation" / "translator.py").write_text("")  # no source of kernels
    for _ in ("while it compiles", "before it does"):
        with refused(FastattnError, "spec/architecture.py"):
            kernel._variant("key", [])
    assert (compiled, saved) == (["key"], [])


def test_who_asks_for_a_kernel_that_was_changed_gets_none(package: Path) -> None:
    (package / "kernels" / "search.py").write_text("")
    with refused(FastattnError, "kernels/search.py"):
        kernel_named("search", "other")
    kernel_named("norm", "_normalise")


def test_a_source_that_was_changed_while_they_were_imported(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code_cache.code_digest.__wrapped__()
    change(package / "spec" / "architecture.py", "changed back")
    look = code_cache._Snapshot(dict(code_cache._statuses(package)), time.time_ns() + 10**9)
    monkeypatch.setattr(code_cache, "_first_snapshot", lambda: look)
    with refused(FastattnError, "spec/architecture.py"):
        code_cache.code_digest.__wrapped__()


def test_settings_of_numba_change_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "settings", code_cache.settings.__wrapped__)
    for name in code_cache.SETTINGS:
        monkeypatch.delenv(name, raising=False)
        before = code_cache.code_digest.__wrapped__()
        monkeypatch.setenv(name, "0")
        assert code_cache.code_digest.__wrapped__() != before, name
        monkeypatch.delenv(name)


def test_settings_that_no_variable_says_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a program has changed, and those of a file, which Numba reads as it is imported."""
    kernel, saved = Kernel("fastattn.made_up", "kernel"), []
    monkeypatch.setattr(kernel, "_compile", lambda key, classes: Code({}, [], b""))
    monkeypatch.setattr(handle, "_folder", SimpleNamespace(save=lambda *given: saved.append(given)))
    kernel._compile_and_save("key", [])
    assert len(saved) == 1
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "LOOP_VECTORIZE", 0)
        kernel._compile_and_save("key", [])
    assert len(saved) == 1
    pytest.importorskip("yaml")
    (tmp_path / ".numba_config.yaml").write_text("loop_vectorize: 0\n")
    code = "from fastattn.runtime.internals import reads_settings; print(reads_settings({}))"
    assert run_child(code, cwd=tmp_path, PYTHONPATH=str(ROOT)) == "False\n"


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


def aged(path: Path, days: float) -> None:
    os.utime(path, (time.time() - 86_400 * days,) * 2)


class Planted:
    """What unpickling would run."""

    def __reduce__(self):
        return os.system, ("echo planted",)


def damaged(data: bytes) -> Iterator[bytes]:
    rng, middle = random.Random(0), len(data) // 2
    yield from (data[:-1], data[:99], b"", data + b"\0", data[:middle] + bytes(4096) + data[middle + 4096 :])
    yield pickle.dumps(Planted())
    for at in (rng.randrange(len(data)) for _ in range(11)):
        yield data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :]


def test_a_damaged_file_is_compiled_anew_with_one_line_and_never_loaded(
    file: Path, call: Call, capfd: pytest.CaptureFixture[str]
) -> None:
    data = file.read_bytes()
    for number, wrong in enumerate(damaged(data)):
        file.write_bytes(wrong)
        told, compiled = call(file.parent)
        assert compiled == f"compiled {LABEL}", number
        assert told.startswith("a compiled kernel in ") and " is damaged" in told
        assert file.read_bytes() == data
        assert call(file.parent) == []
    assert capfd.readouterr() == ("", "")


def test_a_file_of_another_form_or_with_odd_symbols_is_not_loaded(tmp_path: Path, code: Code) -> None:
    """Whose digest is right: it was renamed, say."""
    folder = CodeFolder(lambda: tmp_path / OURS)
    folder.save(LABEL, "another", code)
    (other,) = (tmp_path / OURS).iterdir()
    folder.save(LABEL, FORM, code)
    (mine,) = {*(tmp_path / OURS).iterdir()} - {other}
    other.replace(mine)
    with refused(ValueError):
        folder.load(LABEL, FORM)
    folder.save(LABEL, FORM, code._replace(needs=["a symbol"]))
    with refused(ValueError):
        folder.load(LABEL, FORM)


def test_an_installed_package_spares_compiling_where_its_code_suits(
    file: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / code_cache.PACKAGE / code_cache.target_digest()
    installed.mkdir(parents=True)
    (installed / "features").write_text(" ".join(compiled_features()))
    file.rename(installed / file.name)
    monkeypatch.syspath_prepend(tmp_path / "site")

    monkeypatch.setattr(code_cache, "installed_folder", code_cache.installed_folder.__wrapped__)
    assert call(file.parent) == [] and not file.exists()
    with monkeypatch.context() as patch:
        patch.setattr(code_cache, "settings", lambda: {"NUMBA_OPT": "0"})
        assert call(file.parent) == [f"compiled {LABEL}"]
    file.unlink()
    (installed / "features").write_text("avx avx9")
    assert call(file.parent) == [f"compiled {LABEL}"], "of another CPU"
    file.unlink()
    (installed / "features").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(code_cache, "sources_digest", lambda package: "of other sources")
        assert call(file.parent) == [f"compiled {LABEL}"]
    file.unlink()
    (installed / file.name).write_bytes(b"damaged")
    warning, compiled = call(file.parent)
    assert f"in {installed} is damaged" in warning and compiled == f"compiled {LABEL}"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_what_others_may_have_written_is_not_run(file: Path, call: Call) -> None:
    for place in (file, file.parent):
        place.chmod(0o777)
        told, compiled = call(file.parent)
        assert compiled == f"compiled {LABEL}" and "others may have written them" in told


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_what_nobody_used_for_a_month_goes_when_something_is_compiled(file: Path, call: Call, tmp_path: Path) -> None:
    old, young = (file.parent.with_name(name * 24) for name in "ab")
    notes = old.with_name(f"{old.name}.sources")
    for path, days in ((old, 31), (young, 29), (file.parent, 31)):
        path.mkdir(exist_ok=True)
        aged(path, days)
    notes.write_text("digest")
    aged(notes, 31)
    assert call(file.parent) == [] and old.exists(), "nothing is compiled"
    file.unlink()
    assert call(file.parent) == [f"compiled {LABEL}"]
    assert {*file.parent.parent.iterdir()} == {young, file.parent}
    shutil.rmtree(tmp_path / "kernels")  # somebody clears it meanwhile
    assert call(file.parent) == [f"compiled {LABEL}"] and file.exists()


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
