"""`make quick` runs the tests that are named after what was changed."""

from importlib import import_module
from types import SimpleNamespace

import pytest

from tests import ROOT


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "clone"))
    return import_module("run_quick")


def test_a_file_has_the_tests_named_after_it(quick: SimpleNamespace) -> None:
    assert quick.tests_named_after("fastattn/text/splitting.py")[0].startswith("tests/text/test_")
    assert quick.tests_named_after("tests/text/test_text_splitting.py") == ["tests/text/test_text_splitting.py"]
    assert quick.tests_named_after("fastattn/plot/__init__.py") == ["tests/plot"]
    assert quick.tests_named_after("README.md") == quick.tests_named_after("fastattn/serve/page.html") == []


def test_tests_of_the_whole_exist(quick: SimpleNamespace) -> None:
    assert [name for name in quick.WHOLE if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("failed", [0, 1])
def test_the_clock_stops_tests_of_the_change_alone(
    quick: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    now = iter(range(0, 100, 15))
    monkeypatch.setattr(quick.time, "monotonic", lambda: next(now))
    clock, session = quick.Clock(), SimpleNamespace(shouldstop=False, testsfailed=failed)
    for nodeid, stopped in (
        ("tests/test_imports.py::test_one", False),
        ("tests/text/test_text_splitting.py::test_one", False),  # at 0 s
        ("tests/text/test_text_splitting.py::test_two", True),  # at 30 s and 45 s
    ):
        clock.pytest_runtest_protocol(SimpleNamespace(nodeid=nodeid, session=session))
        assert bool(session.shouldstop) == stopped
    assert clock.stopped_well == (not failed)
