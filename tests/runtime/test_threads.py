"""Whole models for several callers, on as many threads as there are processors, or none; and Numba's threads.

The suite has the layer that Numba brings itself; OpenMP's, and whatever else the machine gives, are slow tests.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastattn
from fastattn import Translator
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.children import run_child
from tests.messages import refused
from tests.models.tiny_models import random_checkpoint


def test_twelve_callers_of_translators_of_several_threads_get_the_same_bits() -> None:
    rng = random.Random(1)
    sources = [[f"▁w{rng.randrange(16)}" for _ in range(rng.randint(1, 30))] for _ in range(40)]
    calls = [(precision, 1 + n % 4, n % 3 + 1) for n, precision in enumerate(["float32", "bfloat16", "int8"] * 4)]
    options = {(precision, threads) for precision, threads, _ in calls} | {(precision, 1) for precision, *_ in calls}
    made = {given: Translator.from_checkpoint(random_checkpoint(seed=5), *given) for given in options}

    def translated(precision: str, threads: int, beam_size: int, first: int = 0) -> list:
        found = made[precision, threads].translate_tokens(
            sources[first : 40 - first], beam_size=beam_size, max_decoding_length=12
        )
        return [(one.hypotheses, one.scores) for one in found]

    expected = {(precision, beam_size): translated(precision, 1, beam_size) for precision, _, beam_size in calls}
    assert len(set(map(str, expected.values()))) == len(expected), "results that differ"
    with ThreadPoolExecutor(12) as pool:
        found = pool.map(lambda n: translated(*calls[n], n), range(12))
    for n, results in enumerate(found):
        precision, _, beam_size = calls[n]
        assert results == expected[precision, beam_size][n : 40 - n], calls[n]


NO_THREADS = """
import threading, warnings
from tests.models.tiny_models import random_checkpoint
from fastattn import Translator

sources = [["\\u2581w1", "\\u2581w2", f"\\u2581w{n % 9}"] for n in range(24)]
expected = Translator.from_checkpoint(random_checkpoint(seed=5), threads=1).translate_tokens(sources)

def refuse(thread):
    raise RuntimeError(reason)

threading.Thread.start = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for reason in ("can't create new thread at interpreter shutdown", *["can't start new thread"] * 2):
        assert Translator.from_checkpoint(random_checkpoint(seed=5), threads=2).translate_tokens(sources) == expected
        print([str(warning.message) for warning in caught])
