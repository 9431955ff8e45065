"""Each kernel of each operation becomes code of two generations of cards; what ptxas says of it is bounded."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from numba.cuda.dispatcher import CUDACache

from bench.card_kernels import ARCHITECTURES, Compiled, compiling, every_call
from fastattn.ops import cuda
from fastattn.ops.cuda import attend, matmul

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


def test_kernels_of_users_functions_are_not_kept() -> None:
    form = attend.Form(4)
    assert isinstance(attend.make_attend(form)._cache, CUDACache)
    with_function = form._replace(score_mod=matmul.device(lambda score, b, h, t, s: score))
    assert not isinstance(attend.make_attend(with_function)._cache, CUDACache)
