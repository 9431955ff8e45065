"""What is killed at any moment is whole the next time, and a child forked under load waits for no other thread."""

import os

import pytest

from tests import ROOT
from tests.runtime.run_abuse import forks, kills

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and forks")


@pytest.mark.parametrize("count", [2, pytest.param(500, marks=pytest.mark.slow)])
def test_after_a_kill_the_next_run_works_and_leaves_nothing(count: int) -> None:
    assert kills(count) == []


@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_children_forked_under_load(count: int) -> None:
    assert forks(count) == []


def test_nothing_uses_the_cached_property_with_a_lock() -> None:
    files = [path for room in ("fastattn", "weights", "cli") for path in (ROOT / room).rglob("*.py")]
    users = [path.name for path in files if "cached_property" in path.read_text("utf-8")]
    assert users == ["records.py"], "whose docstring of lazy says why not"