"""


def test_work_goes_on_without_threads_which_is_told_once() -> None:
    """But not by a process that ends: Python gives a daemon thread none from then on."""
    told = ["work goes on with fewer threads than asked for: can't start new thread"]
    assert run_child(NO_THREADS).splitlines() == ["[]", str(told), str(told)]


def test_the_command_with_no_thread_to_be_had() -> None:
    """As a user who may have one thread in all."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root on Linux, who may run a command as another user")
    limited = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=1", sys.executable]

    def run(*arguments: str, **variables: str) -> tuple[int, int]:
        environment = os.environ | {"NUMBA_NUM_THREADS": "2"} | variables
        done = subprocess.run([*limited, *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, len(done.stderr.splitlines())

    if run("-c", "import numpy", OPENBLAS_NUM_THREADS="1")[0]:
        pytest.skip("another user cannot run this Python")
    assert run("-m", "fastattn.cli", "inspect") == (0, 0)
    assert run("-m", "fastattn.cli", "translate", "-m", "/nowhere", "x") == (3, 1)


PROCESSORS = """
import hashlib, json, os, random, sys, threading

processors = int(sys.argv[1])
os.cpu_count = lambda: processors
os.sched_getaffinity = lambda process: set(range(processors))

import numpy as np
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.models.tiny_models import random_checkpoint
from fastattn import Encoder, Translator
from fastattn.ops import cpu as operations
from fastattn.scheduling.state import SchedulerState
from fastattn.spec.checkpoint import Checkpoint

found = {}

# Enough of both that each of 64 threads has batches, and sentences, of its own.
choose = random.Random(0)
words = "the a cat dog sat ran on under mat log".split()
texts = [" ".join(choose.choices(words, k=choose.randint(1, 60))) for _ in range(1300)]
sources = [[f"\\u2581w{choose.randrange(16)}" for _ in range(choose.randint(1, 12))] for _ in range(300)]
share_threads, most_slots = SchedulerState._share_threads, {}

def counted(self):
    most_slots[self] = max(most_slots.get(self, 0), len(self.slots))
    share_threads(self)

SchedulerState._share_threads = counted
encoder = Encoder.from_checkpoint(Checkpoint(SPEC, TENSORS, TEXT), "float32")
for count in (1300, 3):
    found[f"vectors of {count}"] = hashlib.sha256(encoder.encode(texts[:count]).tobytes()).hexdigest()
translator = Translator.from_checkpoint(random_checkpoint(seed=5), "float32")
for count, beam in ((300, 1), (3, 1), (7, 3)):
    translated = translator.translate_tokens(sources[:count], beam_size=beam, max_decoding_length=12)
    found[f"translations of {count}, beam {beam}"] = repr(translated)
schedulers = encoder._scheduler, translator._service._scheduler
most_batches, most_workers = (most_slots[scheduler._state] for scheduler in schedulers)
helpers = sum(thread.name.startswith("fastattn") for thread in threading.enumerate())
json.dump([operations.thread_limit(), helpers, most_batches, most_workers, found], sys.stdout)
"""


def test_as_many_threads_as_processors_and_the_same_bits() -> None:
    told = {}
    for processors in (1, 64):
        *counts, told[processors] = json.loads(run_child(PROCESSORS, str(processors), NUMBA_NUM_THREADS=None))
        limit, helpers, batches_of_vectors, workers_of_translations = counts
        assert (limit, helpers, workers_of_translations) == (processors, processors - 1, processors)
        assert batches_of_vectors == 1 if processors == 1 else batches_of_vectors >= processors
    assert {name for name in told[1] if told[1][name] != told[64][name]} == set() and told[1].keys() == told[64].keys()


QUERY = np.random.default_rng(0).standard_normal((2, 40, 4, 16)).astype(np.float32)


# Both forms of a kernel in one process have the same names: whose arguments LLVM changed in one form crashed the other,
# also out of the cache. Set by the variable, Numba's layer runs no thread of the pool; the workqueue ends a process
# that two threads enter at once; a child that was forked after OpenMP ran has the pool.
LAYER = """
import os, signal, threading
import numba
import numpy as np
import fastattn
from fastattn.ops import cpu as operations
from fastattn.runtime.threads import setting
x = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
packed = operations.pack_linear(x[:200])
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
right = []

def is_right():
    return np.array_equal(operations.linear(x, packed), expected)

def work():
    for _ in range(50):
        with operations.use_threads(2):
            right.append(is_right())

threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(len(right), all(right))
assert is_right() and setting.by_numba
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(is_right(), setting.by_numba, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], is_right(), setting.by_numba)
fastattn.set_threading("pool")
assert is_right()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere OpenMP lives on in a forked child")
@pytest.mark.parametrize(
    "layer", ["workqueue", *(pytest.param(name, marks=pytest.mark.slow) for name in ("omp", "default"))]
)
def test_numbas_threads_are_counted_as_numba_does_entered_at_once_and_left_to_a_child(layer):
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool", reason="this Numba has no OpenMP layer")
    lines = run_child(LAYER, FASTATTN_THREADING="numba", NUMBA_THREADING_LAYER=layer).splitlines()
    assert lines[:2] == ["(1, 1) (2, 2) 1 1 1", "200 True"]
    assert lines[2] in {"workqueue": ["True True"], "omp": ["True False"]}.get(layer, ["True True", "True False"])
    assert lines[3] == "0 True True"


def test_what_is_no_choice_or_number_of_threads():
    with refused(InputError, "'openmp'"):
        fastattn.set_threading("openmp")
    for count in (0, -1, 1.5, True, "2"):
        with refused(InputError, "threads"):
            fastattn.use_threads(count).__enter__()
        with refused(InputError, "threads"):
            fastattn.attention(QUERY, QUERY, QUERY, threads=count)
    assert operations.current_threads() == operations.thread_limit()


def test_threads_of_attention_and_around_it(monkeypatch):
    seen, elsewhere, attend = [], [], operations.strided_attention

    def counted(*arguments):
        seen.append(operations.current_threads())
        return attend(*arguments)

    monkeypatch.setattr(operations, "strided_attention", counted)
    found = [fastattn.attention(QUERY, QUERY, QUERY, threads=threads) for threads in (None, 1)]
    limit = operations.thread_limit()
    with fastattn.use_threads(1):
        found += [fastattn.attention(QUERY, QUERY, QUERY, threads=threads) for threads in (None, 10_000)]
        thread = threading.Thread(target=lambda: elsewhere.append(operations.current_threads()))
        thread.start()
        thread.join()
    assert seen == [limit, 1, 1, limit] and elsewhere == [limit]
    for one in found:
        np.testing.assert_array_equal(one, found[0])
