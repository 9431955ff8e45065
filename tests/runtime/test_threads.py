"""Whole models in processes of their own: any number of threads, the same bits."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.children import run_child

CHILD = """
import random
import threading
import numpy as np
from tests.models.tiny_models import random_checkpoint
import fastattn
from fastattn.ops import cpu as operations
from fastattn.translation.translator import Translator

checkpoint = random_checkpoint(seed=5)
rng = random.Random(1)
sources = [[f"\\u2581w{rng.randrange(16)}" for _ in range(rng.randint(1, 30))] for _ in range(40)]
PRECISIONS = ("float32", "bfloat16", "int8")
expected = {}
for precision in PRECISIONS:
    translator = Translator.from_checkpoint(checkpoint, precision, threads=1)
    for beam in (1, 3):
        expected[precision, beam] = translator.translate_tokens(sources, beam_size=beam, max_decoding_length=12)
wrong = []

def compare(precision, threads, seed, beam):
    chosen = random.Random(seed).sample(range(len(sources)), random.Random(seed).choice((1, 3, 17, 40)))
    translator = Translator.from_checkpoint(checkpoint, precision, threads)
    found = translator.translate_tokens([sources[i] for i in chosen], beam_size=beam, max_decoding_length=12)
    if found != [expected[precision, beam][i] for i in chosen]:
        wrong.append((precision, threads, seed, beam))

for precision in PRECISIONS:
    for seed, threads in enumerate((2, 4)):
        compare(precision, threads, seed, 1 + 2 * seed)
workers = [
    threading.Thread(target=compare, args=(PRECISIONS[n % 3], 1 + n % 4, 10 + n, 1 + 2 * (n % 2))) for n in range(12)
]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
with operations.use_threads(2):
    operations.linear(np.ones((50, 8), np.float32), operations.pack_linear(np.ones((40, 8), np.float32)))
print(operations.thread_limit(), wrong, len({str(found) for found in expected.values()}))
"""


def test_four_threads_and_twelve_callers_give_the_same_bits():
    printed = run_child(CHILD, NUMBA_NUM_THREADS="4")
    assert printed.strip() == "4 [] 6", "six results that differ, each whatever the threads"


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


def limited(*command: str) -> list[str]:
    """The command as a user who may have one thread in all."""
    return ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", "--nproc=1", *command]


def test_the_command_with_no_thread_to_be_had() -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root on Linux, who may run a command as another user")
    python = [sys.executable, "-m", "fastattn.cli"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    if subprocess.run(limited(sys.executable, "-c", "import numpy"), env=environment, capture_output=True).returncode:
        pytest.skip("another user cannot run this Python")
    del environment["OPENBLAS_NUM_THREADS"]
    done = subprocess.run(limited(*python, "inspect"), env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        limited(*python, "translate", "-m", "/nowhere", "x"), env=environment, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


PROCESSORS = """
import hashlib, json, os, random, sys, threading

processors = int(sys.argv[1])
os.cpu_count = lambda: processors
os.sched_getaffinity = lambda process: set(range(processors))

import numpy as np
from tests.kernels.cases import CASES
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.models.tiny_models import random_checkpoint
from fastattn import Encoder, Translator
from fastattn.ops import cpu as operations
from fastattn.scheduling.state import SchedulerState
from fastattn.spec.checkpoint import Checkpoint

found = {}

def keep(name, *arrays):
    found[name] = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

for case in CASES:
    if hasattr(operations, case.operation):
        keep(case.name, *case.call(operations, case.arrays))
rng = np.random.default_rng(0)
x, weight = rng.standard_normal((701, 48), np.float32), rng.standard_normal((3600, 48), np.float32)
for precision in ("float32", "bfloat16", "int8"):
    packed = operations.pack_linear(weight, None, precision)
    for rows in (1, 5, 701):
        keep(f"linear of {rows} in {precision}", operations.linear(x[:rows], packed))
        keep(f"top 5 of {rows} in {precision}", *operations.project_top_k(x[:rows], packed, 5))

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
keep("vectors of many", encoder.encode(texts))
keep("vectors of few", encoder.encode(texts[:3]))
translator = Translator.from_checkpoint(random_checkpoint(seed=5), "float32")
for count, beam in ((300, 1), (3, 1), (7, 3)):
    translated = translator.translate_tokens(sources[:count], beam_size=beam, max_decoding_length=12)
    found[f"translations of {count}, beam {beam}"] = repr(translated)
schedulers = encoder._scheduler, translator._service._scheduler
most_batches, most_workers = (most_slots[scheduler._state] for scheduler in schedulers)
helpers = sum(thread.name.startswith("fastattn") for thread in threading.enumerate())
json.dump([operations.thread_limit(), helpers, most_batches, most_workers, found], sys.stdout)
"""


def results(processors: int) -> tuple[list[int], dict[str, str]]:
    """(limit, helpers, batches of vectors, workers of translations), and a digest of each result."""
    *counts, found = json.loads(run_child(PROCESSORS, str(processors), NUMBA_NUM_THREADS=None))
    return counts, found


@pytest.fixture(scope="module")
def of_one_processor() -> dict[str, str]:
    (limit, helpers, batches, workers), found = results(1)
    assert (limit, helpers, batches, workers) == (1, 0, 1, 1)
    return found


@pytest.mark.parametrize("processors", [3, 64])
def test_as_many_threads_as_processors_and_the_same_bits(of_one_processor: dict[str, str], processors: int) -> None:
    (limit, helpers, batches, workers), found = results(processors)
    assert (limit, helpers, workers) == (processors, processors - 1, processors)
    assert batches >= processors
    assert {name for name in found if found[name] != of_one_processor[name]} == set()
