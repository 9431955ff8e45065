"""A child forked while other threads load, translate and encode can do all of that itself, and never waits for them."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

FORKS = """
import os, random, signal, sys, threading, time, warnings
import numpy as np
from tests.models.tiny_models import random_checkpoint
from fastattn import Translator, runtime

warnings.simplefilter("ignore")  # from 3.12 on Python warns of every fork beside threads
count, stopping = int(sys.argv[1]), False
sources = [[f"\\u2581w{(n * m) % 11}" for m in range(1, 6)] for n in range(30)]

def make(seed):
    return Translator.from_checkpoint(random_checkpoint(seed=seed), threads=2)

translator = make(5)
expected = translator.translate_tokens(sources, beam_size=2, max_decoding_length=4)

def load():
    while not stopping:
        translator.translate_tokens(sources, beam_size=2, max_decoding_length=4)
        make(random.randrange(99))
        runtime.jit._cache_folder.cache_clear()

threads = [threading.Thread(target=load, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
wrong = 0
for number in range(count):
    time.sleep(random.random() / 200)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for ever is ended by it
        found = make(5).translate_tokens(sources, beam_size=2, max_decoding_length=4)
        os._exit(0 if found == expected else 1)
    wrong += os.waitpid(child, 0)[1] != 0
stopping = True
for thread in threads:
    thread.join()
print(count, wrong)
"""


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_children_forked_under_load(count: int) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", FORKS, str(count)],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.split() == [str(count), "0"], completed.stderr


def test_nothing_uses_the_cached_property_with_a_lock() -> None:
    files = [path for room in ("fastattn", "weights", "cli") for path in (ROOT / room).rglob("*.py")]
    assert [path.name for path in files if "import cached_property" in path.read_text("utf-8")] == []
