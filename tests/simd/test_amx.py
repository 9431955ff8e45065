"""Tile registers: who may use them, and products with them where the CPU has none."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from fastattn.kernels.arguments import NR
from fastattn.ops import cpu as operations
from fastattn.simd import target
from fastattn.simd.target import choose_target
from tests import ROOT
from tests.simd.assembly import BASE, TILES


@pytest.fixture
def asked(monkeypatch):
    """Set what Linux answers; returns the list of requests."""
    requests: list[int] = []

    def answer(fault: int) -> list[int]:
        monkeypatch.setattr(target, "_request", lambda: requests.append(fault) or fault)
        return requests

    target.refusal.cache_clear()
    monkeypatch.delenv("FASTATTN_AMX", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    yield answer
    target.refusal.cache_clear()


@pytest.mark.parametrize(
    ("fault", "words"),
    [(0, ""), (errno.ENOSPC, "a signal stack"), (errno.EPERM, "not permitted"), (errno.EINVAL, "Inv")],
)
def test_linux_is_asked_once_and_its_refusal_is_told(asked, monkeypatch, fault, words):
    requests = asked(fault)
    refusals = {target.refusal() for _ in range(3)}
    assert requests == [fault] and (words in refusals.pop() if words else refusals == {""})
    monkeypatch.setenv("NUMBA_CPU_FEATURES", ",".join(f"+{name}" for name in BASE | TILES))
    assert target.compiled_features() == (BASE if fault else BASE | TILES)


def test_nobody_is_asked_where_tiles_are_switched_off_or_not_compiled_for(asked, monkeypatch):
    requests = asked(0)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx512f,+avx512vl")
    assert target.compiled_features() == {"avx512f", "avx512vl"} and not requests
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx512f,+amx-tile,+amx-int8")
    monkeypatch.setenv("FASTATTN_AMX", "0")
    assert target.compiled_features() == {"avx512f"} and not requests
    assert "FASTATTN_AMX" in target.refusal()


def test_inspect_says_which_instructions_multiply(asked, monkeypatch):
    from fastattn.cli import inspect

    asked(errno.ENOSPC)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", ",".join(f"+{name}" for name in BASE | TILES))
    for tiles, told in ((TILES, "bfloat16 by AMX's tiles, int8 by AMX's tiles (few rows: VNNI)"), (set(), "widened")):
        monkeypatch.setattr(target, "TARGET", choose_target("x86_64", BASE | tiles, "sapphirerapids"))
        facts = dict(inspect.machine_facts())
        assert told in facts["products"] and "a signal stack" in facts["AMX"]
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx512f")
    assert "AMX" not in dict(inspect.machine_facts())


@pytest.mark.skipif(sys.platform != "linux" or bool(target.TARGET.tiles), reason="Linux without tiles")
def test_linux_refuses_what_the_cpu_has_not():
    assert target._request() != 0


def has_registers_in_use() -> bool:
    """What XGETBV says of this thread's tile registers (bit 18 of the components in use)."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb9\x01\x00\x00\x00\x0f\x01\xd0\xc3")  # mov ecx, 1; xgetbv; ret
    function = ctypes.CFUNCTYPE(ctypes.c_uint32)(np.frombuffer(code, np.uint8).ctypes.data)
    return bool(function() >> 18 & 1)


@pytest.mark.skipif(not target.TARGET.tiles, reason="a CPU with tile registers")
@pytest.mark.parametrize("precision", ["int8", "bfloat16", "int4", "int8_groups"])
def test_products_leave_no_registers_in_use(precision):
    x, weight = np.ones((16, 32), np.float32), np.ones((NR, 32), np.float32)
    packed = operations.pack_linear(weight, None, precision)
    with operations.use_threads(1):
        for multiply in (operations.linear, partial(operations.gated, gate=packed)):
            multiply(x, packed)
            assert not has_registers_in_use()


@pytest.mark.slow
@pytest.mark.skipif(target.TARGET.name != "avx512" or bool(target.TARGET.tiles), reason="AVX-512 without tiles")
def test_everything_narrow_by_the_model_of_the_registers(tmp_path):
    files = (
        "simd/test_amx_products",
        "kernels/test_precision",
        "kernels/test_output_subset",
        "kernels/test_narrow_attention",
        "kernels/test_grouped",
    )
    # what starts processes of its own would find the model's kernels in its cache
    chosen = [*(f"tests/{file}.py" for file in files), "-k", "not fewer_instructions"]
    command = [sys.executable, "-m", "pytest", "-p", "tests.simd.amx_model", "-p", "no:cacheprovider", *chosen]
    # a second process would compile for the CPU as it is
    environment = {**os.environ, "FASTATTN_CACHE": str(tmp_path), "FASTATTN_COMPILE_AHEAD": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-4000:]
