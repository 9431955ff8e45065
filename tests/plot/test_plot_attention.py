"""fastattn.plot_attention: its arguments, the heads that it draws, the files that it writes."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.plot import labels, page, picture
from tests.messages import refused
from tests.plot.readers import HOSTILE, SVG, Reader, contrast, images, rectangles, sent_weights, softmax, texts


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 4), ">f4"), ((1, 3, 4), "f2"), ((1, 1, 3, 4), "f4"), ((5, 3, 4), "f8"), ((1, 1), "f4")]
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


def test_lists_are_weights_arrays_are_labels_and_the_picture_keeps_its_own_copy():
    plot = fastattn.plot_attention(softmax(1, 3), np.array(["a"]), np.arange(5, 8))
    assert rectangles(plot.svg)[-1][1].startswith("\u2068a\u2069, \u20687\u2069: ")
    assert repr(plot) == "<AttentionPlot: attention weights, 1 head, 1 row, 3 columns>"
    assert not hasattr(plot, "_repr_svg_")
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


def test_files_by_their_suffix(tmp_path, monkeypatch):
    plot = fastattn.plot_attention(softmax(2, 3, 3), ["é", "你", "🙂"], title="Ünï")
    plot.save(tmp_path / "a.svg")
    plot.save(str(tmp_path / "b.HTML"))
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == plot.svg
    assert (tmp_path / "b.HTML").read_text(encoding="utf-8") == plot.html
    assert plot.html.startswith("<!DOCTYPE html>") and ("title", "Ünï") in Reader(plot.html).texts
    monkeypatch.chdir(tmp_path)
    for name in ["a.png", "a", "svg", ".svg/a", 3, None, "missing/a.svg", "a\0.svg"]:
        with refused(InputError):
            plot.save(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.HTML"]


LABELS = [
    *(["a", "b"], ["a"] * 4, iter(int, 1), [], ["a", None, "b"], ["a", "b", 10**5000], [0.5, 1.5, 2.5]),
    *("abc", b"abc", 3),
]
WEIGHTS = [
    *map(np.zeros, [(0, 3, 3), (2, 0, 3), (2, 3, 0), (1, 0, 3, 3), 3, (2, 2, 3, 3), (0, 2, 3, 3), (1, 1, 1, 1, 1)]),
    *(0.5, np.full((2, 2), np.nan), np.array([[0, np.inf]]), np.array([[0.5, -0.5]])),
    *(np.ones((2, 2), kind) for kind in (int, np.uint16, complex, bool)),
    *([[0.1], [0.2, 0.3]], [["a"]], None),
    *(np.broadcast_to(np.float32(0), shape) for shape in [(4097, 2), (2, 4097), (257, 1, 1), (2, 4096, 4096)]),
    np.broadcast_to(np.float32(0), (1, 10**6, 10**6, 10**6)),
]


def test_what_cannot_be_drawn():
    for named, given in (
        *(("weights", {"weights": weights}) for weights in WEIGHTS),
        *((axis, {"weights": softmax(3, 3), axis: given}) for axis in ("rows", "columns") for given in LABELS),
        *(("title", {"weights": softmax(2, 2), "title": title}) for title in (3, b"a", ["a"])),
    ):
        with refused(InputError, named):
            fastattn.plot_attention(**given)
    for head in [-1, 3, 10**5000, 1.0, "first", None, True, "", [0]]:
        with refused(InputError, "head"):
            fastattn.plot_attention(softmax(3, 2, 2)).to_svg(head)


def test_many_cells_are_an_image_of_the_same_colours():
    weights = softmax(2, 50, 90)
    plot = fastattn.plot_attention(weights)
    assert rectangles(plot.svg) == []
    for (dots, palette), head in zip(images(plot.svg), weights, strict=True):
        np.testing.assert_array_equal(palette, picture.colour_scale())
        np.testing.assert_array_equal(dots, np.rint(255 * (head / weights.max()).astype(np.float64)))


def test_of_more_cells_than_pixels_the_largest_are_seen():
    for T, S in [(1, 1300), (1300, 1), (561, 1121), (4096, 5)]:
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


def test_bounds_count_themselves(monkeypatch):
    assert labels.printable_text("x" * labels.MOST_CHARACTERS) == "x" * labels.MOST_CHARACTERS
    assert labels.printable_text("x" * (labels.MOST_CHARACTERS + 1)) == "x" * labels.MOST_CHARACTERS + "…"
    monkeypatch.setattr(page, "MOST_WIDE_WEIGHTS", 6)
    monkeypatch.setattr(picture, "MOST_RECTANGLES", 6)
    for columns, levels, cells in ((3, 65535, 6), (4, 255, 0)):
        plot = fastattn.plot_attention(softmax(1, 2, columns))
        assert (sent_weights(plot.html)[1], len(rectangles(plot.svg))) == (levels, cells)


def test_cutting():
    cases = [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("北京市", 5, "北京…"), ("北京市", 4, "北…"), ("", 3, "")]
    for text, most, expected in cases:
        assert labels.clip(text, most) == expected and labels.display_width(expected) <= most


def test_no_label_lies_outside_or_over_another():
    """By the font's estimated width: rows and flat columns at least a line or their width apart, all in the picture."""
    shown = texts(fastattn.plot_attention(softmax(200, 8)).svg)
    assert shown[:40] == [str(i) for i in range(0, 200, 5)]  # and the others are left out
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


