"""What the documents name is there: files, functions and classes, the arguments of attention."""

import ast
import inspect
import re

import pytest

import fastattn
from tests import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = [
    (path, name)
    for path, name in re.findall(r"`([\w/]+(?:/|\.py))`(?:\s`(\w+)`)?", TEXT)
    if "NAME" not in path  # of what is to be added
]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_is_named_is_there(path: str, name: str) -> None:
    # a file of tests may be named alone, after its folder
    below = [] if "/" in path else (ROOT / "tests").rglob(path)
    (found,) = [one for one in (ROOT / path, ROOT / "fastattn" / path, *below) if one.exists()]
    if name:
        defined = ast.walk(ast.parse(found.read_text(encoding="utf-8")))
        kinds = ast.FunctionDef | ast.ClassDef
        assert name in {node.name for node in defined if isinstance(node, kinds)}


def test_many_are_named() -> None:
    assert len(NAMED) > 40 and sum(bool(name) for _, name in NAMED) > 10


def test_the_table_of_attention_functions_has_every_argument_of_ours() -> None:
    text = (ROOT / "docs" / "coming-from-attention.md").read_text(encoding="utf-8").partition("\nAlike")[0]
    cells = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    named = {name for cell in cells[2:] for name in re.findall(r"`(\w+)", cell)}
    ordinary = {"query", "key", "value", "threads"}
    assert named == set(inspect.signature(fastattn.attention).parameters) - ordinary
