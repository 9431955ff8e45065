"""Kernels and whole models on the pool's threads and on Numba's: the same bits; how many threads is the caller's.

The suite has the layer that Numba brings itself; OpenMP's, and whatever else the machine gives, are slow tests.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.children import run_child

QUERY = np.random.default_rng(0).standard_normal((2, 40, 4, 16)).astype(np.float32)


def run(code: str, *arguments: str, **environment: str) -> list[str]:
    """What a process prints: Numba's layer is chosen once in each, and after it no fork is safe."""
    return run_child(code, *arguments, timeout=600, **environment).splitlines()


EVERYTHING = """
import sys, threading
import numba
import numpy as np
import fastattn
from fastattn import Encoder, Translator
from fastattn.ops import cpu as operations
from fastattn.decoding.options import DecodingOptions
from fastattn.spec.checkpoint import Checkpoint
from tests.kernels.cases import CASES
from tests.models.tiny_models import random_checkpoint
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT

share = int(sys.argv[1])
chosen = set(sorted({case.operation for case in CASES})[share::2])
found = {}
def keep(name, value):
    found.setdefault(name, []).append(value)

def equal(one, other):
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))

for threading_name, threads in (("pool", 2), ("numba", 2), ("numba", 1)):
    fastattn.set_threading(threading_name)
    with fastattn.use_threads(threads):
        for case in CASES:
            if case.operation in chosen and hasattr(operations, case.operation):
                keep(case.name, case.call(operations, case.arrays))
    for precision in ("float32", "bfloat16", "int8")[: 3 * share]:
        encoder = Encoder.from_checkpoint(Checkpoint(SPEC, TENSORS, TEXT), precision, threads=threads)
        keep(f"encoder {precision}", [encoder.encode(["a cat sat", "the dog ran", "on a mat"] * 9)])
    varieties = {}, {"recurrence": "ssru", "positions": "none"}, {"recurrence": "average-attention"}
    for changes in varieties[: 3 * (1 - share)]:
        translator = Translator.from_checkpoint(random_checkpoint(seed=5, **changes), "int8", threads=threads)
        sources = [["\\u2581w1", "\\u2581w2", f"\\u2581w{n % 9}"] for n in range(30)]
        keep(f"translator {changes}", [np.array(str(translator.translate_tokens(sources, beam_size=3)))])
different = [name for name, values in found.items() if not all(equal(values[0], value) for value in values)]
helpers = sum(thread.name.startswith("fastattn") for thread in threading.enumerate())
print(numba.threading_layer(), len(found) > 40, different, helpers)
"""


def needs_openmp() -> None:
    pytest.importorskip("numba.np.ufunc.omppool", reason="this Numba has no OpenMP layer")


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_every_case_and_a_model_of_each_kind_have_the_same_bits(layer):
    if layer == "omp":
        needs_openmp()
    with ThreadPoolExecutor() as pool:  # compiling takes long
        halves = pool.map(lambda share: run(EVERYTHING, share, NUMBA_THREADING_LAYER=layer), "01")
    assert list(halves) == [[f"{layer} True [] 1"]] * 2


BOTH_FORMS = """
import numpy as np
import fastattn
query = np.random.default_rng(0).standard_normal((1, 40, 2, 16)).astype(np.float32)
expected = fastattn.attention(query, query, query)
fastattn.set_threading("numba")
print(np.array_equal(fastattn.attention(query, query, query), expected))
"""
PRODUCT = """
import os, signal, threading
import numba
import numpy as np
import fastattn
from fastattn.ops import cpu as operations
from fastattn.runtime.threads import setting
x = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
packed = operations.pack_linear(x[:200])
"""
# Set by the variable; no thread of the pool is started.
COUNTED = """
with fastattn.use_threads(1):
    inside = numba.get_num_threads(), operations.current_threads()
    expected = operations.linear(x, packed)
with fastattn.use_threads(99):
    most = numba.get_num_threads(), operations.current_threads()
numba.set_num_threads(1)  # the program's own choice is the default
own = operations.current_threads()
with fastattn.use_threads(2):
    operations.linear(x, packed)
print(inside, most, own, numba.get_num_threads(), threading.active_count())
"""
# The workqueue ends a process that two threads enter at once.
AT_ONCE = """
right = []
def work():
    for _ in range(50):
        with operations.use_threads(2):
            right.append(np.array_equal(operations.linear(x, packed), expected))
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(len(right), all(right))
"""
FORKED = """
assert np.array_equal(operations.linear(x, packed), expected) and setting.by_numba
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(np.array_equal(operations.linear(x, packed), expected), setting.by_numba, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], np.array_equal(operations.linear(x, packed), expected), setting.by_numba)
"""


@pytest.mark.slow
def test_both_forms_of_a_kernel_in_one_process_call_their_own_helpers():
    """They have the same names; whose arguments LLVM changed in one form crashed the other, also out of the cache."""
    for _ in range(2):
        assert run(BOTH_FORMS) == ["True"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere OpenMP lives on in a forked child")
@pytest.mark.parametrize(
    "layer", ["workqueue", *(pytest.param(name, marks=pytest.mark.slow) for name in ("omp", "default"))]
)
def test_numbas_threads_are_counted_as_numba_does_entered_at_once_and_left_to_a_child(layer):
    """A child that was forked after OpenMP ran has the pool."""
    if layer == "omp":
        needs_openmp()
    lines = run(PRODUCT + COUNTED + AT_ONCE + FORKED, FASTATTN_THREADING="numba", NUMBA_THREADING_LAYER=layer)
    assert lines[:2] == ["(1, 1) (2, 2) 1 1 1", "200 True"]
    assert lines[2] in {"workqueue": ["True True"], "omp": ["True False"]}.get(layer, ["True True", "True False"])
    assert lines[3] == "0 True True"


def test_another_name_of_threads_is_refused():
    with pytest.raises(InputError, match="threading should be 'pool' or 'numba', is 'openmp'"):
        fastattn.set_threading("openmp")


def test_a_number_of_threads_that_is_none():
    for count in (0, -1, 1.5, True, "2"):
        with pytest.raises(InputError, match="threads must be"):
            fastattn.use_threads(count).__enter__()
        with pytest.raises(InputError, match="threads must be"):
            fastattn.attention(QUERY, QUERY, QUERY, threads=count)
    assert operations.current_threads() == operations.thread_limit()


def test_threads_of_attention_and_around_it(monkeypatch):
    seen = []

    real = operations.strided_attention

    def strided_attention(*arguments, **options):
        seen.append(operations.current_threads())
        return real(*arguments, **options)

    monkeypatch.setattr(operations, "strided_attention", strided_attention)
    expected = fastattn.attention(QUERY, QUERY, QUERY)
    one = fastattn.attention(QUERY, QUERY, QUERY, threads=1)
    with fastattn.use_threads(1):
        around = fastattn.attention(QUERY, QUERY, QUERY)
        inner = fastattn.attention(QUERY, QUERY, QUERY, threads=10_000)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(operations.current_threads()))
        thread.start()
        thread.join()
    limit = operations.thread_limit()
    assert seen == [limit, 1, 1, limit] and elsewhere == [limit]
    for other in (one, around, inner):
        np.testing.assert_array_equal(other, expected)
