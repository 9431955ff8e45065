"""What the documents name is there; what docs/attention.md shows runs, with the shapes that it says."""

import ast
import inspect
import linecache
import re
from typing import Any

import numpy as np
import pytest

import fastattn
from bench.document import Section
from fastattn import mechanisms
from tests import ROOT

DOCS = ROOT / "docs"
TEXT = (DOCS / "attention.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)  # (the language, the text) of a block
BLOCKS = [text for language, text in FENCE.findall(TEXT) if language == "python"]
SHAPED = re.compile(r"^(\w+)(?:, \w+)* = .*# (\([\d, ]+\))$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_what_is_named_is_there() -> None:
    """But for what is to be added."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = [each for each in re.findall(r"`([\w/]+(?:/|\.py))`(?:\s`(\w+)`)?", text) if "NAME" not in each[0]]
    assert len(named) > 40 and sum(bool(name) for _, name in named) > 10
    for path, name in named:
        # a file of tests may be named alone, after its folder
        below = [] if "/" in path else (ROOT / "tests").rglob(path)
        places = [one for one in (ROOT / path, ROOT / "fastattn" / path, *below) if one.exists()]
        assert len(places) == 1, path
        if name:
            defined = ast.walk(ast.parse(places[0].read_text(encoding="utf-8")))
            kinds = ast.FunctionDef | ast.ClassDef
            assert name in {node.name for node in defined if isinstance(node, kinds)}, path


def test_the_table_of_attention_functions_has_every_argument_of_ours() -> None:
    text = (DOCS / "coming-from-attention.md").read_text(encoding="utf-8").partition("\nAlike")[0]
    cells = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    named = {name for cell in cells[2:] for name in re.findall(r"`(\w+)", cell)}
    ordinary = {"query", "key", "value", "threads"}
    assert named == set(inspect.signature(fastattn.attention).parameters) - ordinary


def statements(block: str, file: str, names: dict[str, Any]):
    """Run a block as if it were a file, since functions are compiled from their source; the statements, as they ran."""
    linecache.cache[file] = len(block), None, block.splitlines(keepends=True), file
    for statement in ast.parse(block).body:
        exec(compile(ast.Module([statement], []), file, "exec"), names)  # noqa: S102  our own words
        yield "\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno])


@pytest.mark.slow  # it compiles every function that is shown
def test_every_block_runs_and_has_the_shapes_it_says():
    names: dict[str, Any] = {}
    shaped = 0
    for number, block in enumerate(BLOCKS):
        for statement in statements(block, f"attention.md block {number}", names):
            for name, shape in SHAPED.findall(statement):
                assert str(names[name].shape) == shape, statement
                assert names[name].dtype == np.float32 and np.isfinite(names[name]).all(), statement
                shaped += 1
    assert shaped >= 58
    assert names["svg"].startswith("<svg ") and "BlockMask(7 x 7" in repr(names["blocks"])


def test_every_mechanism_and_function_is_shown_in_few_lines():
    code = "\n".join(BLOCKS)
    steps = {"content_weights", "interpolate", "shift", "sharpen", "semantic_attention"}
    masks = {"BlockMask", "and_masks", "or_masks", "explain_function"}
    layers = {"KVCache", "MultiHeadAttention", "multi_head_attention", "ProjectionWeights"}
    functions = {"attention", "attention_ragged", "plot_attention"} | masks | layers
    for name in set(mechanisms.__all__) - steps | functions:
        assert re.search(rf"\b{name}\b", code), name
    parts = [part for block in BLOCKS[1:] for part in re.split(r"# \([\d, ]+\)$", block, flags=re.MULTILINE)]
    assert all(sum(map(bool, part.splitlines())) <= 8 for part in parts)  # from one result to the next
    assert all(len(line) <= 120 for line in TEXT.splitlines())


def test_every_mechanism_has_a_picture_and_links_lead_somewhere():
    gallery = TEXT.partition("\n## Scores\n")[2].partition("\n## Cost\n")[0]
    item = r"^- \*\*([\w ,-]+)\.\*\* [^!]*!\[[^]\n]+\]\((pictures/[\w-]+\.svg)\)$"
    items = dict(re.findall(item, gallery, re.MULTILINE))
    assert len(items) == len({*items.values()}) == gallery.count("\n- ") > 25
    assert {*re.findall(r"^\| ([\w -]+) \|", gallery, re.MULTILINE)} <= {"name", "---", *map(str.lower, items)}

    for anchor in re.findall(r"\]\(#([\w-]+)\)", TEXT):
        assert anchor in anchors(TEXT)
    for path in re.findall(r"\]\(([\w./-]+)\)", TEXT):
        assert (DOCS / path).is_file(), path

    assert not Section(DOCS / "attention.md", "growth").is_missing()
    for file, name in (("mechanisms", "cost"), ("lock", "lock"), ("cluster", "cluster")):
        assert not Section(ROOT / f"bench/results/amd-zen5/{file}.md", name, file).is_missing()
