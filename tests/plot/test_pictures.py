"""The SVG of fastattn.plot_attention: cells, colours, labels, panels."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import fastattn
from fastattn.plot import labels, picture
from tests.plot.readers import SVG, Reader, images, rectangles, sent_weights, softmax, texts


def test_heads_share_a_scale():
    weights = np.stack([np.full((2, 2), 0.25), np.full((2, 2), 0.5)])
    first, second = (
        {colour for colour, _ in rectangles(fastattn.plot_attention(weights).to_svg(head))} for head in (0, 1)
    )
    assert (first, second) == ({picture.hex_colours()[128]}, {picture.hex_colours()[255]})


def test_nothing_but_zeros_is_dark():
    plot = fastattn.plot_attention(np.array([[0.0, -0.0]]))
    first = picture.hex_colours()[0]
    assert rectangles(plot.svg) == [(first, f"\u20680\u2069, \u2068{s}\u2069: 0") for s in range(2)]
    assert not sent_weights(plot.html)[0].any()


def test_many_cells_are_an_image_of_the_same_colours():
    weights = softmax(2, 50, 90)
    plot = fastattn.plot_attention(weights)
    assert rectangles(plot.svg) == []
    for (dots, palette), head in zip(images(plot.svg), weights, strict=True):
        np.testing.assert_array_equal(palette, picture.scale())
        np.testing.assert_array_equal(dots, np.rint(255 * (head / weights.max()).astype(np.float64)))


@pytest.mark.parametrize("T, S", [(1, 1300), (1300, 1), (561, 1121), (4096, 5)])
def test_of_more_cells_than_pixels_the_largest_are_seen(T, S):
    weights = np.full((T, S), 0.1)
    weights[T - 1, S - 1] = 1.0
    plot = fastattn.plot_attention(weights)
    ((dots, _),) = images(plot.to_svg(0))
    blocks = json.loads(Reader(plot.html).root["data-block"])
    assert dots.shape == (-(-T // blocks[0]), -(-S // blocks[1])) and max(dots.shape) <= 560
    assert dots[-1, -1] == 255 and (dots == 255).sum() == 1


def test_blocks_at_the_ends_may_be_smaller():
    shares = softmax(7, 11)
    found = picture.largest_of_blocks(shares, 3, 4)
    expected = [[shares[t : t + 3, s : s + 4].max() for s in range(0, 11, 4)] for t in range(0, 7, 3)]
    np.testing.assert_array_equal(found, expected)


def test_long_labels_are_cut_and_whole_under_the_pointer():
    long = ["w" * 400, "北京" * 20, "short", "x" * 5000]
    root = ElementTree.fromstring(fastattn.plot_attention(softmax(4, 4), long, long).svg)
    shown = {text.text: [title.text for title in text] for text in root.iter(f"{SVG}text")}
    assert shown["w" * 17 + "…"] == [long[0]] and shown["北京" * 4 + "…"] == [long[1]] and shown["short"] == []
    assert shown["x" * 17 + "…"] == ["x" * 1000 + "…"]


@pytest.mark.parametrize(
    "text, most, expected",
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("北京市", 5, "北京…"), ("北京市", 4, "北…"), ("", 3, "")],
)
def test_cutting(text, most, expected):
    assert labels.cut(text, most) == expected and labels.columns_of(expected) <= most


@pytest.mark.parametrize("size, least, expected", [(28, 14, 1), (13, 14, 2), (1, 14, 20), (0.1, 14, 200), (7, 14, 2)])
def test_labels_are_thinned_out(size, least, expected):
    assert labels.every(size, least) == expected


def test_crowded_labels_leave_some_out():
    shown = texts(fastattn.plot_attention(softmax(200, 8)).svg)
    assert shown[:40] == [str(i) for i in range(0, 200, 5)]


def test_no_label_lies_outside_or_over_another():
    """By the font's estimated width: rows and flat columns at least a line or their width apart, all in the picture."""
    for T, S in ((1, 1), (3, 3), (40, 7), (7, 300), (20, 20)):
        plot = fastattn.plot_attention(softmax(T, S))
        root = ElementTree.fromstring(plot.svg)
        width, height = (float(root.get(side)) for side in ("width", "height"))
        found = [text for text in root.iter(f"{SVG}text") if "fastattn-largest" != text.get("class")]
        assert all(0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height for text in found)
        flat = [(float(text.get("x")), text.text) for text in found if text.get("text-anchor") == "middle"]
        for (x, label), (next_x, next_label) in zip(flat, flat[1:]):
            assert next_x - x > 6.4 * (len(label) + len(next_label)) / 2
        ends = [float(text.get("y")) for text in found if text.get("text-anchor") == "end"]
        assert np.all(np.diff(ends) >= 13.9)


def turned(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text") if text.get("transform")]


def test_words_that_do_not_fit_stand_aslant():
    words = ["attention", "is", "all", "you", "need"]
    svg = fastattn.plot_attention(softmax(5, 5), words, words).svg
    assert turned(svg) == words
    assert turned(fastattn.plot_attention(softmax(5, 5)).svg) == []


def test_panels_stand_in_even_rows():
    words = ["word"] * 13
    svg = fastattn.plot_attention(softmax(4, 13, 13), words, words).svg
    places = re.findall(r'<g transform="translate\(([\d.]+) ([\d.]+)\)">', svg)
    assert len(places) == 4 and len({x for x, _ in places}) * len({y for _, y in places}) == 4


def test_the_scale_is_even_and_rises_in_lightness():
    oklab = picture._evenly(picture._bezier(1024))
    steps = np.linalg.norm(np.diff(oklab, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.02
    assert (np.diff(oklab[:, 0]) > 0.002).all()
    linear = picture._linear(oklab)
    assert linear.min() >= 0 and linear.max() <= 1, "every colour is one that a screen has"
    assert len(set(picture.hex_colours())) == 256
    np.testing.assert_allclose(picture._linear(np.array([[1.0, 0, 0]])), [[1, 1, 1]], atol=1e-6)  # OKLab's white
    np.testing.assert_allclose(picture._linear(np.array([[0.62796, 0.22486, 0.12585]])), [[1, 0, 0]], atol=1e-4)
