"""What keeps the package readable: short files, few parameters, one class a name, names in place of numbers."""

import ast
import json
import re
import sys
from collections import Counter

from fastattn import Translator
from tests import ROOT
from tests.clone.run_lines import BUDGET, PARTS, lines_of
from tests.import_table import modules

TESTS = ROOT / "tests"
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules()}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Rooms whose functions hand each other many numbers, which so have names. Arrays' names end in their axes.
NAMED = ("fastattn.kernels", "fastattn.simd", "fastattn.ops", "fastattn.runtime", "fastattn.user_functions")
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
# A function of time or asyncio replaced for all threads: of the module, or as "module.time.sleep".
SHARED = re.compile(r"""setattr\(([\w.]*\b(time|asyncio),|["'][\w.]*\b(time|asyncio)\.\w+["'],)""")
ARRAY = re.compile(r".*_[A-Z0-9]+$")
MOST_LINES, MOST_PARAMETERS = 900, 10


def parameters(function):
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def functions():
    """(module, function) of all functions and methods, inner ones too."""
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                yield module, node


def by_number(function):
    """Lines where a function subscripts one of its arguments, which is no array, by a number."""
    names = {name for name in parameters(function) if not ARRAY.match(name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
                yield node.lineno


def test_no_file_is_too_long():
    files = [path for globs in PARTS.values() for glob in globs for path in ROOT.glob(glob) if glob.endswith("py")]
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_the_whole_stays_within_its_budget():
    lengths = {part: lines_of(patterns) for part, patterns in PARTS.items()}
    assert {part: length for part, length in lengths.items() if length > BUDGET[part]} == {}


def test_no_test_changes_the_clock_of_other_threads():
    """A server's event loop in another thread sleeps for hours after one look at a clock that goes back."""
    faults = [f"{name}: {line}" for name, text in SOURCES.items() for line in text.split("\n") if SHARED.search(line)]
    assert faults == []


def test_messages_are_of_tests_that_are_there():
    for path in (TESTS / "goldens" / "messages").glob("*.json"):
        for test in json.loads(path.read_text(encoding="utf-8")):
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in SOURCES.get(file, ""), f"{path.name}: {test}"


def test_no_function_takes_too_much():
    found = {f"{module}.{one.name}": len(parameters(one)) for module, one in functions()}
    assert {name: count for name, count in found.items() if count > MOST_PARAMETERS} == {}


def test_what_kernels_pass_has_names():
    inside = [(module, one) for module, one in functions() if module.startswith(NAMED)]
    found = {f"{module}:{line}" for module, one in inside for line in by_number(one)}
    assert sorted(found) == []


def test_no_two_classes_have_one_name():
    names = Counter(node.name for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_translation_runs_through_few_files(pulled):
    """Of one that is loaded, by the thread that asks."""
    translator, files = Translator(pulled("en-pt"), threads=1, processes=1), set()
    translator.translate("Good morning.")

    def note(frame, event, argument):
        files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert translator.translate("Hello there, how are you?") == "Olá, como você está?"
    finally:
        sys.setprofile(before)
    ours = {str(path) for _, path in modules()}
    assert 20 < len(files & ours) <= 40, sorted(files & ours)
