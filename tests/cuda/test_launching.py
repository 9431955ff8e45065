"""What numba-cuda itself does at a launch, as far as it does that without a card: the simulator does none of it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core._utils.cuda_utils import CUDAError
from numba.cuda.core.errors import NumbaPerformanceWarning
from numba.cuda.cudadrv.driver import CudaAPIError, LinkerError
from numba.cuda.cudadrv.error import NvvmSupportError

from bench.card_kernels import ARCHITECTURES, compiling
from fastattn.errors import FastattnError, InputError
from fastattn.ops import cuda
from fastattn.ops.attention import Heads, ScoreTerms, SoftmaxOutputs, StridedArrays, Visible
from fastattn.ops.cuda import card, norm, on_arrays


def test_a_launch_of_few_blocks_warns_nobody() -> None:
    """Numba's setting is as it was, for kernels of the caller's own."""
    launched: list[tuple[Any, ...]] = []

    class Kernel:
        def __getitem__(self, shape: tuple[int, int]) -> Any:
            norm._normalize[shape]
            return lambda *arguments: launched.append((shape, *arguments))

    card.launch(Kernel(), 1, "x")
    assert launched == [((1, card.THREADS), "x")]
    with pytest.warns(NumbaPerformanceWarning, match="Grid size 2 "):
        norm._normalize[2, card.THREADS]


@pytest.mark.parametrize(
    "error", [CUDAError, CudaAPIError, LinkerError, nvJitLinkError, NvvmSupportError], ids=lambda error: error.__name__
)
def test_what_launches_and_compilers_raise_is_one_line(error: Any) -> None:
    given = (
        (719, "launch\nfailed") if error is CudaAPIError else (1,) if error is nvJitLinkError else ("launch\nfailed",)
    )

    def fail() -> None:
        raise error(*given)

    with pytest.raises(FastattnError, match="^the card failed: [^\n]+$"):
        card._guarded(fail)
    with pytest.raises(ValueError, match="^ours$"):
        card._guarded(lambda: (_ for _ in ()).throw(ValueError("ours")))


def test_a_function_that_cannot_be_compiled() -> None:
    wrong = on_arrays._on_device(lambda score, b, h, t, s: score.missing)
    with compiling([ARCHITECTURES[0]]), pytest.raises(InputError, match="^a function of scores or masks cannot be co"):
        x = np.zeros((1, 3, 2, 4), np.float32)
        arrays = StridedArrays(x, x, x, x, (1, 2, 3, 3), (np.array([0, 3]), np.array([0, 3])))
        function = SimpleNamespace(device=wrong)
        cuda.strided_attention(arrays, Heads(2, 2, 4), Visible(), ScoreTerms(function=function), SoftmaxOutputs())
