"""Search against its oracle at awkward sizes; the same bits for any threads, beside any queries, at any distance."""

import os
import subprocess
import sys

import numpy as np
import pytest

from fastattn.kernels.arguments import LEAST_ROWS
from fastattn.ops.cpu import use_threads
from fastattn.ops.cpu.search import nearest_rows as search
from fastattn.ops.reference import nearest_rows as oracle
from fastattn.simd.arguments import QUERIES, ROWS, ROWS_OF_ONE, SIZE
from tests import ROOT
from tests.kernels.promises import (
    SEARCHES,
    equal_scores_are_in_the_order_of_ids,
    found_rows_are_the_nearest,
    length_of_rows_that_have_none,
    same,
    searches,
    what_is_no_number_displaces_none,
)

BLOCK = 3001  # rows: more than one block of any width
SIZES = [(1, 1, 1), (2, ROWS + 1, SIZE // 4), (QUERIES, ROWS_OF_ONE, 3), (QUERIES + 1, LEAST_ROWS + 1, SIZE + 1)]
SIZES += [(1, LEAST_ROWS - 1, 97), (7, BLOCK, 33), (1, BLOCK, 96)]


def vectors(rng, shape, dtype):
    if dtype in (np.float32, np.float16):
        return rng.standard_normal(shape, np.float32).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def drawn(Q, N, D, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return vectors(rng, (Q, D), np.float32 if dtype == np.float16 else dtype), vectors(rng, (N, D), dtype)


@searches
def test_agrees_with_the_oracle(dtype, form):
    for Q, N, D in SIZES:
        found_rows_are_the_nearest(search, *drawn(Q, N, D, dtype), form)


def test_threads_and_other_queries_change_no_bit():
    for dtype, form in SEARCHES:
        queries_QD, corpus_ND = drawn(2 * QUERIES + 1, BLOCK, 37, dtype, 1)
        with use_threads(1):
            whole = search(queries_QD, corpus_ND, 9, **form)
        with use_threads(2):
            same(search(queries_QD, corpus_ND, 9, **form), whole)
            for q in range(len(queries_QD)):
                same(search(queries_QD[q : q + 1], corpus_ND, 9, **form), [part[q : q + 1] for part in whole])
            same(search(queries_QD[1:4], corpus_ND, 9, **form), [part[1:4] for part in whole])


def test_every_float16_is_its_number():
    corpus_N1 = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:, None]
    scores_Qk, ids_Qk = search(np.ones((1, 1), np.float32), corpus_N1, len(corpus_N1))
    numbers = ids_Qk[0] >= 0
    assert numbers.sum() == np.isfinite(corpus_N1).sum() + 2
    np.testing.assert_array_equal(scores_Qk[0, numbers], corpus_N1[ids_Qk[0, numbers], 0].astype(np.float32))


@pytest.mark.parametrize("queries", [1, QUERIES])
def test_equal_scores_lengths_and_what_is_no_number(queries):
    length_of_rows_that_have_none(search)
    what_is_no_number_displaces_none(search, queries)
    for threads in (1, 2):
        with use_threads(threads):
            equal_scores_are_in_the_order_of_ids(search, queries, 500)


def test_sums_of_extremes_are_exact():
    for value in ("min", "max"):
        for dtype in (np.int8, np.uint8):
            limits, D = np.iinfo(dtype), 1 << 15
            corpus_ND = np.full((3, D), getattr(limits, value), dtype)
            corpus_ND[1, 0] = 1  # the sums are a float32's neighbours, told apart before they are rounded
            for other in (limits.min, limits.max):
                for queries in (1, 2):
                    queries_QD = np.full((queries, D), other, dtype)
                    expected_Qk, expected_ids_Qk = oracle(queries_QD, corpus_ND, 3)
                    same(search(queries_QD, corpus_ND, 3), (expected_Qk.astype(np.float32), expected_ids_Qk))


BESIDE_GUARD_PAGES = """
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from fastattn.ops.cpu.search import nearest_rows as search
from tests.guard_pages import guarded

N, K, rng = 40, 3, np.random.default_rng(0)
FORMS = {
    "contiguous": (lambda D: N * D, lambda x, D: x.reshape(N, D)),
    "reversed": (lambda D: N * D, lambda x, D: x.reshape(N, D)[::-1]),
    "one row": (lambda D: D, lambda x, D: np.broadcast_to(x, (N, D))),
    "sliding": (lambda D: N + D - 1, lambda x, D: sliding_window_view(x, D)),
    "sliding back": (lambda D: N + D - 1, lambda x, D: sliding_window_view(x, D)[::-1]),
    "sliced": (lambda D: N * (D + 2), lambda x, D: x.reshape(N, D + 2)[::-2, 2:]),
}

def placed(flat):
    "The numbers in memory of their own, first at its end, then at its start: a page on each side cannot be read."
    whole = guarded(flat.nbytes)
    for first in (len(whole) - flat.nbytes, 0):
        numbers = whole[first : first + flat.nbytes].view(flat.dtype)
        numbers[:] = flat
        yield numbers

ALONE = [(dtype, {}) for dtype in ("int8", "float32", "float16")]
for dtype, how in (*ALONE, ("int8", {"by_length": True}), ("uint8", {"bits": True})):
    for name, (count, view) in FORMS.items():
        for D in (1, 2, 3, 5, 64, 71):
            flat = rng.integers(0, 100, count(D)).astype(dtype)
            queries = rng.integers(0, 100, (3, D)).astype("float32" if dtype == "float16" else dtype)
            there = np.pad(view(flat, D), ((0, 4), (0, 0)))[:-4]
            for Q in (1, 3):
                expected = search(queries[:Q], there, K, **how)
                for numbers in placed(flat):
                    found = search(queries[:Q], view(numbers, D), K, **how)
                    for one, other in zip(found, expected):
                        np.testing.assert_array_equal(one, other, f"{dtype} {how} {name} {D} {Q}")
print("ended")
"""


@pytest.mark.skipif(os.name == "nt", reason="mprotect")
def test_nothing_beside_the_corpus_is_read():
    ran = subprocess.run([sys.executable, "-c", BESIDE_GUARD_PAGES], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "ended\n"), ran.stderr