def test_words_that_do_not_fit_stand_aslant():
    for words, turned in ((["attention", "is", "all", "you", "need"],) * 2, (None, [])):
        svg = ElementTree.fromstring(fastattn.plot_attention(softmax(5, 5), words, words).svg)
        assert [text.text for text in svg.iter(f"{SVG}text") if text.get("transform")] == turned


def test_panels_stand_in_even_rows():
    words = ["word"] * 13
    svg = fastattn.plot_attention(softmax(4, 13, 13), words, words).svg
    places = re.findall(r'<g transform="translate\(([\d.]+) ([\d.]+)\)">', svg)
    assert len(places) == 4 and len({x for x, _ in places}) * len({y for _, y in places}) == 4


def test_the_scale_is_even_and_rises_in_lightness():
    oklab = picture._equidistant(picture._bezier(1024))
    steps = np.linalg.norm(np.diff(oklab, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.02
    assert (np.diff(oklab[:, 0]) > 0.002).all()
    linear = picture._linear_srgb(oklab)
    assert linear.min() >= 0 and linear.max() <= 1, "every colour is one that a screen has"
    assert len(set(picture.hex_colours())) == 256
    np.testing.assert_allclose(picture._linear_srgb(np.array([[1.0, 0, 0]])), [[1, 1, 1]], atol=1e-6)  # OKLab's white
    np.testing.assert_allclose(picture._linear_srgb(np.array([[0.62796, 0.22486, 0.12585]])), [[1, 0, 0]], atol=1e-4)


def test_the_html_holds_every_weight_to_half_a_level():
    for shape, levels in [((1, 5, 7), 65535), ((4, 5, 7), 65535), ((3, 512, 512), 255)]:
        weights = softmax(*shape)
        found, found_levels, largest = sent_weights(fastattn.plot_attention(weights).html)
        assert found_levels == levels
        heads = weights.astype(np.float64)
        expected = np.concatenate([heads.mean(axis=0, keepdims=True), heads]) if shape[0] > 1 else heads
        np.testing.assert_allclose(largest, [expected[0].max()] + [heads.max()] * (len(expected) - 1), rtol=1e-6)
        for plane, exact, top in zip(found, expected, largest):
            assert np.abs(plane - exact).max() <= (0.5 / levels + 1e-6) * top


def test_weights_of_any_size():
    plot, first = fastattn.plot_attention(np.array([[0.0, -0.0]])), picture.hex_colours()[0]
    assert rectangles(plot.svg) == [(first, f"\u20680\u2069, \u2068{s}\u2069: 0") for s in range(2)]
    assert not sent_weights(plot.html)[0].any()
    for size in [5e-324, 1e-310, 1e-30, 1e30, 1.7e308]:
        plot = fastattn.plot_attention(np.array([[[0.0, 1.0]], [[1.0, 1.0]]]) * size)
        found, _, largest = sent_weights(plot.html)
        assert largest == [size, size, size]
        np.testing.assert_allclose(found[1:] / size, [[[0, 1]], [[1, 1]]])
        told = [(colour, tooltip.split(": ")[1]) for colour, tooltip in rectangles(plot.svg)]
        assert told == [(picture.hex_colours()[0], "0")] + [(picture.hex_colours()[255], f"{size:.4g}")] * 3


def test_the_size_of_what_is_sent():
    plot = fastattn.plot_attention(softmax(3, 512, 512))
    assert len(plot.html) < 7 << 18 and len(plot.svg) < 7 << 18
    few = fastattn.plot_attention(softmax(8, 16, 16))
    assert len(few.html) < 100_000


def test_labels_are_text_and_nothing_else():
    plot = fastattn.plot_attention(softmax(2, 6, 6), HOSTILE, HOSTILE, title=HOSTILE[0])
    for html in (plot.html, plot._repr_html_()):
        reader = Reader(html)
        assert {tag for tag, _, _ in reader.elements}.isdisjoint({"b", "img"})
        assert [text for tag, text in reader.texts if tag == "script"] == [page.SCRIPT]
        assert not any(name.startswith("on") for _, attributes, _ in reader.elements for name in attributes)
        assert json.loads(reader.root["data-rows"]) == [labels.printable_text(label) for label in HOSTILE]
        html.encode()  # no half of a surrogate pair
    root = ElementTree.fromstring(plot.to_svg(0))
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert "</script><b>x" in shown and r"\x00\n\x1b[2J" in shown and r"\u202eevil" in shown
    assert r"\ud800\uffff" in shown
    whole = {title.text for text in root.iter(f"{SVG}text") for title in text.iter(f"{SVG}title")}
    assert whole == {HOSTILE[1]}, "the only one that was cut"
    assert root.get("aria-label") == "</script><b>x: attention weights, 2 heads, 6 rows, 6 columns"


def test_light_and_dark_and_without_any_style():
    plot = fastattn.plot_attention(softmax(2, 3, 3))
    for text in (plot.svg, plot.html):
        assert "@media(prefers-color-scheme:dark)" in text
    for theme in ("data-jp-theme-light=true", "data-jp-theme-light=false", ".vscode-light", ".vscode-dark"):
        assert theme in page.STYLE
    svg = ElementTree.fromstring(re.sub("<style>.*?</style>", "", plot.svg, flags=re.DOTALL))
    paper, ink = svg.find(f"{SVG}rect"), svg.find(f"{SVG}g")
    assert (paper.get("fill"), ink.get("fill")) == ("#fff", "#1f2328")
    rule = r"\.fastattn-paper\{fill:(#\w+)\}\.fastattn-ink\{fill:(#\w+)\}"
    for paper_colour, ink_colour in re.findall(rule, picture.STYLE):
        assert contrast(paper_colour, ink_colour) > 7  # WCAG 2.2, 1.4.6
    assert len(re.findall(rule, picture.STYLE)) == 2


def test_nothing_clashes_with_another_plot_or_the_same_again():
    one, two = (fastattn.plot_attention(softmax(2, 3, 3, seed=seed)) for seed in (1, 2))
    assert one._repr_html_() == one._repr_html_()
    reader = Reader(one._repr_html_() + two._repr_html_() + one._repr_html_())
    for _, attributes, _ in reader.elements:
        assert not {"id", "for", "name", "aria-labelledby"} & set(attributes)
    assert [found["class"] for found in reader.named("div")].count("fastattn-attention") == 3
    selectors = re.findall(r"([^{}]+)\{", re.sub(r"@media\([^)]*\)\{", "", page.STYLE + picture.STYLE))
    assert len(selectors) > 10 and all(".fastattn-" in selector for selector in selectors)
    assert "getElementById" not in page.SCRIPT
    for text in (page.SCRIPT, page.STYLE, picture.STYLE):  # which cannot end early
        assert "</" not in text and "<!--" not in text and "&" not in text.replace("&&", "")


def test_the_script_calls_the_functions_that_it_declares():
    called = {*re.findall(r"(?<![\w.])([a-z]\w*)\(", page.SCRIPT)} - {"atob", "calc", "for", "if"}
    assert called == {*re.findall(r"(\w+) = (?:\w+|\(.*?\)) =>", page.SCRIPT)}


def test_heads_are_chosen_in_a_select_and_without_the_script_the_mean_remains():
    reader = Reader(fastattn.plot_attention(softmax(3, 3, 3), title="Layer 3")._repr_html_())
    ((_, _, around),) = [found for found in reader.elements if found[0] == "select"]
    assert around[-1] == "label"
    assert [text for tag, text in reader.texts if tag == "option"] == ["mean of 3 heads", "head 0", "head 1", "head 2"]
    assert Reader(fastattn.plot_attention(softmax(2, 2)).html).named("select") == []
    bar = next(attributes for attributes in reader.named("div") if attributes["class"] == "fastattn-bar")
    assert "hidden" in bar and all("hidden" in canvas for canvas in reader.named("canvas"))
    assert ("text", "Layer 3") in reader.texts and ("text", "mean of 3 heads") in reader.texts
    assert len(reader.named("rect")) > 9


def test_nothing_is_loaded_from_elsewhere():
    plot = fastattn.plot_attention(softmax(1, 70, 70))
    text = plot.html + plot.svg
    assert set(re.findall(r"https?://[^\"' )]*", text)) == {"http://www.w3.org/2000/svg"}
    assert all(word not in text for word in ("<link", "<iframe", "@import", "fetch(", "import(", "url("))
    for tag, attributes, _ in Reader(text).elements:
        assert "src" not in attributes and attributes.get("href", "data:").startswith("data:"), tag


def test_the_canvas_lies_over_the_cells_of_the_picture():
    html = fastattn.plot_attention(softmax(4, 6), list("abcd"), list("uvwxyz"), title="T")._repr_html_()
    canvas = dict(part.split(":") for part in Reader(html).named("canvas")[0]["style"].split(";"))
    svg = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    (panel,) = [g for g in svg.iter(f"{SVG}g") if g.get("transform")]
    left, top = map(float, re.findall(r"[\d.]+", panel.get("transform")))
    cells = [rect for rect in panel.iter(f"{SVG}rect") if len(rect)]
    first, last = ([float(cell.get(side)) for side in ("x", "y", "width", "height")] for cell in (cells[0], cells[-1]))
    width, height = (float(svg.get(side)) for side in ("width", "height"))
    expected = (left + first[0], top + first[1], last[0] + last[2] - first[0], last[1] + last[3] - first[1])
    found = (float(canvas[side].rstrip("%")) / 100 for side in ("left", "top", "width", "height"))
    np.testing.assert_allclose(np.array(list(found)) * [width, height, width, height], expected, atol=0.2)
    assert svg.get("viewBox") == f"0 0 {width:g} {height:g}"
