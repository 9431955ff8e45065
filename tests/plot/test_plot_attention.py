"""fastattn.plot_attention: its arguments, the heads that it draws, the files that it writes."""

import re

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.plot import picture
from tests.plot.readers import Reader, rectangles, softmax, texts


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((3, 4), ">f4"),
        ((1, 3, 4), np.float16),
        ((1, 1, 3, 4), np.float32),
        ((5, 3, 4), np.float64),
        ((1, 1), np.float32),
    ],
)
def test_every_shape_and_float_has_a_cell_for_each_weight(shape, kind):
    weights = softmax(*shape).astype(kind)
    plot = fastattn.plot_attention(weights)
    cells = rectangles(plot.svg)
    assert [tooltip for _, tooltip in cells] == [
        f"\u2068{t}\u2069, \u2068{s}\u2069: {weight:.4g}"
        for head in weights.reshape(-1, *shape[-2:]).astype(np.float64)
        for t, row in enumerate(head)
        for s, weight in enumerate(row)
    ]
    shares = weights.astype(np.float64).ravel() / float(weights.max())
    assert [colour for colour, _ in cells] == [picture.hex_colours()[i] for i in np.rint(255 * shares).astype(int)]


def test_lists_are_weights_and_the_picture_keeps_its_own_copy():
    weights = softmax(2, 3, 3)
    plot = fastattn.plot_attention(weights)
    before = plot.svg, plot.html
    assert fastattn.plot_attention(weights.tolist()).svg == before[0]
    weights[:] = 0
    assert (plot.svg, plot.html) == before


def test_one_head_the_mean_or_all():
    weights = softmax(3, 2, 5)
    plot = fastattn.plot_attention(weights)
    assert [text for text in texts(plot.svg) if text.startswith("head")] == ["head 0", "head 1", "head 2"]
    assert plot.to_svg("all") == plot.svg == plot.to_svg()
    for head in (2, np.int64(2)):
        svg = plot.to_svg(head=head)
        assert "head 2" in texts(svg) and "head 1" not in texts(svg)
        assert [tooltip.split(": ")[1] for _, tooltip in rectangles(svg)] == [f"{w:.4g}" for w in weights[2].flat]
    mean = plot.to_svg("mean")
    expected = weights.astype(np.float64).mean(axis=0)
    assert "mean of 3 heads" in texts(mean) and f"{expected.max():.4g}" in texts(mean)
    found = [float(tooltip.split(": ")[1]) for _, tooltip in rectangles(mean)]
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-3)
    assert picture.hex_colours()[255] in {colour for colour, _ in rectangles(mean)}, "the mean has its own scale"


def test_no_such_head():
    for head in [-1, 3, 10**5000, 1.0, "first", None, True, "", [0]]:
        with pytest.raises(InputError, match="head should be 'mean', 'all' or a whole number from 0 to 2, got "):
            fastattn.plot_attention(softmax(3, 2, 2)).to_svg(head)


def test_files_by_their_suffix(tmp_path):
    plot = fastattn.plot_attention(softmax(2, 3, 3), ["é", "你", "🙂"], title="Ünï")
    plot.save(tmp_path / "a.svg")
    plot.save(str(tmp_path / "b.HTML"))
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == plot.svg
    assert (tmp_path / "b.HTML").read_text(encoding="utf-8") == plot.html
    assert plot.html.startswith("<!DOCTYPE html>") and ("title", "Ünï") in Reader(plot.html).texts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.HTML"]


def test_files_that_cannot_be(tmp_path, monkeypatch):
    for name in ["a.png", "a", "svg", ".svg/a", 3, None, "missing/a.svg", "a\0.svg"]:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError) as caught:
            fastattn.plot_attention(softmax(2, 2)).save(name)
        assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_weights_that_cannot_be_drawn():
    for weights, message in [
        (np.zeros((0, 3, 3)), "at least one head, row and column, got (0, 3, 3)"),
        (np.zeros((2, 0, 3)), "at least one"),
        (np.zeros((2, 3, 0)), "at least one"),
        (np.zeros((1, 0, 3, 3)), "at least one"),
        (np.zeros(3), "should be (T, S), (H, T, S) or (1, H, T, S), got (3,)"),
        (np.zeros((2, 2, 3, 3)), "got (2, 2, 3, 3)"),
        (np.zeros((0, 2, 3, 3)), "got (0, 2, 3, 3)"),
        (np.zeros((1, 1, 1, 1, 1)), "got (1, 1, 1, 1, 1)"),
        (0.5, "got ()"),
        (np.full((2, 2), np.nan), "finite"),
        (np.array([[0, np.inf]]), "finite"),
        (np.array([[0.5, -0.5]]), "at least 0, got -0.5"),
        (np.ones((2, 2), int), "floating point numbers, got int64"),
        (np.ones((2, 2), np.uint16), "floating point numbers, got uint16"),
        (np.ones((2, 2), complex), "floating point numbers, got complex128"),
        (np.ones((2, 2), bool), "floating point numbers, got bool"),
        ([[0.1], [0.2, 0.3]], "array of numbers, got a list"),
        ([["a"]], "floating point numbers, got <U1"),
        (None, "floating point numbers, got object"),
        (np.broadcast_to(np.float32(0), (4097, 2)), "at most 256 heads, 4,096 rows"),
        (np.broadcast_to(np.float32(0), (2, 4097)), "at most"),
        (np.broadcast_to(np.float32(0), (257, 1, 1)), "at most"),
        (np.broadcast_to(np.float32(0), (2, 4096, 4096)), "16,777,216 in all, got (2, 4096, 4096)"),
        (np.broadcast_to(np.float32(0), (1, 10**6, 10**6, 10**6)), "at most"),
    ]:
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            fastattn.plot_attention(weights)
        assert "\n" not in str(caught.value)


def test_labels_that_do_not_fit():
    for rows, message in [
        (["a", "b"], "rows should be 3 labels, as many as the weights have rows, got 2"),
        (["a"] * 4, "got more"),
        (iter(int, 1), "got more"),
        ([], "got 0"),
        ("abc", "rows should be a list of 3 labels, got a str"),
        (b"abc", "got a bytes"),
        (3, "rows should be a list of 3 labels, got 3"),
        (["a", None, "b"], r"rows[1] should be a str or a whole number, got None"),
        (["a", "b", 10**5000], "rows[2] should be"),
        ([0.5, 1.5, 2.5], "rows[0] should be"),
    ]:
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            fastattn.plot_attention(softmax(3, 2), rows)
        assert "\n" not in str(caught.value)
        with pytest.raises(InputError, match="columns"):
            fastattn.plot_attention(softmax(2, 3), columns=rows)


def test_labels_may_be_numbers_and_arrays():
    plot = fastattn.plot_attention(softmax(2, 3), np.array(["a", "b"]), np.arange(5, 8))
    assert rectangles(plot.svg)[-1][1].startswith("\u2068b\u2069, \u20687\u2069: ")


def test_a_title_is_text():
    for title in [3, b"a", ["a"]]:
        with pytest.raises(InputError, match="title should be a str, got "):
            fastattn.plot_attention(softmax(2, 2), title=title)


def test_it_says_what_it_is():
    assert (
        repr(fastattn.plot_attention(softmax(1, 5))) == "<AttentionPlot: attention weights, 1 head, 1 row, 5 columns>"
    )
    assert not hasattr(fastattn.AttentionPlot, "_repr_svg_")
