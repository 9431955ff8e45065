"""Each kernel of each operation becomes code of cards; what ptxas says of it is bounded.

The folder that the variable FASTATTN_PROVEN names keeps what was proven: the same sources, compiled by the same
packages, are not proven again.
"""

import hashlib
import os
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.cuda.dispatcher import CUDACache

from bench.card_kernels import ARCHITECTURES, compiling, every_call
from fastattn.ops import cuda
from fastattn.ops.cuda import attend, matmul
from tests import ROOT

IN_REGISTERS = "attend", "attention", "matmul", "project"  # files whose kernels keep what they sum in registers
SOURCES = "fastattn/ops/*.py", "fastattn/ops/cuda/*.py", "bench/operations/*.py", "bench/card_kernels.py"
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
    form = attend.Form(4)
    assert isinstance(attend.make_attend(form)._cache, CUDACache)
    with_function = form._replace(score_mod=matmul.device(lambda score, b, h, t, s: score))
    assert not isinstance(attend.make_attend(with_function)._cache, CUDACache)
