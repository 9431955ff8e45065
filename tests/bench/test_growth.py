"""Time and memory over the positions, at next to no size: the results agree, table and picture go where they should."""

import xml.etree.ElementTree

import numpy as np
import pytest

from bench import growth
from fastattn.runtime.threads import thread_limit
from tests.bench.test_document import written


def test_the_window_is_as_wide_as_it_says():
    functions = growth.calls(200)
    _, weights = functions[growth.NEAR](return_weights=True)
    assert (weights > 0).sum(axis=-1).max() == growth.WINDOW


def test_the_table_goes_into_a_document_and_the_picture_beside_it(marked):
    document = marked("growth", "growth")
    assert growth.run("toy", thread_limit(), document) == 0
    assert "\n| 32 | " in written(document) and "\n| 64 | " in written(document)
    root = xml.etree.ElementTree.parse(document.parent / "pictures" / "growth.svg").getroot()
    assert {"time", growth.OURS, growth.NEAR, growth.PLAIN} <= set(root.itertext())


def test_a_picture_without_memory_has_the_times_alone():
    times = dict.fromkeys((growth.OURS, growth.NEAR, growth.PLAIN), 0.5)
    drawn = growth.picture([(32, times, {}), (64, times, {})])
    assert ">ms<" in drawn and ">MB<" not in drawn


def test_a_difference_fails_the_run(monkeypatch):
    given = growth.calls(32)
    wrong = {**given, growth.PLAIN: lambda: np.zeros(3, np.float32)[:1]}
    monkeypatch.setattr(growth, "calls", lambda n: wrong)
    with pytest.raises(ValueError, match="results differ"):
        growth.measure("toy", thread_limit())
