"""The pure parts of attention's acceptance checks: the forms with functions, the plot."""

import xml.etree.ElementTree

import numpy as np

from bench.checks.attention import CAP, WINDOW, forms


def test_functions_say_what_the_arguments_beside_them_say():
    heads, length = 3, 2 * WINDOW
    places = np.arange(length)
    h, t, s = np.arange(heads)[:, None, None], places[:, None], places
    (alibi, bias), (capped, _), (causal, _), (window, argument), (documents, mask) = forms(heads, length).values()
    np.testing.assert_allclose(alibi["score_mod"](0.0, 0, h, t, s), bias["bias"], rtol=1e-6)
    assert capped["score_mod"](1e6, 0, 0, 0, 0) == CAP and abs(capped["score_mod"](0.1, 0, 0, 0, 0) - 0.1) < 1e-5
    assert (causal["mask_mod"](0, 0, t, s).sum(axis=1) == places + 1).all()
    assert argument == {"window": (WINDOW, 0)}
    assert (window["mask_mod"](0, 0, t, s).sum(axis=1) == np.minimum(places, WINDOW) + 1).all()
    assert (documents["mask_mod"](0, 0, t, s) == mask["mask"]).all() and 0 < mask["mask"].mean() < 0.5


def test_memory_is_plotted_over_two_lengths_or_more():
    from bench.report import memory_plot
    from bench.svg import plot

    runs = [
        {"part": "resources", "item": f"attention {engine} {n}", "length": n, "extra": extra}
        for engine, n, extra in (("fastattn", 1024, 0), ("fastattn", 4096, 500_000), ("NumPy", 4096, 90_000_000))
    ]
    assert memory_plot(runs[:1]) == []
    texts = [
        element.text for element in xml.etree.ElementTree.fromstring(plot(memory_plot(runs))).findall(".//{*}text")
    ]
    assert {"fastattn", "NumPy", "inputs and result", "1024", "4096", "100"} <= set(texts)
