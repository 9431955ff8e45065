"""Tests of device "cuda": `make test-cuda`, an environment of its own with numba-cuda.

With NUMBA_ENABLE_CUDASIM=1 they run on Numba's simulator, but for those of what the simulator is in place of.
"""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

SIMULATOR = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
HERE = os.path.dirname(__file__)
collect_ignore = [
    name
    for name in os.listdir(HERE)
    if name.startswith("test_") and (find_spec("numba_cuda") is None or (name == "test_compiling.py") == SIMULATOR)
]


@pytest.fixture(scope="session", autouse=SIMULATOR)
def turns() -> Iterator[None]:
    """The simulator's threads take turns, each until its next barrier: as it is, they fight for the interpreter."""
    from fastattn.ops.cuda import card
    from tests.cuda import elsewhere
    from tests.cuda.turns import PLAIN, BlockOfTurns, call, refusing_arrays_of_the_host

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card, "_start", refusing_arrays_of_the_host(card._start))
        patch.setattr("numba.cuda.simulator.kernel.BlockManager", BlockOfTurns)
        patch.setattr("numba.cuda.simulator.kernel.FakeCUDAKernel.__call__", call)
        patch.setattr("numba.cuda.from_cuda_array_interface", elsewhere.borrow, raising=False)
        patch.setattr(elsewhere.FakeCUDAArray, "__cuda_array_interface__", elsewhere.interface, raising=False)
        for name in [name for name in sys.modules if name.startswith("fastattn.ops.cuda.")]:
            for kind in PLAIN.keys() & vars(sys.modules[name]).keys():
                patch.setitem(vars(sys.modules[name]), kind, PLAIN[kind])
        yield
