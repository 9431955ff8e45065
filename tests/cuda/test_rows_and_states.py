"""Rows, tables and states beyond the table of cases: types, what is no number, tokens of greedy search, threads."""

from typing import Any

import numpy as np
import pytest
from numba import cuda as cuda_of_numba

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, NO_EDITS, OVER, STOP, USED, StepRows
from fastattn.ops import cuda, reference
from fastattn.ops.cuda import card
from fastattn.ops.cuda.card import THREADS, download, upload
from fastattn.ops.cuda.recording import STOP_CHECK_STEPS
from fastattn.ops.cuda.steps import runs_of
from fastattn.spec.quantized import QuantizedTensor
from tests.kernels.cases import normal

EDGES = np.array([0, 1, 2, 0x7F, 0x80, 0x7FFF, 0x8000, 0x8001, 0x17FFF, 0x18000, 0x1FFF, 0x1000, 0x3000], np.uint32)
HIGHS = np.array([0, 0x3F80, 0x3300, 0x387F, 0x477F, 0x7F7F, 0x7F80, 0x7FC0], np.uint32) << 16
EVERY = np.concatenate([HIGHS, HIGHS | 1 << 31])[:, None] + EDGES  # NaN, infinity, subnormal numbers, ties
FLOATS = np.concatenate([EVERY.view(np.float32), normal(0, 3, len(EDGES))])


@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int16])
def test_tables_of_each_type(dtype: Any) -> None:
    rows, table = np.random.default_rng(1).permutation(len(FLOATS) + 5)[: len(FLOATS)].astype(np.int32), None
    table = np.full((len(FLOATS) + 5, len(EDGES) + 1), 7, dtype)
    expected, there = table.copy(), upload(table)
    reference.write_rows(expected, rows, FLOATS, 2)
    cuda.write_rows(there, rows, upload(FLOATS), 2)
    kind = np.dtype({np.uint16: np.uint16, np.int16: np.float16, np.float32: np.float32}[dtype])
    np.testing.assert_array_equal(download(there).view(kind), expected.view(kind))  # any NaN is a NaN of float16
    order = rows[::-1].copy()
    np.testing.assert_array_equal(
        download(cuda.gather_table(there, order, 99))[: len(rows)].view(kind), expected[order].view(kind)
    )
    np.testing.assert_array_equal(download(cuda.extend_table(there, 99))[: len(table)].view(kind), expected.view(kind))


def test_rounded_rows_keep_what_is_before_them() -> None:
    expected, got = FLOATS.copy(), upload(FLOATS)
    reference.round_rows(expected, 3)
    cuda.round_rows(got, 3)
    np.testing.assert_array_equal(download(got).view(np.uint32), expected.view(np.uint32))


def test_embeddings_of_each_kind_of_table() -> None:
    ids, positions = np.array([2, -1, 0, 6, 6], np.int32), np.array([1, 0, 3, 3, 2], np.int32)
    table_PD = normal(2, 4, THREADS + 3)
    whole = QuantizedTensor(np.random.default_rng(3).integers(-128, 128, (7, THREADS + 3), np.int8), normal(4, 7))
    float32 = normal(5, 7, THREADS + 3)
    for table, plain in ((float32, float32), (whole, whole), (float32.T.copy().T, float32)):
        expected = reference.embed(ids, plain, 3.5, positions, table_PD)
        np.testing.assert_allclose(download(cuda.embed(ids, table, 3.5, positions, table_PD)), expected, rtol=1e-6)
        np.testing.assert_allclose(download(cuda.embed(ids, table)), reference.embed(ids, plain), rtol=1e-6)
    for plain, precision in ((float32, "float32"), (whole, "int8")):  # whose columns make no whole words
        tied = cuda.pack_linear(plain, None, precision)
        np.testing.assert_array_equal(download(cuda.embed(ids, tied)), download(cuda.embed(ids, plain)))


def test_rows_of_callers_and_of_one_part() -> None:
    x = normal(6, 5, 4)
    rows = cuda.as_rows(x[::2, 1:])
    np.testing.assert_array_equal(download(rows), x[::2, 1:])
    assert cuda.as_rows(rows) is rows and cuda.concatenate_rows([rows]) is rows


def test_pooled_rows_that_are_no_numbers_and_others_that_are() -> None:
    x, starts = normal(7, 6, 3) - 9, np.array([0, 3, 6])
    x[1, 0], x[4, 1], x[3:, 2] = np.nan, np.inf, -np.inf
    for mode in ("max", "mean", "cls", "lasttoken"):
        got = download(cuda.pool(upload(x), starts, [mode]))
        chosen = {"max": [x[:3].max(axis=0), x[3:].max(axis=0)], "mean": [x[:3].mean(axis=0), x[3:].mean(axis=0)]}
        np.testing.assert_allclose(got, chosen.get(mode, x[[0, 3]] if mode == "cls" else x[[2, 5]]), rtol=1e-6)


