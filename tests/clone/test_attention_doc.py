"""What docs/attention.md shows runs, and has the shapes that it says; every mechanism is in it."""

import re

import numpy as np

from bench.mechanisms import PLACE
from fastattn import mechanisms
from tests import ROOT

TEXT = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SHAPED = re.compile(r"^(\w+)(?:, \w+)* = .*# (\([\d, ]+\))$", re.MULTILINE)


def test_every_block_runs_and_has_the_shapes_it_says():
    names: dict = {}
    shaped = 0
    for block in BLOCKS:
        for line in re.split(r"\n(?=\S)", block):
            exec(line, names)  # noqa: S102  our own words
            for name, shape in SHAPED.findall(line):
                assert str(names[name].shape) == shape, line
                assert names[name].dtype == np.float32 and np.isfinite(names[name]).all(), line
                shaped += 1
    assert shaped >= 40


def test_every_mechanism_is_shown():
    code = "\n".join(BLOCKS)
    steps = {"content_weights", "interpolate", "shift", "sharpen", "semantic_attention", "alibi_slopes"}
    for name in set(mechanisms.__all__) - steps:
        assert re.search(rf"\b{name}\b", code), name


def test_examples_are_short():
    assert all(len(block.splitlines()) <= 7 for block in BLOCKS[1:])


def test_every_mechanism_has_a_place_for_its_picture():
    sections = re.findall(r"^### .*\n\n(.*)", TEXT, re.MULTILINE)
    mark = re.compile(r"<!-- picture: pictures/[\w-]+\.svg -->|!\[.*\]\(pictures/[\w-]+\.svg\)")
    pictures = [mark.fullmatch(line) for line in sections]
    assert all(pictures) and len(set(sections)) == len(sections)


def test_links_lead_somewhere():
    found = re.findall(r"^#+ (.*)", TEXT, re.MULTILINE)
    titles = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in found}
    for anchor in re.findall(r"\]\(#([\w-]+)\)", TEXT):
        assert anchor in titles


def test_the_benchmark_finds_its_place():
    assert PLACE.search(TEXT)
