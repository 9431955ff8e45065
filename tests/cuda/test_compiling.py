"""Each kernel of each operation becomes code of cards; what ptxas says of it is bounded.

The folder that the variable FASTATTN_PROVEN names keeps what was proven: the same sources, compiled by the same
packages, are not proven again.
"""

import hashlib
import os
from collections import defaultdict
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as api
from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core._utils.cuda_utils import CUDAError
from numba.cuda.core.errors import NumbaPerformanceWarning
from numba.cuda.cudadrv.devicearray import DeviceNDArray
from numba.cuda.cudadrv.driver import AutoFreePointer, CudaAPIError, LinkerError
from numba.cuda.cudadrv.error import NvvmSupportError
from numba.cuda.dispatcher import CUDACache

from bench.card_kernels import ARCHITECTURES, compiling, every_call
from fastattn.arguments.attention import Heads, KeyMask, ScoreTerms, SoftmaxOutputs, StridedArrays
from fastattn.errors import FastattnError, InputError
from fastattn.ops import cuda
from fastattn.ops.cuda import card, launching, matmul, norm, on_arrays
from fastattn.ops.cuda.attention import KernelVariant, make_attend
from tests import ROOT

IN_REGISTERS = "attention", "matmul", "project"  # files whose kernels keep what they sum in registers
SOURCES = (
    "fastattn/arguments/*.py",
    "fastattn/ops/*.py",
    "fastattn/ops/cuda/*.py",
    "bench/operations/*.py",
    "bench/card_kernels.py",
)
COMPILERS = "numba", "llvmlite", "cuda", "nvidia"  # what their packages' names begin with


def proof_of(architecture: tuple[int, int]) -> Path | None:
    """The file that is there once all is proven of an architecture; None: nothing is kept."""
    folder = os.environ.get("FASTATTN_PROVEN")
    sources = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    packages = sorted(f"{one.name} {one.version}" for one in distributions() if one.name.startswith(COMPILERS))
    digest = hashlib.sha256(repr((architecture, packages)).encode())
    for path in (*sources, Path(__file__)):
        digest.update(path.read_bytes())
    return Path(folder, digest.hexdigest()) if folder else None


@pytest.mark.parametrize(
    "architecture",
    [pytest.param(one, marks=[pytest.mark.slow] * (one != ARCHITECTURES[0])) for one in ARCHITECTURES],
    ids=lambda pair: "sm_{}{}".format(*pair),
)
def test_kernels_are_of_float32_in_registers_and_fit_a_multiprocessor(architecture: tuple[int, int]) -> None:
    proof = proof_of(architecture)
    if proof is not None and proof.exists():
        pytest.skip(f"proven before, of these sources and compilers: {proof}")
    with compiling([architecture]) as found:
        for call in every_call(cuda):
            call()
    compiled = list(found.values())
    assert {one.name for one in compiled if one.float64} == set()
    assert {one.name for one in compiled if not one.laid_out} == set()
    inner = [one for one in compiled if one.name.startswith(IN_REGISTERS)]
    assert inner and {one.name: one for one in inner if one.spills or one.stack} == {}
    assert {one.name: one for one in compiled if one.shared > 48 << 10 or one.occupancy < 0.125} == {}
    if proof is not None:
        proof.parent.mkdir(parents=True, exist_ok=True)
        proof.touch()


def test_a_kernel_is_found_again_by_its_constants() -> None:
    codegen, make = SimpleNamespace(magic_tuple=tuple), matmul._linear_kernel.__wrapped__
    kernels = [make("bfloat16", few, "none") for few in (False, False, True)]
    keys = [kernel._cache._index_key("types", codegen) for kernel in kernels]
    assert keys[0] == keys[1] != keys[2]
    assert len({kernel._cache._cache_path for kernel in kernels}) == 1


def test_kernels_of_users_functions_are_not_kept() -> None:
    variant = KernelVariant(4)
    assert isinstance(make_attend(variant)._cache, CUDACache)
    with_function = variant._replace(score_mod=matmul.device(lambda score, b, h, t, s: score))
    assert not isinstance(make_attend(with_function)._cache, CUDACache)


def test_a_launch_of_few_blocks_warns_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's setting is as it was, for kernels of the caller's own."""
    launched: list[tuple[Any, ...]] = []

    class Kernel:
        def __getitem__(self, shape: tuple[int, int]) -> Any:
            norm._normalize[shape]
            return lambda *arguments: launched.append((shape, *arguments))

    monkeypatch.setattr(launching, "remember", lambda *arguments: None)  # of what Numba has compiled
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
        cuda.strided_attention(arrays, Heads(2, 2, 4), KeyMask(), ScoreTerms(function=function), SoftmaxOutputs())


def test_memory_of_arrays_that_are_gone_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while a view is there: no two arrays have the same numbers."""
    taken: list[Any] = []

    def memalloc(size: int) -> Any:
        taken.append(AutoFreePointer(context, api.CUdeviceptr(len(taken) + 1 << 20), size, finalizer=lambda: None))
        return taken[-1].own()

    context = type("Context", (), {"memalloc": staticmethod(memalloc)})()
    monkeypatch.setattr(card.cuda, "current_context", lambda: context)
    monkeypatch.setattr(card, "_spare_blocks", defaultdict(list))

    def place(array: Any) -> int:
        return int(array.gpu_data.device_pointer)

    one, other = card.empty((3, 4), np.float32), card.empty((12,), np.int32)
    first, view = place(one), one.reshape(12).view(np.uint32)
    del one
    assert len({first, place(view), place(other), place(card.empty((2, 2), np.float32))}) == 3
    assert place(view) == first
    del view
    assert {place(card.empty((5,), np.int64)) for _ in range(3)} == {first}
    assert place(card.empty((129,), np.float32)) == 4 << 20  # 1,024 bytes, of which none is spare
    assert [one.size for one in taken] == [512, 512, 512, 1024]


def test_arguments_are_packed_as_types_have_them() -> None:
    array = DeviceNDArray((2, 3), (12, 4), np.float32, gpu_data=AutoFreePointer(None, api.CUdeviceptr(64), 24))
    words = launching._words((array, (7, True)), [])
    assert words == [0, 0, 6, 4, 64, 2, 3, 12, 4, 7, True]
    kinds = [launching._fingerprint(one) for one in (array, array.view(np.int32), 7, 7.0)]
    assert len(set(kinds)) == 4