def test_softmax_of_hidden_scores_and_of_what_is_no_number() -> None:
    x = normal(8, 6, 13)
    x[0], x[1], x[1, -1], x[2, 0], x[3, -1] = -np.inf, -np.inf, -3e38, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = reference.softmax(x.astype(np.float64))
    assert np.isnan(expected[[2, 3]]).all() and np.isfinite(expected[[0, 1, 4, 5]]).all()
    there = upload(x)
    np.testing.assert_allclose(download(cuda.softmax(there)), expected, rtol=1e-5)
    np.testing.assert_array_equal(download(there), x)


@pytest.mark.parametrize("operation", ["ssru", "running_average"])
def test_states_in_any_order_of_rows(operation: str) -> None:
    """Rows that continue others of the same call, next to them or not, or replace what others continue."""
    N, D = 6, 2 * THREADS + 1
    x, states, positions = normal(9, N, 2 * D), normal(10, 9, D + 2), np.arange(N, dtype=np.int32)
    forms = [([-1, 0, 1, -1, 3, 4], [0, 1, 2, 3, 4, 5], [0, 3]), ([7, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0])]
    forms += [([5, 4, 3, 2, 1, 0], [0, 1, 2, 6, 7, 8], [0]), ([6, 7, 8, -1, 6, 6], [0, 1, 2, 3, 4, 4], range(6))]
    for previous, rows, starts in forms:
        links = np.array(previous, np.int32), np.array(rows, np.int32)
        assert runs_of(*links).tolist() == [*starts, N]  # on the simulator one runs after the other
        both = []
        for ops, kept in ((reference, states.astype(np.float64)), (cuda, upload(states))):
            given = np.asarray(x, np.float64) if ops is reference else x
            if operation == "ssru":
                y = ops.ssru(given, given[:, :D].copy(), kept, *links)
            else:
                y = ops.running_average(given[:, :D].copy(), kept, *links, positions)
            both.append([array if ops is reference else download(array) for array in (y, kept)])
        for got, expected in zip(both[1], both[0]):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalized", [False, True])
def test_tokens_of_greedy_steps(normalized: bool) -> None:
    """The same rows after picking and taking; after a stop nothing changes any more."""
    x, weight, ends = normal(11, 5, 4), normal(12, 9, 4), np.array([3, 8], np.int32)
    found = []
    for ops in (reference, cuda):
        packed, rows = ops.pack_linear(weight), StepRows(5, 9)
        rows.counts[LIVE], rows.counts[ENOUGH], rows.limits_R[:] = 4, 9, [5, 1, 5, 5, 5]
        rows.slots_R[:], rows.fresh_F[:] = np.arange(5), np.arange(9)
        tables = np.full((5, 4), -1, np.int32), np.full((5, 4), -1, np.int32), np.zeros(9, np.int32)
        for _ in range(2):
            ops.pick_tokens(x, packed, NO_EDITS, normalized, ends, rows)
            ops.take_tokens(rows, *tables)
        found.append([array.copy() for array in (*vars(rows).values(), *tables)])
    for got, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert found[0][-1].any() and 0 < rows.counts[OVER] < 4 and not rows.counts[STOP]
    rows.counts[STOP] = 1
    stopped = [array.copy() for array in (*vars(rows).values(), *tables)]
    cuda.take_tokens(rows, *tables)
    cuda.pick_tokens(x, packed, NO_EDITS, normalized, ends, rows)
    for now, before in zip((*vars(rows).values(), *tables), stopped, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("bias", [0, np.nan, np.inf, -np.inf])
def test_faults_of_greedy_steps(bias: float, normalized: bool) -> None:
    """A best logit that is no number stops the steps; so does an infinite one, where no sum of exponentials tells."""
    packed, rows = cuda.pack_linear(np.zeros((3, 4), np.float32), np.full(3, bias, np.float32)), StepRows(2, 4)
    rows.counts[LIVE], rows.counts[ENOUGH], rows.limits_R[:] = 2, 2, 9
    cuda.pick_tokens(normal(1, 2, 4), packed, NO_EDITS, normalized, np.array([9], np.int32), rows)
    fault = int(bias != 0 and not (normalized and bias == -np.inf))
    assert rows.counts[[FAULT, STOP, OVER]].tolist() == [fault, fault, 0]


@pytest.mark.parametrize("stop", [99, 1, 4, 5])
def test_the_host_asks_every_few_recorded_steps_whether_to_stop(stop: int) -> None:
    counts = np.zeros(6, np.int64)

    @card.kernel
    def step(counts, stop):
        if cuda_of_numba.threadIdx.x == 0:
            counts[USED] += 1
            counts[STOP] = counts[USED] >= stop

    program = cuda.recorder().record(lambda: card.launch(step, 1, card.written_copy(counts), stop))
    for _ in range(2):
        counts[:] = 0
        program.run(10, counts[STOP:])
        assert counts[USED] == min(10, -(-stop // STOP_CHECK_STEPS) * STOP_CHECK_STEPS)


def test_threads() -> None:
    with cuda.use_threads(1):
        assert cuda.current_threads() > 1 == cuda.thread_limit()
