"""Compiled functions in the cache, and what they read: each in processes of their own."""

import os

import pytest

from fastattn.runtime.code_cache import kernel_sources
from tests import ROOT
from tests.children import run_child
from tests.weights.forked import run_forked

CHILD = """
import sys
import numpy as np
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import fastattn
from fastattn.user_functions import function_type
from fastattn.runtime.compiling import on_compile
from masks import mask, score
on_compile(lambda name: "pool_code." in name or print("compiled", name))
typed = []
real = function_type.Variants._compile
function_type.Variants._compile = lambda self, parameters: typed.append(1) or real(self, parameters)
if "whole" in sys.argv:
    x = np.random.default_rng(0).standard_normal((1, 40, 2, 8)).astype(np.float32)
    out = fastattn.attention(x, x, x, mask_mod=mask, score_mod=score)
else:  # the smallest kernel that calls a function
    out = fastattn.BlockMask.from_function(mask, 1, 1, 40, 40, (1, 1)).states_BHTS
print("typed", len(typed) > 0)
print("result", out.sum(dtype=np.float64))
print("explained", fastattn.explain_function(mask), fastattn.explain_function(score))
"""
MASKS = """
import math
import numpy as np
WIDTH = 5
TABLE = np.linspace(0, 1, 80)
def mask(b, h, t, s):
    return abs(t - s) + helper(TABLE[t + s]) < WIDTH
def score(score, b, h, t, s):
    return score * 2 + helper(TABLE[t + s])
def helper(x):
    return x * 3
"""


def run(folder, masks=MASKS, *more):
    (folder / "masks.py").write_text(masks)
    environment = {**os.environ, "FASTATTN_CACHE": str(folder / "cache")}
    done = run_forked("-c", CHILD, str(folder), *more, environment=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_function_is_compiled_once_for_all_processes(tmp_path):
    first = run(tmp_path)
    assert first[:2] == ["compiled masks._states", "typed True"]
    assert first[3] == "explained vectorised vectorised"
    assert run(tmp_path) == ["typed False", *first[2:]]
    # other values, and other lines, are the same code
    other = run(tmp_path, "\n\n" + MASKS.replace("WIDTH = 5", "WIDTH = 6").replace("(0, 1, 80)", "(0, 2, 80)"))
    assert other[0] == "typed False" and other[1] != first[2]
    # what it calls is a part of it
    found = run(tmp_path, MASKS.replace("x * 3", "x * 4"))
    assert found[:2] == ["compiled masks._states", "typed True"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "old, new", [("< WIDTH", "<= WIDTH"), ("WIDTH = 5", "WIDTH = 5.0"), ("0, 1, 80)", "0, 1, 80).astype(np.int64)")]
)
def test_another_source_or_type_is_another_function(tmp_path, old, new):
    first = run(tmp_path)
    assert run(tmp_path, MASKS.replace(old, new))[:2] == ["compiled masks._states", "typed True"]
    assert run(tmp_path) == ["typed False", *first[2:]]


@pytest.mark.slow
def test_functions_of_scores_are_kept_too(tmp_path):
    scalar = MASKS.replace("score * 2", "score * 2 + math.sin(s)")
    first = run(tmp_path, scalar, "whole")
    assert first[:2] == ["compiled sentences.attend", "typed True"]
    again = run(tmp_path, scalar, "whole")
    assert again == ["typed False", *first[2:]]
    assert again[-1].startswith(f"explained vectorised scalar: {tmp_path}/masks.py:9: a function that only Numba knows")


def test_all_that_functions_are_made_of_is_in_the_caches_name():
    sources = kernel_sources(ROOT / "fastattn")
    for room in ("user_functions", "simd"):
        for path in (ROOT / "fastattn" / room).glob("*.py"):
            assert f"{room}/{path.name}" in sources


REDEFINED = """
import numpy as np
import linecache
import fastattn
from tests.user_functions.kernels import expected_seen, seen
for n, body in enumerate(["s <= t", "s < t", "s <= t + h"]):
    text = "def mask(b, h, t, s):\\n    return " + body + "\\n"
    name = f"<cell {n}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    space = {}
    exec(compile(text, name, "exec"), space)
    assert np.array_equal(seen(space["mask"], 9, 9, 0, 2), expected_seen(space["mask"], 9, 9, 0, 2))
print("as they are")
"""


def test_a_function_of_the_same_name_and_other_source(tmp_path):
    done = run_forked("-c", REDEFINED, environment={**os.environ, "FASTATTN_CACHE": str(tmp_path)})
    assert (done.stdout, done.stderr) == ("as they are\n", "")


GUARDED = """
import numpy as np
from tests.guard_pages import guarded
from tests.user_functions.kernels import modified, seen
whole = guarded(1)
scores = np.zeros((40, 70), np.float32)
NEAR, FAR = (0, 1, -1, 50, 2**31 - 1, -(2**31)), (2**40, -(2**62))
for dtype, fars in ((np.float32, NEAR + FAR), (np.int64, NEAR), (np.bool_, NEAR)):
    for shape in ((1,), (3,), (17,), (64,), (5, 7), (2, 16), (3, 33)):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        for place in (whole[:size], whole[-size:]):
            table = place.view(dtype).reshape(shape)
            for far in fars:
                def look(score, b, h, t, s, table=table, far=far):
                    return table[s + far] + table[far - s] + table[s * t - 9] + table[t]
                def look_twice(score, b, h, t, s, table=table, far=far):
                    return table[t, s + far] + table[s, far] + table[s * 3, -t] + table[far - t, t - s] + table[t][far]
                for variant in ("best", "scalar"):
                    modified(look if len(shape) == 1 else look_twice, scores, variant=variant)
print("nothing beyond")
"""


@pytest.mark.skipif(os.name == "nt", reason="mprotect")
def test_nothing_beyond_an_array_is_read(tmp_path):
    path = tmp_path / "guarded.py"  # functions are compiled from their source
    path.write_text(GUARDED)
    assert run_child("import runpy, sys; runpy.run_path(sys.argv[1])", str(path)) == "nothing beyond\n"
