"""Tests of device "cuda" on Numba's simulator: `make test-cuda`, an environment of its own with numba-cuda."""

import os
import sys
from collections.abc import Iterator

import pytest

SIMULATOR = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
collect_ignore_glob = [] if SIMULATOR else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def turns() -> Iterator[None]:
    """The simulator's threads take turns, each until its next barrier: as it is, they fight for the interpreter."""
    from tests.cuda.turns import PLAIN, BlockOfTurns, call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("numba.cuda.simulator.kernel.BlockManager", BlockOfTurns)
        patch.setattr("numba.cuda.simulator.kernel.FakeCUDAKernel.__call__", call)
        for name in [name for name in sys.modules if name.startswith("fastattn.ops.cuda.")]:
            for kind in PLAIN.keys() & vars(sys.modules[name]).keys():
                patch.setitem(vars(sys.modules[name]), kind, PLAIN[kind])
        yield
