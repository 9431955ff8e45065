"""Kernels against NumPy and PyTorch, one thread, in one run."""

import json
import os
import subprocess
import sys

import numpy as np
from timing import alternate, library_threads

import fastattn
from checks import Data, check
from fastattn import kernels
from fastattn.simd.target import TARGET


def product_times(size: int = 1024) -> dict[str, float]:
    """Seconds of a product of ``size`` cubed, ours with packed weights and NumPy's."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size, size), np.float32)
    weight = rng.standard_normal((size, size), np.float32)
    packed, transposed = kernels.pack_linear(weight), np.ascontiguousarray(weight.T)
    with kernels.use_threads(1), library_threads(1):
        return alternate({"ours": lambda: kernels.linear(x, packed), "numpy": lambda: x @ transposed}, 15)


def _describe(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {2 * 1024**3 / seconds / 1e9:.0f} GFLOP/s" for name, seconds in times.items())


@check("product", "1024 cubed, one thread: at least 1.8 x NumPy where AVX-512 is there, else at least NumPy")
def product(data: Data) -> tuple[bool, str]:
    wanted = 1.8 if TARGET.name == "avx512" else 1.0
    times = product_times()
    ratio = times["numpy"] / times["ours"]
    return ratio >= wanted, f"{ratio:.2f} x NumPy on {TARGET.name} (wanted {wanted}; {_describe(times)})"


AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+avx,+f16c,+bmi,+bmi2,+popcnt,+sse4.2,+movbe"}


@check("product-avx2", "the same, both held to AVX2: at least NumPy")
def product_avx2(data: Data) -> tuple[bool, str]:
    code = "import json; from checks.kernels import product_times; print(json.dumps(product_times()))"
    environment = {**os.environ, **AVX2, "OPENBLAS_CORETYPE": "Haswell", "PYTHONPATH": sys.path[0]}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    times = json.loads(printed.stdout)
    ratio = times["numpy"] / times["ours"]
    return ratio >= 1.0, f"{ratio:.2f} x NumPy ({_describe(times)})"


@check("attention", "(8,12,512,64), one thread: at least 1.4 x PyTorch's scaled_dot_product_attention")
def attention(data: Data) -> tuple[bool, str]:
    import torch

    B, H, T, K = 8, 12, 512, 64
    rng = np.random.default_rng(0)
    ours = [rng.standard_normal((B, T, H, K), np.float32) for _ in range(3)]
    theirs = [torch.from_numpy(np.ascontiguousarray(x.transpose(0, 2, 1, 3))) for x in ours]
    peer = torch.nn.functional.scaled_dot_product_attention
    with kernels.use_threads(1), library_threads(1), torch.no_grad():
        error = np.abs(fastattn.attention(*ours) - peer(*theirs).numpy().transpose(0, 2, 1, 3)).max()
        times = alternate({"ours": lambda: fastattn.attention(*ours), "torch": lambda: peer(*theirs)}, 9)
    ratio = times["torch"] / times["ours"]
    speeds = ", ".join(f"{name} {4 * B * H * T * T * K / s / 1e9:.0f} GFLOP/s" for name, s in times.items())
    return ratio >= 1.4 and error < 1e-5, f"{ratio:.2f} x PyTorch ({speeds}; largest difference {error:.1e})"
