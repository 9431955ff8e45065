"""The name of the folder of compiled code changes with every source that may be frozen into it."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastattn
from fastattn.errors import FastattnError
from fastattn.runtime import code_cache
from fastattn.runtime.code_cache import kernel_sources, sources_digest
from tests import ROOT
from tests.children import run_child

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


@pytest.mark.parametrize("name", sorted(kernel_sources(PACKAGE)))
def test_each_source_changes_the_folder(tree: Path, name: str) -> None:
    before, path = sources_digest(tree), tree / name
    contents = path.read_bytes()
    path.write_bytes(contents + b"\n")
    changed = sources_digest(tree)
    path.write_bytes(contents)
    assert changed != before == sources_digest(tree)


def test_the_order_of_activations_changes_the_folder(tree: Path) -> None:
    """Their places in spec/architecture.py are the codes by which kernels know them."""
    before, path = sources_digest(tree), tree / "spec/architecture.py"
    contents = path.read_text("utf-8")
    assert '"relu", "gelu"' in contents
    path.write_text(contents.replace('"relu", "gelu"', '"gelu", "relu"'), "utf-8")
    changed = sources_digest(tree)
    path.write_text(contents, "utf-8")
    assert changed != before


def test_a_source_that_only_others_import_changes_nothing(tree: Path) -> None:
    before, path = sources_digest(tree), tree / "translation/translator.py"
    path.write_text(path.read_text("utf-8") + "\n", "utf-8")
    assert sources_digest(tree) == before


@pytest.mark.parametrize("how", ["import fastattn.new", "from fastattn.new import X", "    from fastattn import new"])
def test_a_new_import_is_followed(tree: Path, how: str) -> None:
    norm, new = tree / "kernels" / "norm.py", tree / "new.py"
    contents = norm.read_text("utf-8")
    new.write_text("X = 1\n")
    norm.write_text(contents + f"\n{how}\n", "utf-8")
    assert "new.py" in kernel_sources(tree)
    norm.write_text(contents, "utf-8")
    assert "new.py" not in kernel_sources(tree)


# A process that compiles one kernel; what its arguments say is done before it calls it, or while it compiles.
CHANGED = """
import os, pathlib, sys, time
import numpy as np
import fastattn
from fastattn.ops import cpu as operations
from fastattn.runtime import kernel_code, handle

root = pathlib.Path(fastattn.__file__).parent
emit = root / "simd" / "emit.py"
text = emit.read_text()
changed = text.replace("return self.builder.fsub(a, b,", "return self.builder.fadd(a, b,  ")
assert changed != text
when, how = sys.argv[1:]
x = np.arange(8, dtype=np.float32).reshape(1, 8)

def change():
    if how == "a kernel's":
        (root / "kernels" / "search.py").write_text("")
    elif how == "replaced":
        other = emit.with_suffix(".new")
        other.write_text(changed)
        os.utime(other, (1, 1))
        other.replace(emit)
    else:
        emit.write_text(changed)
        if how == "changed back":
            from fastattn.simd import emit as loaded
            emit.write_text(text)

if when == "before the first kernel":
    change()
else:
    operations.layer_norm(x, x[0], None, 1e-5)
    if when == "after it":
        change()
    else:
        compile_kernel = kernel_code.compile_kernel
        kernel_code.compile_kernel = lambda *form: (change(), compile_kernel(*form))[1]
try:
    if how == "a kernel's":
        from fastattn.ops.cpu import search
    operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
except fastattn.FastattnError as error:
    print(error)
emit.write_text(text)
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a clone, a cache in which it has one kernel)."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(PACKAGE, folder / "clone" / "fastattn", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "clone", folder / "cache"


@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("before the first kernel", "written"),
        ("after it", "written"),
        ("after it", "replaced"),
        ("after it", "changed back"),
        ("while it compiles", "written"),
        ("after it", "a kernel's"),
    ],
)
def test_nothing_is_made_of_sources_that_change_meanwhile(warm: tuple[Path, Path], when: str, how: str) -> None:
    """A checkout, say, or an upgrade, while a process is up: it would be loaded by all that come later."""
    clone, cache = warm
    told = run_child(CHANGED, when, how, cwd=clone, FASTATTN_CACHE=str(cache), PYTHONDONTWRITEBYTECODE="1")
    name = "kernels/search.py" if how == "a kernel's" else "simd/emit.py"
    assert told == f"{name} of fastattn was changed while this process ran: start the process anew\n"
    assert {path.name.rpartition("-")[0] for path in cache.glob("kernels/*/*")} <= {"norm._normalise"}


def test_a_link_to_nowhere_among_the_sources_is_left_alone(tree: Path) -> None:
    before = sources_digest(tree)
    link = tree / "gone.py"
    link.symlink_to(tree / "nowhere.py")
    after = sources_digest(tree)
    link.unlink()
    assert after == before


def test_a_link_to_the_sources_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As installers make them, which know a file already; the time of the last change of its status is another."""
    package = tmp_path / "fastattn"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_cache, "_PACKAGE", package)
    look = code_cache._Look(dict(code_cache._statuses(package)), 0)
    monkeypatch.setattr(code_cache, "_at_first", lambda: look)
    (tmp_path / "link").hardlink_to(package / "spec/architecture.py")
    (package / "translation/translator.py").write_text("")  # no source of kernels
    code_cache.check_sources()
    (package / "spec/architecture.py").touch()
    with pytest.raises(FastattnError, match=r"^spec/architecture\.py of fastattn was changed while"):
        code_cache.check_sources()
    (package / "spec/architecture.py").unlink()
    with pytest.raises(FastattnError, match=r"^spec/architecture\.py of fastattn was changed while"):
        code_cache.check_sources()


def test_a_digest_is_remembered(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    monkeypatch.setattr(code_cache, "_TICK", 0)
    digest = sources_digest(tree)
    (memory,) = (tmp_path / "kernels").iterdir()
    memory.write_text(memory.read_text().replace(digest, "remembered"))
    assert sources_digest(tree) == "remembered"
    (tree / "spec/architecture.py").touch()
    assert sources_digest(tree) == digest


def test_what_was_written_a_moment_ago_is_not_remembered(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written once more, a file may have the same size and, by the clock of the file system, the same times."""
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    monkeypatch.setattr(code_cache, "_TICK", 10**15)
    sources_digest(tree)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", code_cache.SETTINGS)
def test_settings_of_numba_change_the_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "settings", code_cache.settings.__wrapped__)
    monkeypatch.delenv(name, raising=False)
    before = code_cache.code_digest.__wrapped__()
    monkeypatch.setenv(name, "0")
    assert code_cache.code_digest.__wrapped__() != before


SET = """
import numpy as np
import numba
from fastattn.ops import cpu as operations
assert numba.config.LOOP_VECTORIZE == 0
operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
"""


@pytest.mark.parametrize("how", ["by the program", "in a file"])
def test_settings_that_no_variable_says_are_not_kept(tmp_path: Path, how: str) -> None:
    if how == "in a file":
        pytest.importorskip("yaml")
        (tmp_path / ".numba_config.yaml").write_text("loop_vectorize: 0\n")
    code = (
        SET if how == "in a file" else SET.replace("import numba\n", "import numba\nnumba.config.LOOP_VECTORIZE = 0\n")
    )
    environment = {**os.environ, "FASTATTN_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert not list((tmp_path / "cache").glob("kernels/*/*"))
