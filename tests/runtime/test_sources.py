"""The name of the folder of compiled code changes with every source that may be frozen into it."""

import ast
import shutil
from pathlib import Path

import pytest

import fastattn
from fastattn.runtime.sources import kernel_sources, sources_digest

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
    assert {"spec.py", "simd/emit.py", "runtime/loop.py", "runtime/__init__.py", "simd/constants.py"} <= found
    assert not {name for name in found if name.startswith(("models/", "decoding/", "cli/", "weights/", "operations/"))}


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
    """Their places in spec.py are the codes by which kernels know them."""
    before, path = sources_digest(tree), tree / "spec.py"
    contents = path.read_text("utf-8")
    assert '"relu", "gelu"' in contents
    path.write_text(contents.replace('"relu", "gelu"', '"gelu", "relu"'), "utf-8")
    changed = sources_digest(tree)
    path.write_text(contents, "utf-8")
    assert changed != before


def test_a_source_that_only_others_import_changes_nothing(tree: Path) -> None:
    before, path = sources_digest(tree), tree / "translator.py"
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
