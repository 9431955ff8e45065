"""Whole models in processes of their own: any number of threads, the same bits."""

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
        expected[precision, beam] = translator.translate_tokens(sources, beam_size=beam)
wrong = []

def compare(precision, threads, seed, beam):
    chosen = random.Random(seed).sample(range(len(sources)), random.Random(seed).choice((1, 3, 17, 40)))
    translator = Translator.from_checkpoint(checkpoint, precision, threads)
    found = translator.translate_tokens([sources[i] for i in chosen], beam_size=beam)
    if found != [expected[precision, beam][i] for i in chosen]:
        wrong.append((precision, threads, seed, beam))

for precision in PRECISIONS:
    for threads in (1, 2, 4):
        for seed in range(3):
            compare(precision, threads, seed, 1 + 2 * (seed % 2))
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
