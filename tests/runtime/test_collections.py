"""While Numba compiles, nobody looks for cycles among its objects; afterwards all is as it was."""

import gc

import numpy as np
import pytest
from numba import prange

from fastattn.runtime.handle import Kernel
from fastattn.runtime.jit import kernel


def twice(x):
    for i in prange(0, x.shape[0]):
        x[i] *= 2


@pytest.mark.parametrize("on", [True, False])
def test_collections_rest_while_a_kernel_is_compiled_also_where_that_fails(on, monkeypatch) -> None:
    seen = []

    def compile_none(*arguments):
        seen.append(gc.isenabled())
        raise KeyboardInterrupt

    monkeypatch.setattr(Kernel, "_compile", compile_none)
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel(twice)(np.ones(3))
        assert seen == [False] and gc.isenabled() is on
    finally:
        gc.enable()
