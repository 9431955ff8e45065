"""Who may import whom: every import of the source is held against the tables of tests/import_table.py."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.import_table import ANYBODY, OUTSIDE, ROOMS, TABLE, WEIGHTS, modules, room_of

NAMES = {name for name, _ in modules()}
# Modules that import what a variable says, of a table of strings, which is read here as well, or from outside.
FROM_VARIABLES = {
    "fastattn.cli.convert",
    "fastattn.cli.entry",
    "fastattn.cli.options",
    "fastattn",
    "fastattn.ops",
    "fastattn.processes.child",
    "fastattn.runtime.handle",
    "fastattn.verification.frameworks",
    "fastattn.vision",
    "fastattn.weights.download.transport",
    "fastattn.weights.huggingface.architectures.architecture",
}


def weights_room(module):
    return (module.split(".") + [""])[2]


def imports_of(tree, module):
    """Dotted names of all that a source imports, at the top or inside functions, or has by name in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            # `from fastattn import spec` imports a room; `from fastattn import Encoder` a public name
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in NAMES else node.module for name in names)
        elif isinstance(node, ast.Constant) and node.value in NAMES - {"fastattn"}:
            yield node.value
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
            else:
                assert module in FROM_VARIABLES, f"{module} imports what a variable says"


def called(call):
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def forbidden(module, source):
    """The imports of a module that the tables do not allow."""
    room = room_of(module)
    assert room in TABLE, f"{module} is in no room of the table"
    found = []
    for imported in imports_of(ast.parse(source), module):
        top = imported.split(".")[0]
        if top == "fastattn":
            target = room_of(imported)
            target = target if target in TABLE else ""  # a public name
            allowed = target in {room} | ANYBODY | TABLE[room]
            if room == target == "weights":
                inner, other = (weights_room(name) for name in (module, imported))
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
        ("fastattn.kernels.new", "from fastattn.ops.cpu.matmul import PackedLinear"),
        ("fastattn.ops.cpu.new", "from numba import prange"),
        ("fastattn.models.new", "from fastattn.ops import cpu"),
        ("fastattn.models.new", "def load():\n    from fastattn.kernels import matmul"),
        ("fastattn.models.new", "from importlib import import_module\nimport_module('fastattn.kernels.matmul')"),
        ("fastattn.layers", "HOMES = {'Encoder': ('fastattn.models.encoder', 'Encoder')}"),
        ("fastattn.spec.architecture", "import importlib\nimportlib.import_module('torch')"),
        ("fastattn.spec.architecture", "import torch"),
        ("fastattn.weights.marian.new", "from fastattn.weights import native"),
        ("fastattn.weights.marian.new", "from fastattn.weights.native import convert"),
        ("fastattn.weights.marian.new", "HOMES = {'convert': 'fastattn.weights.native.convert'}"),
        ("fastattn.weights.huggingface.new", "__import__('fastattn.weights.download.hub')"),
        ("fastattn.weights.containers.new", "from fastattn.weights.tensor_mapping import sources"),
        ("fastattn.weights.native", "from fastattn.weights import read"),
    ],
)
def test_an_import_that_the_table_forbids_is_seen(module, source):
    assert len(forbidden(module, source)) >= 1


@pytest.mark.parametrize("source", ["import_module(name)", "importlib.import_module(f'fastattn.{room}')"])
def test_what_a_variable_says_is_imported_nowhere_else(source):
    with pytest.raises(AssertionError, match="imports what a variable says"):
        forbidden("fastattn.models.new", source)


def test_rooms_import_what_stands_above_them_alone():
    rooms = list(TABLE)
    assert len(rooms) <= 40
    assert [(room, used) for room in rooms for used in TABLE[room] if rooms.index(used) >= rooms.index(room)] == []
    assert all(TABLE[room] <= ANYBODY for room in ANYBODY)


def modules_imported():
    """Module -> the modules of the package that it imports, inside functions and for type checkers too."""
    found = {}
    for module, path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[module] = {name for name in imports_of(tree, module) if name in NAMES - {module, "fastattn"}}
    return found


def test_no_modules_import_each_other():
    try:
        TopologicalSorter(modules_imported()).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' < '.join(error.args[1])}")


def test_few_files_lie_loose():
    assert len(list(ROOMS["fastattn"].glob("*.py"))) <= 6


def test_table_has_no_room_that_is_gone():
    existing = {room_of(module) for module, _ in modules()}
    assert set(TABLE) <= existing
    assert set(WEIGHTS) == {weights_room(name) for name in NAMES if room_of(name) == "weights"}


def test_kernels_are_imported_by_no_model():
    """The table again, told by its reason: the same model runs on operations and on reference."""
    users = {
        room_of(name)
        for name, path in modules()
        for used in imports_of(ast.parse(path.read_text(encoding="utf-8")), name)
        if ".kernels" in used or ".ops.cpu" in used
    }
    assert not users & {"layers", "models", "decoding", "loading", "ops.reference", "text", "weights"}
    assert not users & {"array_attention", "mechanisms", "vectors", "encoders", "translation"}
