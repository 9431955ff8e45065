"""What docs/architecture.md names is there: each file, and each function or class that it names after its file."""

import ast
import re

import pytest

from tests import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## To add a kernel")[0]
NAMED = re.findall(r"`([\w/]+(?:/|\.py))`(?:\s`(\w+)`)?", TEXT)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_is_named_is_there(path: str, name: str) -> None:
    (found,) = [folder / path for folder in (ROOT, ROOT / "fastattn") if (folder / path).exists()]
    if name:
        defined = ast.walk(ast.parse(found.read_text(encoding="utf-8")))
        kinds = ast.FunctionDef | ast.ClassDef
        assert name in {node.name for node in defined if isinstance(node, kinds)}


def test_many_are_named() -> None:
    assert len(NAMED) > 40 and sum(bool(name) for _, name in NAMED) > 10
