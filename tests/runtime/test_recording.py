"""Recorded kernel calls: made again, they do what the calls did; and the memory that they share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.kernel_clock import kernel_seconds
from fastattn.ops import cpu as operations
from fastattn.ops.cpu.rows import scale_rows
from fastattn.runtime.arena import ALIGNMENT, MIN_GROWTH, Arena, empty, is_in_arena
from fastattn.runtime.recording import StepRecorder
from fastattn.runtime.threads import use_threads
from tests.children import run_child


def layers(seed: int, width: int = 64):
    rng = np.random.default_rng(seed)
    packed = operations.pack_linear(rng.normal(0, width**-0.5, (width, width)).astype(np.float32), None, "float32")
    weight_D = rng.normal(1, 0.1, width).astype(np.float32)

    def run(x_ND):
        for _ in range(3):
            x_ND = operations.layer_norm(operations.linear(x_ND, packed, "relu", x_ND), weight_D, None, 1e-5)
        return x_ND

    return run


def recorded(run, x_ND, table_ND):
    """A program that writes run(x) to the rows of a table."""
    rows_N = np.arange(len(x_ND), dtype=np.int32)
    recorder = StepRecorder()
    return recorder, recorder.record(lambda: operations.write_rows(table_ND, rows_N, run(x_ND), 0))


STOP_NEVER, STOP_AT_ONCE = np.zeros(1, np.int64), np.ones(1, np.int64)


@pytest.mark.parametrize(("rows", "threads"), [(1, 2), (5, 1), (300, 2)])
def test_a_program_does_what_was_recorded_with_what_is_there_now(rows, threads):
    run, rng = layers(3), np.random.default_rng(rows)
    x_ND, table_ND = np.zeros((rows, 64), np.float32), np.full((rows, 64), 7, np.float32)
    with use_threads(threads):
        _, program = recorded(run, x_ND, table_ND)
        assert (table_ND == 7).all(), "nothing runs while it is recorded"
        for _ in range(3):
            x_ND[:] = rng.normal(size=x_ND.shape)
            program.run(1, STOP_NEVER)
            assert table_ND.tobytes() == run(x_ND).tobytes()


def test_calls_are_repeated_until_the_word_says_stop():
    x_ND = np.ones((1, 64), np.float32)
    states_MW, previous_N, rows_N = np.zeros((2, 64), np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    positions_N = np.zeros(1, np.int32)

    def count():  # the sum of all rows so far, in row 0
        operations.running_average(x_ND, states_MW, previous_N, rows_N, positions_N)

    program = StepRecorder().record(count)
    program.run(5, STOP_NEVER)
    assert (states_MW[0] == 5).all()
    program.run(5, STOP_AT_ONCE)
    assert (states_MW[0] == 6).all()


def test_a_clock_counts_them():
    x_ND = np.ones((1, 64), np.float32)
    program = StepRecorder().record(lambda: operations.round_rows(x_ND, 0))
    with kernel_seconds() as seconds:
        program.run(100, STOP_NEVER)
        operations.round_rows(x_ND, 0)
    assert set(seconds) == {"recorded steps", "steps._round_in_place"} and seconds["recorded steps"] > 0


def test_what_numpy_computes_is_not_recorded():
    x_ND = np.ones((1, 4), np.float32)
    assert StepRecorder().record(lambda: scale_rows(x_ND, 2)) is None
    assert (scale_rows(x_ND, 2) == 2).all(), "and nothing is recorded any more"


def test_an_error_ends_the_recording():
    with pytest.raises(ZeroDivisionError):
        StepRecorder().record(lambda: 1 // 0)
    assert not is_in_arena(empty((3, 3)).base)


def test_programs_share_the_memory_between_their_kernels():
    run = layers(1)
    x_ND = np.zeros((300, 64), np.float32)
    recorder, _ = recorded(run, x_ND, np.zeros_like(x_ND))
    once = recorder.arena.size
    for rows in range(1, 300, 20):
        recorder.record(lambda: run(x_ND[:rows]))  # noqa: B023  recorded at once
    assert recorder.arena.size == once <= 3 * x_ND.nbytes + 2 * MIN_GROWTH, "six results, of which two live at a time"


def test_a_view_keeps_memory_of_an_arena():
    arena = Arena()
    one = arena.empty((8, 8), np.float32)
    view, place = one.reshape(64)[3:], one.ctypes.data
    del one
    assert is_in_arena(view.base) and arena.empty(64, np.float32).ctypes.data != place
    del view
    assert arena.empty(64, np.float32).ctypes.data == place


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90_000)), max_size=60))
def test_arrays_of_an_arena_never_overlap(actions):
    arena, alive = Arena(), []
    for kind, number in actions:
        if kind or not alive:
            array = arena.empty((number,), np.float32)
            array.fill(len(alive))
            alive.append((array, float(len(alive))))
        else:
            del alive[number % len(alive)]
        assert all((array == value).all() for array, value in alive)
        assert all(array.ctypes.data % ALIGNMENT == 0 for array, _ in alive if array.size)
        ends = [0, *(place for free in arena._free for place in free)]
        assert ends == sorted(set(ends)), "in order, none empty, never side by side"
    array = None
    alive.clear()
    assert sum(end - first for first, end in arena._free) >= arena.size - 2 * ALIGNMENT * len(arena._chunks)
    assert len(arena._free) <= len(arena._chunks), "what is side by side is one"


LAST = """
import sys
from fastattn.runtime import arena
sys.last = arena, arena.Arena().empty((8, 8), "f4")
"""


def test_an_array_that_outlives_the_modules_goes_in_silence():
    assert run_child(LAST) == ""
