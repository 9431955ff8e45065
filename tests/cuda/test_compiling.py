"""Each kernel of each operation becomes code of two generations of cards; what ptxas says of it is bounded."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core._utils.cuda_utils import CUDAError
from numba.cuda.core.errors import NumbaPerformanceWarning
from numba.cuda.cudadrv.driver import CudaAPIError, LinkerError
from numba.cuda.cudadrv.error import NvvmSupportError
from numba.cuda.dispatcher import CUDACache

from bench.card_kernels import ARCHITECTURES, Compiled, compiling, every_call
from fastattn.errors import FastattnError, InputError
from fastattn.ops import cuda
from fastattn.ops.attention import Heads, ScoreTerms, SoftmaxOutputs, StridedArrays, Visible
from fastattn.ops.cuda import attend, card, matmul, norm, on_arrays

IN_REGISTERS = "attend", "attention", "matmul", "project"  # files whose kernels keep what they sum in registers


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda pair: "sm_{}{}".format(*pair))
def compiled(request: pytest.FixtureRequest) -> Iterator[list[Compiled]]:
    with compiling([request.param]) as found:
        for call in every_call(cuda):
            call()
        yield list(found.values())


def test_no_kernel_computes_in_float64(compiled: list[Compiled]) -> None:
    assert {one.name for one in compiled if one.float64} == set()


def test_what_is_summed_stays_in_registers(compiled: list[Compiled]) -> None:
    inner = [one for one in compiled if one.name.startswith(IN_REGISTERS)]
    assert inner
    assert {one.name: one for one in inner if one.spills or one.stack} == {}


def test_blocks_of_each_kernel_fit_a_multiprocessor(compiled: list[Compiled]) -> None:
    assert {one.name: one for one in compiled if one.shared > 48 << 10 or one.occupancy < 0.125} == {}


def test_a_kernel_is_found_again_by_its_constants() -> None:
    codegen, make = SimpleNamespace(magic_tuple=tuple), matmul._linear_kernel.__wrapped__
    kernels = [make("bfloat16", few, "none") for few in (False, False, True)]
    keys = [kernel._cache._index_key("types", codegen) for kernel in kernels]
    assert keys[0] == keys[1] != keys[2]
    assert len({kernel._cache._cache_path for kernel in kernels}) == 1


def test_a_launch_of_few_blocks_warns_nobody() -> None:
    """Numba's setting is as it was, for kernels of the caller's own."""
    launched: list[tuple[Any, ...]] = []

    class Kernel:
        def __getitem__(self, shape: tuple[int, int]) -> Any:
            norm._softmax[shape]
            return lambda *arguments: launched.append((shape, *arguments))

    card.launch(Kernel(), 1, "x")
    assert launched == [((1, card.THREADS), "x")]
    with pytest.warns(NumbaPerformanceWarning, match="Grid size 2 "):
        norm._softmax[2, card.THREADS]


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


def test_kernels_of_users_functions_are_not_kept() -> None:
    form = attend.Form(4)
    assert isinstance(attend.make_attend(form)._cache, CUDACache)
    with_function = form._replace(score_mod=matmul.device(lambda score, b, h, t, s: score))
    assert not isinstance(attend.make_attend(with_function)._cache, CUDACache)
