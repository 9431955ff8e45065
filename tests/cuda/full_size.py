"""Products by the blocks of a card, 256 threads, on the simulator: `python -m tests.cuda.full_size` asserts them.

Warps have 32 threads then, so that the fragments of ``mma`` lie as the card's do.
"""

import sys
from importlib import import_module, reload
from unittest import mock

import numpy as np

from fastattn.ops import reference
from fastattn.ops.cuda import card
from tests.cuda.turns import BlockOfTurns


def main() -> None:
    card.SIDE, card.THREADS, card.TILE = 16, 256, 64
    for name in ("instructions", "matmul", "project"):
        reload(import_module(f"fastattn.ops.cuda.{name}"))
    matmul, project = sys.modules["fastattn.ops.cuda.matmul"], sys.modules["fastattn.ops.cuda.project"]
    rng = np.random.default_rng(1)
    x, weight, bias, residual = (rng.standard_normal(shape, np.float32) for shape in ((33, 37), (66, 37), 66, (33, 66)))
    packed, oracle = (ops.pack_linear(weight, bias, "bfloat16") for ops in (matmul, reference))
    found = card.download(matmul.linear(card.upload(x), packed, "relu", residual))
    expected = reference.linear(x.astype(np.float64), oracle, "relu", residual)
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)
    values, ids = project.project_top_k(x[:2], packed, 2)
    expected, expected_ids = reference.project_top_k(x[:2].astype(np.float64), oracle, 2)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(values, expected, atol=3e-5)


if __name__ == "__main__":
    with mock.patch("numba.cuda.simulator.kernel.BlockManager", BlockOfTurns):
        main()
