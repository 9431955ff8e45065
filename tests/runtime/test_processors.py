"""One processor, two, three and 64, as the system would tell: as many threads work, and the bits are the same."""

import json

import pytest

from tests.children import run_child

CHILD = """
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
    *counts, found = json.loads(run_child(CHILD, str(processors), NUMBA_NUM_THREADS=None))
    return counts, found


@pytest.fixture(scope="module")
def of_one_processor() -> dict[str, str]:
    (limit, helpers, batches, workers), found = results(1)
    assert (limit, helpers, batches, workers) == (1, 0, 1, 1)
    return found


@pytest.mark.parametrize("processors", [2, 3, 64])
def test_as_many_threads_as_processors_and_the_same_bits(of_one_processor: dict[str, str], processors: int) -> None:
    (limit, helpers, batches, workers), found = results(processors)
    assert (limit, helpers, workers) == (processors, processors - 1, processors)
    assert batches >= processors
    assert {name for name in found if found[name] != of_one_processor[name]} == set()
