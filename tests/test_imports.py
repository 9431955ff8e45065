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
ANYBODY = {
    "errors",
    "cache_folder",
    "atomic_files",
    "cpus",
    "lazy",
    "worker_threads",
    "printable",
    "caller_warnings",
    "records",
    "_version",
}
ABOVE_ALL = {
    "simd",
    "runtime",
    "operations",
    "spec",
    "checkpoint",
    "quantized",
    "precision",
    "text_spec",
    "heads",
    "position_bias",
    "ops",
    "reference",
    "packed_file",
    "balance",
    "layers",
    "results",
    "similarity",
    "quantized_vectors",
    "long_text",
    "progress",
    "arguments",
    "call_options",
    "encoding",
    "kept_checkpoint",
    "loaded_model",
    "vector_head",
    "encode_options",
    "vector_plans",
    "loaded_encoder",
    "processes",
    "prompts",
    "text_head",
    "text_model",
    "sparse_head",
    "sparse_vectors",
    "entities",
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
    "": {
        "cross_encoder",
        "decoding",
        "encoder",
        "text_classifier",
        "translator",
        "vector_search",
        "functional",
        "functions",
        "masked_language_model",
        "mechanisms",
        "multi_vector_encoder",
        "plot",
        "quantized_vectors",
        "results",
        "runtime",
        "sparse_encoder",
        "sparse_vectors",
        "token_classifier",
    },
    "__main__": {"cli"},
    "_version": set(),
    "errors": set(),
    "printable": set(),
    "cache_folder": set(),
    "atomic_files": set(),
    "cpus": set(),
    "lazy": set(),
    "records": set(),
    "worker_threads": set(),
    "scheduling": set(),
    "caller_warnings": set(),
    "environment": set(),
    "progress": set(),
    "simd": set(),
    "spec": set(),
    "text_spec": set(),
    "quantized": set(),
    "checkpoint": {"spec", "text_spec", "quantized"},
    "precision": {"checkpoint", "quantized"},
    "edits": set(),
    "heads": set(),
    "step_rows": set(),
    "position_bias": set(),
    "ops": {"quantized", "edits", "heads", "position_bias", "step_rows"},
    "tensors": {"spec", "quantized"},
    "rounding": {"quantized"},
    "runtime": {"simd", "environment"},
    # spec for the activations' names
    "kernels": {"simd", "runtime", "functions", "spec", "step_rows"},
    # of kernels and functions no more than constants: test_numba_is_imported_by_no_more_than_a_call_of_a_kernel
    "operations": {
        "kernels",
        "simd",
        "runtime",
        "functions",
        "quantized",
        "rounding",
        "edits",
        "heads",
        "position_bias",
        "step_rows",
    },
    "reference": {"quantized", "rounding", "edits", "heads", "position_bias", "step_rows"},
    "packed_file": {"operations", "weights"},
    "results": set(),
    "arguments": {"decoding"},
    "call_options": {"arguments", "decoding", "text"},
    "encoding": {"models", "scheduling"},
    "loaded_model": {"balance", "checkpoint", "layers", "models", "operations", "ops", "packed_file", "precision"},
    "kept_checkpoint": {"checkpoint", "layers", "loaded_model", "operations", "weights"},
    "vector_head": {"ops", "similarity", "spec", "text_spec"},
    "loaded_encoder": {
        "checkpoint",
        "encoding",
        "loaded_model",
        "ops",
        "progress",
        "scheduling",
        "spec",
        "text",
        "text_spec",
    },
    "prompts": {"text_spec"},
    "text_head": {"checkpoint", "loaded_encoder", "progress", "scheduling", "spec", "text_model", "text_spec"},
    "text_model": {
        "checkpoint",
        "kept_checkpoint",
        "loaded_model",
        "loaded_encoder",
        "models",
        "ops",
        "progress",
        "scheduling",
        "spec",
        "text_spec",
        "weights",
    },
    "sparse_head": {"models", "text_spec"},
    "sparse_vectors": set(),
    "entities": set(),
    "encode_options": {"long_text", "prompts", "quantized_vectors", "text", "text_spec", "vector_head"},
    "vector_plans": {
        "loaded_encoder",
        "long_text",
        "progress",
        "quantized_vectors",
        "scheduling",
        "text",
        "vector_head",
    },
    # translator and encoder in a worker process, whose model one of them is
    "processes": {
        "decoding",
        "encoder",
        "pipeline",
        "progress",
        "quantized_vectors",
        "results",
        "scheduling",
        "text",
        "translator",
        "vector_head",
    },
    "presentation": {"decoding", "results", "text"},
    "pipeline": {"arguments", "decoding", "presentation", "results", "scheduling", "text"},
    "files": {"results"},
    "similarity": set(),
    "quantized_vectors": set(),
    "long_text": {"text"},
    "layers": {"step_rows", "heads", "position_bias", "ops", "spec", "quantized", "rounding"},
    "balance": {"models", "layers", "ops", "spec", "checkpoint", "quantized"},
    "models": {"step_rows", "layers", "ops", "spec", "checkpoint", "edits"},
    "row_pool": {"ops"},
    "decoding": {"step_rows", "models", "layers", "scheduling", "ops", "row_pool", "checkpoint", "text_spec", "edits"},
    "weights": {
        "spec",
        "checkpoint",
        "quantized",
        "text_spec",
        "tensors",
        "rounding",
        "text",
    },  # text for the pieces of a .spm, which are a Marian's vocabulary
    "text": {"text_spec"},
    "plot": {"files"},
    "attention_float64": {"rounding"},
    # weights for the containers of MultiHeadAttention.from_torch
    "functional": {
        "heads",
        "operations",
        "row_pool",
        "runtime",
        "simd",
        "rounding",
        "functions",
        "attention_float64",
        "weights",
    },
    "functions": {"runtime", "simd"},
    "mechanisms": {"attention_float64", "functional", "operations", "layers", "runtime"},
    "vector_search": {"operations", "runtime", "similarity"},
    "translator": ABOVE_ALL,
    "encoder": ABOVE_ALL,
    "cross_encoder": ABOVE_ALL,
    "masked_language_model": ABOVE_ALL,
    "multi_vector_encoder": ABOVE_ALL,
    "sparse_encoder": ABOVE_ALL,
    "text_classifier": ABOVE_ALL,
    "token_classifier": ABOVE_ALL,
    "verification": {"checkpoint", "encoder", "loaded_model", "models", "precision", "text", "text_spec", "translator"},
    # spec for the checkpoint that weights.read returns; simd to say what is compiled for, and
    # operations for what convert balances with them.
    "cli": {
        "",
        "cross_encoder",
        "encoder",
        "masked_language_model",
        "sparse_encoder",
        "translator",
        "vector_search",
        "files",
        "weights",
        "balance",
        "spec",
        "checkpoint",
        "quantized",
        "precision",
        "quantized_vectors",
        "text_spec",
        "tensors",
        "text",
        "runtime",
        "operations",
        "simd",
        "progress",
        "verification",
    },
}
# Within weights: room -> the rooms there that it may import, beside itself. An exporter knows no other.
READING = {"folder", "containers", "plan"}
EXPORTERS = {"ctranslate2", "huggingface", "marian", "native"}
WEIGHTS = {
    "": {"folder", "containers"} | EXPORTERS,
    "folder": set(),
    "containers": {"folder"},
    "plan": set(),
    "ctranslate2": READING,
    "huggingface": READING,
    "marian": READING,
    "native": READING,
    "download": {"", "folder", "containers", "marian"},  # of the hub's many files those that the exporters read
}
# Room -> the packages from outside that it may import; NumPy and the standard library are everybody's.
OUTSIDE = {
    "functional": {"typing_extensions"},  # for type checkers alone, which bring it
    "simd": {"numba", "llvmlite"},
    "runtime": {"numba", "llvmlite"},
    "functions": {"numba", "llvmlite"},
    "kernels": {"numba", "llvmlite"},
    "sparse_vectors": {"scipy"},  # for a caller who asks for it
    "text": {"tokenizers", "sentencepiece"},
    "weights": {"huggingface_hub"},
    "cli": {"click", "numba", "llvmlite"},
    "verification": {"torch"},  # where it is installed, as all that frameworks.py imports
}


