"""The pictures of the documents: each is there, well formed, and the gallery's are what the mechanisms make now."""

import re
import xml.etree.ElementTree

import numpy as np

from bench import gallery
from bench.train import pictures as trained
from tests import ROOT

FOLDER = ROOT / "docs" / "pictures"
PAGES = ("attention.md", "recurrent.md", "vision.md")
TEXT = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES)
SHOWN = re.findall(r"!\[[^]\n]+\]\(pictures/([\w-]+)\.svg\)", TEXT)
COLOUR, NUMBER = re.compile(r"#[0-9a-f]{6}\b"), re.compile(r"\d+(?:\.\d+)?")


def same(one, other):
    """Whether two pictures are alike; sums that differ in the last digits may change a colour by a little."""
    both = one, other
    colours = [[int(colour[i : i + 2], 16) for colour in COLOUR.findall(svg) for i in (1, 3, 5)] for svg in both]
    rest = [COLOUR.sub("#", svg) for svg in both]
    numbers = [list(map(float, NUMBER.findall(svg))) for svg in rest]
    alike = len({NUMBER.sub("0", svg) for svg in rest}) == 1  # so there are as many of both
    return alike and np.allclose(*colours, rtol=0, atol=8) and np.allclose(*numbers, rtol=0, atol=0.11)


def test_every_picture_is_shown_and_every_one_shown_is_there():
    assert set(SHOWN) == {*gallery.PICTURES, *trained.PICTURES, "growth"} and len(SHOWN) == len(set(SHOWN))
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.svg" for name in SHOWN}


def test_each_picture_is_what_the_command_makes_now(tmp_path, bench):
    done = bench("gallery", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    made = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "new" / "folder").iterdir()}
    assert made.keys() == gallery.PICTURES.keys()
    for name, picture in made.items():
        stored = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        assert same(picture, stored), f"python -m bench gallery makes another {name}.svg"
    assert bench("gallery", "a", "b").returncode == 2


def test_each_picture_is_small_and_well_formed():
    for name in SHOWN:
        path = FOLDER / f"{name}.svg"
        root = xml.etree.ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(list(root.iter())) > 5, name
        assert path.stat().st_size < 40_000, name
