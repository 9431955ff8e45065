"""Threads, forks and the cache of compiled code, each in real processes."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fastattn
from tests.children import run_child, run_python

PACKAGE = Path(fastattn.__file__).parent

NORM = """
import sys
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.runtime.compiling import on_compile
on_compile(lambda name: print("compiled", name))
x = np.arange(8, dtype=np.float32).reshape(1, 8)
result = operations.layer_norm(x, np.ones(8, np.float32), None, 1e-5)[0, 0]
print("compiler loaded", "numba" in sys.modules)
print("result", result)
"""


def test_compiled_code_is_found_again_whatever_the_mtime_and_lost_when_a_source_changes(tmp_path):
    """By three processes that begin at once one compiles it."""
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "fastattn", ignore=shutil.ignore_patterns("__pycache__"))
    cache = {"FASTATTN_CACHE": str(tmp_path / "cache")}
    with ThreadPoolExecutor(3) as pool:
        outputs = list(pool.map(lambda code: run_child(code, cwd=copy, **cache), [NORM] * 3))
    (first,) = {output.splitlines()[-1] for output in outputs}
    assert sum("compiled norm._normalise" in output for output in outputs) == 1 or sys.platform == "win32"
    assert any("compiler loaded True" in output for output in outputs)
    for path in copy.rglob("*.py"):
        os.utime(path, (1, 1))
    again = run_child(NORM, cwd=copy, **cache)
    assert again.splitlines() == ["compiler loaded False", first]  # which alone would take longer than the rest
    # a constant that the kernel inlines from another file
    emit = copy / "fastattn" / "simd" / "emit.py"
    emit.write_text(emit.read_text().replace("return self.builder.fsub(a, b,", "return self.builder.fadd(a, b,"))
    changed = run_child(NORM, cwd=copy, **cache)
    assert "compiled norm._normalise" in changed and changed.splitlines()[-1] != first


NOT_KEPT = """
import contextlib
import tests.runtime.stub_kernels
from unittest import mock
import numpy as np
from fastattn.ops import cpu as operations
from fastattn.cli.entry import commands
from fastattn.cli.printing import Compilation, Progress
Compilation(Progress())
ones = np.ones((3, 8), np.float32)
operations.layer_norm(ones, ones[0], None, 1e-5)
operations.pack_linear(ones)
classes = "encoders.encoder.Encoder", "translation.translator.Translator", "encoders.sparse_encoder.SparseEncoder"
classes += "encoders.masked_language_model.MaskedLanguageModel", "generation.generator.Generator"
with contextlib.ExitStack() as stack:
    mocked = "cli.warmup._search", "cli.warmup._convolve"
    for name in (*(f"{name}.from_checkpoint" for name in classes), *mocked):
        stack.enter_context(mock.patch(f"fastattn.{name}"))
    commands.main(["warmup"])
"""


def test_that_kernels_cannot_be_kept_is_told_once_and_fails_a_warmup_alone(tmp_path):
    cache = tmp_path / "file"
    cache.write_text("")
    done = run_python(NOT_KEPT, FASTATTN_CACHE=str(cache), encoding="utf-8")
    lines = [line for line in done.stderr.splitlines() if "compiling kernels" not in line]
    assert done.returncode == 1 and done.stdout == "" and len(lines) == 2, done.stderr
    assert lines[0].startswith(f"fastattn: cannot keep kernels in the cache {cache}: ")
    assert lines[0].endswith("; FASTATTN_CACHE names another folder")
    assert lines[1] == "fastattn: no kernel was kept: the next run will compile again"


WARM = """
import contextlib
from fastattn.cli.entry import commands
from fastattn.runtime.compiling import on_compile
from fastattn.translation.translator import Translator
from tests.generation.language_models import make
from tests.models.recurrent_varieties import RECURRENT, recurrent_checkpoint
from tests.models.tiny_models import random_checkpoint
with contextlib.suppress(SystemExit):
    commands.main(["warmup"])
on_compile(lambda name: print("compiled", name))
for checkpoint in (random_checkpoint(), *map(recurrent_checkpoint, RECURRENT)):
    for precision in ("float32", "bfloat16", "int8"):
        translator = Translator.from_checkpoint(checkpoint, precision)
        for beam_size in (1, 2):
            translator.translate(["w1", "w2 w3"] * 20, beam_size=beam_size, max_decoding_length=8)
