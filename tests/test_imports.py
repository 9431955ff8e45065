"""Who may import whom: every import of the source is held against the table, and a wheel holds fastattn alone."""

import ast
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests import ROOT

ROOMS = {"fastattn": ROOT / "fastattn", "fastattn.weights": ROOT / "weights", "fastattn.cli": ROOT / "cli"}

# Room -> the rooms that it may import, beside itself and ANYBODY's. Model code takes its operations as an argument.
ANYBODY = {"errors", "cache", "kept", "lazy", "sharing", "shown", "warned", "_version"}
ABOVE_ALL = {
    "simd",
    "runtime",
    "kernels",
    "spec",
    "position_bias",
    "ops",
    "reference",
    "packed_file",
    "balance",
    "layers",
    "results",
    "similarity",
    "progress",
    "arguments",
    "call_options",
    "encoding",
    "scheduling",
    "presentation",
    "pipeline",
    "files",
    "models",
    "decoding",
    "weights",
    "text",
}
TABLE = {
    "": {"decoding", "encoder", "translator", "functional", "results", "runtime"},
    "__main__": {"cli"},
    "_version": set(),
    "errors": set(),
    "shown": set(),
    "cache": set(),
    "kept": set(),
    "lazy": set(),
    "sharing": set(),
    "scheduling": set(),
    "warned": set(),
    "environment": set(),
    "progress": set(),
    "simd": set(),
    "spec": set(),
    "edits": set(),
    "position_bias": set(),
    "ops": {"spec", "edits", "position_bias"},
    "tensors": {"spec"},
    "rounding": {"spec"},
    "runtime": {"simd", "environment"},
    "kernels": {"simd", "runtime", "spec", "rounding", "edits", "position_bias"},  # spec for the activations' names
    "reference": {"spec", "rounding", "edits", "position_bias"},
    "packed_file": {"kernels", "weights", "spec"},
    "results": set(),
    "arguments": {"decoding"},
    "call_options": {"arguments", "decoding", "text"},
    "encoding": {"models", "scheduling"},
    "presentation": {"decoding", "results", "text"},
    "pipeline": {"arguments", "decoding", "presentation", "results", "scheduling", "text"},
    "files": {"results"},
    "similarity": set(),
    "layers": {"position_bias", "ops", "spec", "rounding"},
    "balance": {"models", "layers", "ops", "spec"},
    "models": {"layers", "ops", "spec", "edits", "position_bias"},
    "decoding": {"models", "scheduling", "ops", "spec", "edits"},
    "weights": {
        "spec",
        "tensors",
        "rounding",
        "text",
    },  # text for the pieces of a .spm, which are a Marian's vocabulary
    "text": {"spec"},
    "attention_float64": set(),
    "functional": {"position_bias", "kernels", "runtime", "attention_float64"},
    "translator": ABOVE_ALL,
    "encoder": ABOVE_ALL,
    # spec for the checkpoint that weights.read returns; kernels and simd to say what is compiled and for what, and
    # kernels for what convert balances with them.
    "cli": {
        "",
        "encoder",
        "translator",
        "files",
        "weights",
        "balance",
        "spec",
        "tensors",
        "text",
        "runtime",
        "kernels",
        "simd",
        "progress",
    },
}
# Room -> the packages from outside that it may import; NumPy and the standard library are everybody's.
OUTSIDE = {
    "simd": {"numba", "llvmlite"},
    "runtime": {"numba", "llvmlite"},
    "kernels": {"numba", "llvmlite"},
    "text": {"tokenizers"},
    "weights": {"huggingface_hub"},  # a dependency of tokenizers
    "cli": {"click", "numba", "llvmlite"},
}


def modules():
    """(dotted name, file) of every module of the package as it is installed."""
    for package, folder in ROOMS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join([package, *parts]), path


def room_of(module):
    return (module.split(".") + [""])[1]


def imports_of(path):
    """Dotted names of all that a file imports, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            # `from fastattn import spec` imports a room; `from fastattn import Encoder` a public name
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if node.module == "fastattn" else node.module


@pytest.mark.parametrize("module, path", list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_only_what_the_table_allows(module, path):
    room = room_of(module)
    assert room in TABLE, f"{module} is in no room of the table"
    for imported in imports_of(path):
        top = imported.split(".")[0]
        if top == "fastattn":
            target = room_of(imported)
            target = target if target in TABLE else ""  # a public name
            assert target in {room} | ANYBODY | TABLE[room], f"{module} imports {imported}"
        elif top not in sys.stdlib_module_names | {"numpy"}:
            assert top in OUTSIDE.get(room, set()), f"{module} imports {imported}"


def test_table_has_no_room_that_is_gone():
    existing = {room_of(module) for module, _ in modules()}
    assert set(TABLE) <= existing


def test_kernels_are_imported_by_no_model():
    """The table again, told by its reason: the same model runs on kernels and on reference."""
    users = {room_of(module) for module, path in modules() if any(".kernels" in name for name in imports_of(path))}
    assert not users & {"layers", "models", "decoding", "reference", "text", "weights"}


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
        "print(sorted(set(fastattn.__all__) - set(dir(fastattn))))\n"
        "from fastattn import FastattnError\n"
        "try: fastattn.nothing\n"
        "except AttributeError as e: print(e)\n"
    )
    done = run("-c", code)
    assert done.stderr == ""
    version, rest, error = done.stdout.splitlines()
    assert version.endswith("[]"), version
    assert rest == "[]"
    assert error == "module 'fastattn' has no attribute 'nothing'"


def test_the_package_is_a_command():
    for arguments in (["--version"], ["--help"], ["sing"]):
        here, there = (run("-m", module, *arguments) for module in ("fastattn", "fastattn.cli"))
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
        assert "fastattn" in here.stdout + here.stderr and "__main__" not in here.stdout + here.stderr


def test_public_names_are_there():
    import fastattn

    for name in fastattn.__all__:
        assert getattr(fastattn, name) is not None
    assert fastattn.Translator.__module__ == "fastattn.translator"


@pytest.fixture
def source(tmp_path):
    """A copy of what packaging reads: building writes into the source folder."""
    for name in ("fastattn", "weights", "cli"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
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
