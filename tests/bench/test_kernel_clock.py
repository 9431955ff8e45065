"""The clock of kernels: every call inside is timed, by its kernel's name, and none outside."""

import numpy as np
import pytest

from bench import kernel_clock as clock
from bench.kernel_clock import kernel_seconds
from fastattn.ops import cpu as operations


def norm() -> np.ndarray:
    ones = np.ones((3, 8), np.float32)
    return operations.layer_norm(ones, ones[0], ones[0], 1e-5)


def test_seconds_of_calls_inside_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    norm()
    now = iter([1.0, 1.5, 4.0, 7.0])
    monkeypatch.setattr(clock.time, "thread_time", lambda: next(now))
    with kernel_seconds() as seconds:
        inside = [norm(), norm()]
    assert [name.partition(".")[0] for name in seconds] == ["norm"] and list(seconds.values()) == [3.5]
    np.testing.assert_array_equal(inside, [norm(), norm()])  # outside: no time is left to be told
    assert list(seconds.values()) == [3.5]


def test_the_clock_stops_whatever_happens_inside() -> None:
    with pytest.raises(ZeroDivisionError), kernel_seconds() as seconds:
        raise ZeroDivisionError
    norm()
    assert seconds == {}