for precision in ("float32", "bfloat16", "int8"):
    generator = make(precision)
    for options in ({}, {"beam_size": 2}, {"sampling_topk": 3}):
        generator.generate(["the end", "the"], max_new_tokens=8, **options)
print("translated")
"""


@pytest.mark.slow
def test_after_a_warmup_translations_compile_nothing(tmp_path):
    done = run_python(WARM, FASTATTN_CACHE=str(tmp_path), encoding="utf-8")
    assert done.returncode == 0, done.stderr
    warmed, *compiled, last = done.stdout.splitlines()
    assert "kernels compiled in" in warmed and last == "translated"
    assert compiled == []


# A product on one thread, then: by eight Python threads at once; by helpers that are awake, asleep, or on the way from
# one to the other; on every number of threads; in a child that is forked.
THREADS = """
import os, threading, time
import numpy as np
from fastattn.ops import cpu as operations
rng = np.random.default_rng(0)
x = rng.standard_normal((301, 64)).astype(np.float32)
packed = operations.pack_linear(rng.standard_normal((1200, 64)).astype(np.float32))

def products():
    return operations.linear(x, packed, "gelu"), *operations.project_top_k(x, packed, 5)

def is_right():
    return all(map(np.array_equal, products(), expected))

def helpers():
    return sum(thread.name.startswith("fastattn") for thread in threading.enumerate())

with operations.use_threads(1):
    expected = products()
wrong = []

def work():
    for _ in range(10):
        with operations.use_threads(4):
            wrong.extend([1] * (not is_right()))

threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print("at once", len(wrong), helpers())
with operations.use_threads(4):
    for pause in [0, 1e-6, 2e-5, 5e-5, 1e-4, 2e-4, 1e-3] * 30:
        time.sleep(pause)
        assert np.array_equal(operations.linear(x, packed, "gelu"), expected[0])
before = time.process_time()
time.sleep(0.5)
print("idle", time.process_time() - before < 0.1)
for count in (1, 2, 3):
    with operations.use_threads(count):
        assert is_right()
child = os.fork()
if child == 0:
    right = is_right()
    with operations.use_threads(2):
        right = right and is_right()
    print("child", right, helpers(), flush=True)
    os._exit(0)
print("parent", os.waitpid(child, 0)[1], is_right(), operations.thread_limit())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_any_threads_at_once_with_helpers_awake_or_asleep_and_in_a_child_give_the_same_bits():
    lines = run_child(THREADS, NUMBA_NUM_THREADS="4").splitlines()
    assert lines == ["at once 0 3", "idle True", "child True 3", "parent 0 True 4"]


ANY_NUMBA = """
import sys, warnings
import numpy as np
import numba

numba.version_info = numba.version_info._replace(short=(0, int(sys.argv[1])))
import fastattn
from fastattn.ops import cpu as operations
from fastattn.kernels import norm
from fastattn.runtime.threads import setting
x = np.arange(640, dtype=np.float32).reshape(40, 16)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        y = operations.layer_norm(x, np.ones(16, np.float32), None, 1e-5)
        z = operations.linear(x, operations.pack_linear(x[:16]), "gelu")
hits = sum(norm._normalise.numba_kernel.stats.cache_hits.values()) if setting.pool_obstacle else -1
print(y.tobytes().hex(), z.tobytes().hex(), hits, *(warning.message for warning in caught), sep="\\n")
"""


@pytest.mark.slow
def test_a_numba_of_another_version_runs_kernels_by_itself(tmp_path):
    """By its public interface alone, with one warning; kept in its own cache, which lies where this variable says."""
    *expected, hits = run_child(ANY_NUMBA, "68").splitlines()
    assert hits == "-1", "this one is known"
    for _ in range(2):
        *found, hits, told = run_child(ANY_NUMBA, "70", NUMBA_CACHE_DIR=str(tmp_path)).splitlines()
    assert found == expected
    assert told.startswith("Numba ") and "is not as fastattn knows it (" in told
    assert told.endswith("): kernels are compiled, kept and shared among threads by Numba itself")
    assert hits == "1", "from Numba's own cache"