def modules():
    """(dotted name, file) of every module of the package as it is installed."""
    for package, folder in ROOMS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join([package, *parts]), path


NAMES = {name for name, _ in modules()}
# Modules that import what a variable says, of a table of strings, which is read here as well, or from outside.
FROM_VARIABLES = {
    "fastattn.cli.entry",
    "fastattn",
    "fastattn.processes.child",
    "fastattn.runtime.handle",
    "fastattn.verification.frameworks",
    "fastattn.weights.download.transport",
    "fastattn.weights.huggingface.encoders",
}


def room_of(module):
    return (module.split(".") + [""])[1]


def imports_of(source, module):
    """Dotted names of all that a source imports, at the top or inside functions, or has by name in a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            # `from fastattn import spec` imports a room; `from fastattn import Encoder` a public name
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in NAMES else node.module for name in names)
        elif isinstance(node, ast.Constant) and node.value in NAMES - {"fastattn"}:
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
            else:
                assert module in FROM_VARIABLES, f"{module} imports what a variable says"


def forbidden(module, source):
    """The imports of a module that the tables do not allow."""
    room = room_of(module)
    assert room in TABLE, f"{module} is in no room of the table"
    found = []
    for imported in imports_of(source, module):
        top = imported.split(".")[0]
        if top == "fastattn":
            target = room_of(imported)
            target = target if target in TABLE else ""  # a public name
            allowed = target in {room} | ANYBODY | TABLE[room]
            if room == target == "weights":
                inner, other = (room_of(name.removeprefix("fastattn.")) for name in (module, imported))
                allowed = other in {inner} | WEIGHTS[inner]
        else:
            allowed = top in sys.stdlib_module_names | {"numpy"} | OUTSIDE.get(room, set())
        found += [] if allowed else [imported]
    return found


@pytest.mark.parametrize("module, path", list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_only_what_the_table_allows(module, path):
    assert forbidden(module, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "module, source",
    [
        ("fastattn.models.new", "import fastattn.kernels.matmul"),
        ("fastattn.kernels.new", "from fastattn.operations.packing import PackedLinear"),
        ("fastattn.operations.new", "from numba import prange"),
        ("fastattn.models.new", "from fastattn import operations"),
        ("fastattn.models.new", "def load():\n    from fastattn.kernels import matmul"),
        ("fastattn.models.new", "from importlib import import_module\nimport_module('fastattn.kernels.matmul')"),
        ("fastattn.layers", "HOMES = {'Encoder': ('fastattn.models.encoder', 'Encoder')}"),
        ("fastattn.spec", "import importlib\nimportlib.import_module('torch')"),
        ("fastattn.spec", "import torch"),
        ("fastattn.weights.marian.new", "from fastattn.weights import native"),
        ("fastattn.weights.marian.new", "from fastattn.weights.native import convert"),
        ("fastattn.weights.marian.new", "HOMES = {'convert': 'fastattn.weights.native.convert'}"),
        ("fastattn.weights.huggingface.new", "__import__('fastattn.weights.download.hub')"),
        ("fastattn.weights.containers.new", "from fastattn.weights.plan import of"),
        ("fastattn.weights.native", "from fastattn.weights import read"),
    ],
)
def test_an_import_that_the_table_forbids_is_seen(module, source):
    assert len(forbidden(module, source)) >= 1


@pytest.mark.parametrize("source", ["import_module(name)", "importlib.import_module(f'fastattn.{room}')"])
def test_what_a_variable_says_is_imported_nowhere_else(source):
    with pytest.raises(AssertionError, match="imports what a variable says"):
        forbidden("fastattn.models.new", source)


def test_table_has_no_room_that_is_gone():
    existing = {room_of(module) for module, _ in modules()}
    assert set(TABLE) <= existing
    assert set(WEIGHTS) == {room_of(name.removeprefix("fastattn.")) for name in NAMES if room_of(name) == "weights"}


def test_kernels_are_imported_by_no_model():
    """The table again, told by its reason: the same model runs on operations and on reference."""
    texts = {module: path.read_text(encoding="utf-8") for module, path in modules()}
    users = {
        room_of(name)
        for name, text in texts.items()
        if any((".kernels" in used or ".operations" in used) for used in imports_of(text, name))
    }
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


LIGHT = """
import importlib, pkgutil, sys
import fastattn.cli, fastattn.encoder, fastattn.operations, fastattn.translator
from fastattn import functional, mechanisms
from fastattn.cli import warmup
from fastattn.runtime import clock, handle, scratch, threads
for package in (fastattn.operations, fastattn.cli, functional, mechanisms):
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
