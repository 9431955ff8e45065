"""What is killed at any moment is whole the next time; the tool does as much as one asks for."""

import os

import pytest

from tests.runtime.run_abuse import kills

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")


@pytest.mark.parametrize("count", [4, pytest.param(500, marks=pytest.mark.slow)])
def test_after_a_kill_the_next_run_works_and_leaves_nothing(count: int) -> None:
    assert kills(count) == []
