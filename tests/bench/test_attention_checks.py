"""The pure parts of attention's acceptance checks: the floor, the random calls, the forms with functions, the plot."""

import xml.etree.ElementTree

import numpy as np
import pytest

import fastattn
from bench.checks import attention_accuracy
from bench.checks.attention import CAP, WINDOW, around, forms, within
from bench.checks.attention_accuracy import Call, draw, ratio


def test_the_floor_counts_the_scores_that_are_seen():
    from bench.attention_floor import floor

    assert floor((2, 3, 4, 8), False, (64.0, 2.0)) == 2 * 3 * 16 * (4 * 8 / 64 + 1 / 2)
    assert floor((2, 3, 4, 8), True, (64.0, 2.0)) == 2 * 3 * 10 * (4 * 8 / 64 + 1 / 2)


def calls(count=200):
    rng = np.random.default_rng(3)
    return [draw(rng) for _ in range(count)]


def test_random_calls_are_of_every_kind():
    drawn = calls()
    used = {name for call, _ in drawn for name in call.options}
    assert used == {"bias", "causal", "offset", "lengths", "mask", "softcap", "window"}
    assert {layout for _, layout in drawn} == {"BTHK", "BHTK"}
    sizes = {size for call, _ in drawn for size in call.seen.shape[2:]}
    assert {0, 1, 300} <= sizes
    assert {0, 1} <= {int(n) for call, _ in drawn for n in call.options.get("lengths", ())}
    assert any(np.isneginf(call.bias).any() for call, _ in drawn if call.bias is not None)
    assert any((~call.seen.any(axis=-1)).any() for call, _ in drawn if call.seen.shape[3])
    strides = [array.strides for call, _ in drawn for array in call.arrays if array.size]
    assert any(min(steps) < 0 for steps in strides) and any(steps[3] != 4 for steps in strides)
    assert any(np.abs(call.arrays[0]).max(initial=0) > 300 for call, _ in drawn)


def test_the_formula_is_softmax_of_what_is_seen():
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((1, n, 1, 4)).astype(np.float32) for n in (2, 3, 3))
    seen = np.array([[True, True, False], [False, False, False]])[None, None]
    result = Call((query, key, value), {"softcap": 2.0}, seen).naive(np.float64)
    scores = 2 * np.tanh(key[0, :2, 0].astype(np.float64) @ query[0, 0, 0] / 2 / 2)
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(result[0, 0, 0], weights @ value[0, :2, 0], rtol=1e-12)
    assert not result[0, 1].any()


def test_the_order_of_a_sum_does_not_change_the_formula():
    call, _ = next((call, _) for call, _ in calls() if call.arrays[0].size and call.arrays[0].shape[3] == 64)
    np.testing.assert_allclose(call.naive(np.float64, np.arange(64)[::-1]), call.naive(np.float64), atol=1e-9)


@pytest.mark.parametrize(
    ("spoil", "low", "high"),
    [
        (lambda right: right, 0, 0.01),
        (lambda right: right + np.float32(1e-5), 2, 1e4),
        (lambda right: right * np.nan, np.inf, np.inf),
    ],
)
def test_an_error_shows_in_the_ratio(monkeypatch, spoil, low, high):
    query, key, value = (np.random.default_rng(0).standard_normal((1, 9, 2, 8)).astype(np.float32) for _ in range(3))
    call = Call((query, key, value), seen=np.ones((1, 2, 9, 9), bool))
    right = call.naive(np.float64)
    monkeypatch.setattr(fastattn, "attention", lambda *_, layout="BTHK", **__: spoil(right))
    assert low <= ratio(call, "BTHK") <= high
    assert attention_accuracy.ORDERS >= 1


def test_functions_say_what_the_arguments_beside_them_say():
    heads, length = 3, 2 * WINDOW
    places = np.arange(length)
    h, t, s = np.arange(heads)[:, None, None], places[:, None], places
    found = forms(heads, length)
    alibi, capped, causal, window, documents = found.values()
    np.testing.assert_allclose(alibi.function(0.0, 0, h, t, s), alibi.others["bias array"]["bias"], rtol=1e-6)
    assert capped.function(1e6, 0, 0, 0, 0) == CAP and abs(capped.function(0.1, 0, 0, 0, 0) - 0.1) < 1e-5
    assert (causal.function(0, 0, t, s).sum(axis=1) == places + 1).all()
    assert window.others == {"window": {"window": (WINDOW, 0)}}
    assert (window.function(0, 0, t, s).sum(axis=1) == np.minimum(places, WINDOW) + 1).all()
    mask = documents.others["mask"]["mask"]
    assert (documents.function(0, 0, t, s) == mask).all() and 0 < mask.mean() < 0.5


def test_masks_of_a_window_are_that_window():
    t, s = np.arange(1000)[:, None], np.arange(1000)
    before = np.minimum(s, WINDOW)
    assert (within(0, 0, t, s).sum(axis=1) == before + 1).all()
    both = np.minimum(t[:, 0], WINDOW // 2) + 1 + np.minimum(999 - t[:, 0], WINDOW // 2)
    assert (around(0, 0, t, s).sum(axis=1) == both).all()


def test_memory_is_plotted_over_two_lengths_or_more():
    from bench.report import memory_plot

    runs = [
        {"part": "resources", "item": f"attention {engine} {n}", "length": n, "extra": extra}
        for engine, n, extra in (("fastattn", 1024, 0), ("fastattn", 4096, 500_000), ("NumPy", 4096, 90_000_000))
    ]
    assert memory_plot(runs[:1]) is None
    texts = [element.text for element in xml.etree.ElementTree.fromstring(memory_plot(runs)).findall(".//{*}text")]
    assert {"fastattn", "NumPy", "inputs and result", "1024", "4096", "100"} <= set(texts)
