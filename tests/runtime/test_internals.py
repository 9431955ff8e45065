"""A Numba whose private classes are others: kernels run by its public interface alone, with one warning."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

CHILD = """
import sys, warnings
import numpy as np
import numba
from numba.core import codegen

exec(sys.argv[1])
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
told = [str(warning.message) for warning in caught]
hits = sum(norm._normalise.plain.stats.cache_hits.values()) if setting.forced else -1
print(y.tobytes().hex(), z.tobytes().hex())
print(hits)
for line in told:
    print(line)
"""
CHANGES = {
    "nothing": "",
    "a method has another parameter": (
        "real = codegen.CPUCodeLibrary._optimize_functions\n"
        "codegen.CPUCodeLibrary._optimize_functions = lambda self, module, more=0: real(self, module)"
    ),
    "a class is gone": "codegen.JITLibrary = codegen.JITCodeLibrary; del codegen.JITCodeLibrary",
    "a module is elsewhere": "del numba.core.codegen; sys.modules['numba.core.codegen'] = None",
    "a module is made otherwise": (
        "real = codegen.CPUCodegen._create_empty_module\n"
        "codegen.CPUCodegen._create_empty_module = lambda self, *given: real(self, *given)"
    ),
}


def run(change: str, cache: str) -> list[str]:
    # Numba's own cache lies beside the sources, or where this variable says
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", CHILD, CHANGES[change]]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("numba"))


@pytest.fixture(scope="module")
def known(cache: str) -> list[str]:
    return run("nothing", cache)


def test_this_numba_is_known(known: list[str]) -> None:
    """Without a warning; what the others are held against."""
    assert known[1:] == ["-1"]


@pytest.mark.parametrize("change", list(CHANGES)[1:])
def test_another_numba_runs_kernels_by_itself(cache: str, known: list[str], change: str) -> None:
    expected, _ = known
    run(change, cache)
    found, hits, *told = run(change, cache)
    assert found == expected
    assert len(told) == 1 and told[0].startswith("Numba ") and "is not as fastattn knows it (" in told[0]
    assert told[0].endswith("): kernels are compiled, kept and shared among threads by Numba itself")
    assert hits == "1", "from Numba's own cache"
