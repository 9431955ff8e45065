"""The package as it is installed: what its import brings in, its names, its command, and a wheel of it alone."""

import ast
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests import ROOT
from tests.import_table import modules


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, encoding="utf-8", **options)


def test_packages_cannot_be_imported_by_their_folders_names():
    done = run("-c", "try:\n import weights\nexcept ImportError as e: print(e)\nimport cli", cwd=ROOT)
    assert done.returncode == 1
    assert "import this package as fastattn.weights" in done.stdout
    assert "ImportError: import this package as fastattn.cli" in done.stderr


def test_import_and_help_are_light():
    code = (
        "import sys, fastattn, fastattn.cli\n"
        "print(fastattn.__version__, [m for m in ('numba', 'numpy', 'tokenizers', 'llvmlite') if m in sys.modules])\n"
        "shown = {name for name in dir(fastattn) if not name.startswith('__') or name == '__version__'}\n"
        "print(sorted(shown ^ set(fastattn.__all__)))\n"
        "from fastattn import FastattnError\n"
        "try: fastattn.nothing\n"
        "except AttributeError as e: print(e)\n"
    )
    done = run("-c", code)
    assert done.stderr == ""
    version, rest, error = done.stdout.splitlines()
    assert version.endswith("[]"), version
    assert rest == "[]", "dir shows the public names, and dunders"
    assert error == "module 'fastattn' has no attribute 'nothing'"


LIGHT = """
import importlib, pkgutil, sys
import fastattn.cli, fastattn.encoders.encoder, fastattn.ops.cpu, fastattn.translation.translator
from fastattn import mechanisms
from fastattn import array_attention as functional
from fastattn.cli import warmup
from fastattn.runtime import arena, handle, threads
for package in (fastattn.ops.cpu, fastattn.cli, functional, mechanisms):
    for room in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not room.name.endswith("__main__"):
            importlib.import_module(room.name)
names = [name for name in fastattn.__all__ if name != "explain_function"]
print([getattr(fastattn, name) for name in names] and threads.thread_limit() >= 1)
print([name for name in sys.modules if name.partition(".")[0] == "numba"])
"""


def test_numba_is_imported_by_no_more_than_a_call_of_a_kernel():
    done = run("-c", LIGHT)
    assert (done.stderr, done.stdout) == ("", "True\n[]\n")


def test_the_package_is_a_command():
    for arguments in (["--version"], ["--help"], ["sing"]):
        here, there = (run("-m", module, *arguments) for module in ("fastattn", "fastattn.cli"))
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
        assert "fastattn" in here.stdout + here.stderr and "__main__" not in here.stdout + here.stderr


def test_public_names_are_there():
    import fastattn

    for name in fastattn.__all__:
        assert getattr(fastattn, name) is not None
    tree = ast.parse((ROOT / "fastattn" / "__init__.py").read_text(encoding="utf-8"))
    typed = [name.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names]
    assert sorted([*filter(None, typed), "__version__"]) == fastattn.__all__, "type checkers know the same"
    assert fastattn.Translator.__module__ == "fastattn.translation.translator"


@pytest.fixture
def source(tmp_path):
    """A copy of what packaging reads: building writes into the source folder."""
    for name in ("fastattn", "weights", "cli"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_wheel_holds_fastattn_alone(source):
    done = run("-c", "from setuptools import build_meta; build_meta.build_wheel('dist')", cwd=source)
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if ".dist-info/" not in name}
    assert all(name.startswith("fastattn/") for name in inside)
    expected = {name.replace(".", "/") for name, _ in modules()}
    found = {name.removesuffix(".py").removesuffix("/__init__") for name in inside if name.endswith(".py")}
    assert found == expected
    assert "fastattn/py.typed" in inside
    assert any(name.endswith("LICENSE") for name in names)
