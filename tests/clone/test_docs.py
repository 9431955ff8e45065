"""What the documents name is there: files, functions and classes, the arguments of attention."""

import ast
import inspect
import re

import fastattn
from tests import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = [
    (path, name)
    for path, name in re.findall(r"`([\w/]+(?:/|\.py))`(?:\s`(\w+)`)?", TEXT)
    if "NAME" not in path  # of what is to be added
]


def test_what_is_named_is_there() -> None:
    assert len(NAMED) > 40 and sum(bool(name) for _, name in NAMED) > 10
    for path, name in NAMED:
        # a file of tests may be named alone, after its folder
        below = [] if "/" in path else (ROOT / "tests").rglob(path)
        places = [one for one in (ROOT / path, ROOT / "fastattn" / path, *below) if one.exists()]
        assert len(places) == 1, path
        if name:
            defined = ast.walk(ast.parse(places[0].read_text(encoding="utf-8")))
            kinds = ast.FunctionDef | ast.ClassDef
            assert name in {node.name for node in defined if isinstance(node, kinds)}, path


def test_the_table_of_attention_functions_has_every_argument_of_ours() -> None:
    text = (ROOT / "docs" / "coming-from-attention.md").read_text(encoding="utf-8").partition("\nAlike")[0]
    cells = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    named = {name for cell in cells[2:] for name in re.findall(r"`(\w+)", cell)}
    ordinary = {"query", "key", "value", "threads"}
    assert named == set(inspect.signature(fastattn.attention).parameters) - ordinary
