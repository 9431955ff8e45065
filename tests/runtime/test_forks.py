"""A child forked while other threads load, translate and encode can do all of that itself, and never waits for them."""

import os

import pytest

from tests import ROOT
from tests.runtime.run_abuse import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_children_forked_under_load(count: int) -> None:
    assert forks(count) == []


def test_nothing_uses_the_cached_property_with_a_lock() -> None:
    files = [path for room in ("fastattn", "weights", "cli") for path in (ROOT / room).rglob("*.py")]
    users = [path.name for path in files if "cached_property" in path.read_text("utf-8")]
    assert users == ["records.py"], "whose docstring of lazy says why not"
