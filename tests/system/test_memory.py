"""Memory comes back when an engine is dropped: resident memory of a child process, in which nothing else happens."""

import ctypes
import json
import math
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from fastattn.system.memory import available_memory, release_pages
from fastattn.weights.folder import map_file
from tests.children import run_child
from tests.weights.ctranslate2.writer import (
    random_transformer,
    vocabulary,
    write_config,
    write_model,
    write_vocabularies,
)

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell")

# Engines are made and dropped in turn; what the process holds is sampled before, with and after each. glibc by itself
# keeps up to 64 MB of freed memory for what will be asked for next; a variable makes it keep little.
RESIDENT = """
import gc, json, os, pathlib, sys
from fastattn import Translator
from fastattn.loading import loaded_model

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""
CHILD = """
def use(name):
    engine = Translator(name)
    engine.translate_tokens([["\\u2581w1", "\\u2581w2", "\\u2581w3"]] * 40, max_decoding_length=8)
    return resident()

use(sys.argv[1])  # compiles, imports, and starts what stays: threads, their stacks
gc.collect()
empty, held = [resident()], []
for _ in range(3):
    held.append(use(sys.argv[1]))
    gc.collect()
    empty.append(resident())
print(json.dumps([empty, held]))
"""


def test_a_dropped_translator_gives_its_memory_back(tmp_path: Path) -> None:
    """It takes what its weights take, 40 MB, and leaves at most a fifth of that, and nothing more each time."""
    variables = random_transformer(
        np.random.default_rng(0), width=512, heads=8, inner_width=2048, encoder_layers=1, decoder_layers=1,
        source_vocabulary=4000, target_vocabulary=4000,
    )  # fmt: skip
    write_model(tmp_path, variables)
    write_vocabularies(tmp_path, vocabulary(4000), vocabulary(4000))
    write_config(tmp_path)
    weights = sum(value.nbytes for value in variables.values())
    assert weights > 30e6
    empty, held = json.loads(run_child(RESIDENT + CHILD, str(tmp_path), MALLOC_TRIM_THRESHOLD_="131072"))
    assert max(held) - empty[0] > 0.8 * weights, "the samples do not show the engine"
    assert max(empty[1:]) - empty[0] < 0.2 * weights, (empty, held, weights)
    assert empty[-1] - empty[1] < 0.1 * weights, (empty, held, weights)


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system has no such advice")
def test_pages_of_a_file_are_let_go_and_found_again(tmp_path: Path) -> None:
    """What was written to pages that leave memory is lost; it is not in what is not whole pages, nor elsewhere."""
    page, path = mmap.PAGESIZE, tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (page // 64))
    data = map_file(path)
    data[:] = bytes(len(data))
    release_pages(data[page - 1 : 3 * page + 1])
    found = np.frombuffer(data, np.uint8)
    assert found[page : 3 * page].tobytes() == path.read_bytes()[page : 3 * page]
    assert not found[:page].any() and not found[3 * page :].any()
    release_pages(found[3 * page :].reshape(2, -1)[1:])
    assert not found[3 * page :].any()
    for nothing in (memoryview(b"abc"), np.zeros(9), data[:0]):
        release_pages(nothing)


# Objects lie below one that stays, so that the heap does not shrink by itself.
FREED = """
def load(*given):
    objects = [bytes(1000) for _ in range(40_000)]
    stays.append(bytes(1000))

stays = []
if sys.argv[1] == "load":
    loaded_model.load_or_build = load
    loaded_model.ModelBase(os.getcwd())
else:
    load()
print(resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "malloc_trim"), reason="glibc's")
def test_what_loading_frees_is_the_systems_again() -> None:
    assert int(run_child(RESIDENT + FREED, "control")) - int(run_child(RESIDENT + FREED, "load")) > 20e6


def test_the_memory_that_is_left_is_the_least_of_the_machines_and_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2000 kB\n"}

    def read_text(path: Path) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)
    assert available_memory() == 2000 * 1024
    for limit, used, left in ((9_000_000, 8_900_000, 100_000), (90_000_000, 0, 2_048_000), ("max", 0, 2_048_000)):
        files |= {f"/sys/fs/cgroup/memory.{name}": str(value) for name, value in (("max", limit), ("current", used))}
        assert available_memory() == left
    files.clear()
    assert available_memory() == math.inf
