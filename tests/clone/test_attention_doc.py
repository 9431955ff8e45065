"""What docs/attention.md shows runs, and has the shapes that it says; every mechanism is in it, with a picture."""

import ast
import linecache
import re

import numpy as np
import pytest

from bench.document import Section
from fastattn import mechanisms
from tests import ROOT

TEXT = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
GALLERY = TEXT.partition("\n## Scores\n")[2]
SHAPED = re.compile(r"^(\w+)(?:, \w+)* = .*# (\([\d, ]+\))$", re.MULTILINE)


def run(block: str, file: str, names: dict) -> int:
    """Run a block, statement by statement, as if it were a file; the number of shapes that it says, all checked."""
    linecache.cache[file] = len(block), None, block.splitlines(keepends=True), file
    shaped = 0
    for statement in ast.parse(block).body:
        exec(compile(ast.Module([statement], []), file, "exec"), names)  # noqa: S102  our own words
        for name, shape in SHAPED.findall("\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno])):
            assert str(names[name].shape) == shape, ast.unparse(statement)
            assert names[name].dtype == np.float32 and np.isfinite(names[name]).all(), ast.unparse(statement)
            shaped += 1
    return shaped


@pytest.fixture(scope="module")
def names():
    """The names that there are when all has run."""
    names: dict = {}
    shaped = sum(run(block, f"attention.md block {n}", names) for n, block in enumerate(BLOCKS))
    assert shaped >= 58
    return names


@pytest.mark.slow  # it compiles every function that is shown
def test_every_block_runs_and_has_the_shapes_it_says(names):
    assert names["svg"].startswith("<svg ") and "BlockMask(7 x 7" in repr(names["blocks"])


def test_every_mechanism_and_function_is_shown_in_few_lines():
    code = "\n".join(BLOCKS)
    steps = {"content_weights", "interpolate", "shift", "sharpen", "semantic_attention"}
    masks = {"BlockMask", "and_masks", "or_masks", "explain_function"}
    layers = {"KVCache", "MultiHeadAttention", "multi_head_attention", "ProjectionWeights"}
    functions = {"attention", "attention_ragged", "plot_attention"} | masks | layers
    for name in set(mechanisms.__all__) - steps | functions:
        assert re.search(rf"\b{name}\b", code), name
    assert all(len(block.splitlines()) <= 8 for block in BLOCKS[1:])
    assert all(len(line) <= 120 for line in TEXT.splitlines())


def test_every_mechanism_has_a_picture_and_links_lead_somewhere():
    sections = re.findall(r"^### .*\n\n(.*)", GALLERY, re.MULTILINE)
    pictures = [re.fullmatch(r"!\[.+\]\(pictures/[\w-]+\.svg\)", line) for line in sections]
    assert all(pictures) and len(set(sections)) == len(sections) > 25

    found = re.findall(r"^#+ (.*)", TEXT, re.MULTILINE)
    titles = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in found}
    for anchor in re.findall(r"\]\(#([\w-]+)\)", TEXT):
        assert anchor in titles
    for path in re.findall(r"\]\(([\w./-]+)\)", TEXT):
        assert (ROOT / "docs" / path).is_file(), path

    document = ROOT / "docs" / "attention.md"
    assert not Section(document, "cost", "mechanisms").is_missing() and not Section(document, "growth").is_missing()
    assert Section(document, "length").is_missing()
