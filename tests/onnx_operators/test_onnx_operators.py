"""Attention and its neighbours against the ONNX project's own node tests, at that suite's tolerances."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnx", minversion="1.23", reason="onnx, which has the cases, comes with the test extra")

from tests.onnx_operators.cases import Case, collect
from tests.onnx_operators.operators import OPERATORS

CASES = list(collect())
# The number of cases in onnx 1.23: a suite of fewer tests would pass by having lost them.
COUNTS = {
    "Attention": 93,
    "FlexAttention": 11,
    "Gelu": 4,
    "LayerNormalization": 19,
    "RMSNormalization": 19,
    "RotaryEmbedding": 8,
    "Softmax": 7,
}
TWO_BFLOAT16_STEPS = 2.0**-6  # the suite's own allowance for that type


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node(case: Case):
    outputs = OPERATORS[case.node.operator](case.node)
    wanted = [output for index, output in enumerate(outputs) if case.node.wants(index)]
    assert len(wanted) == len(case.expected)
    for output, expected in zip(wanted, case.expected):
        assert output.shape == expected.shape and output.dtype == expected.dtype
        rtol = case.rtol
        if output.dtype.name == "bfloat16":
            rtol = max(rtol, TWO_BFLOAT16_STEPS)
            output, expected = output.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(output, expected, rtol=rtol, atol=case.atol)


def test_every_case_is_there():
    counts = Counter(case.node.operator for case in CASES)
    assert all(counts[operator] >= count for operator, count in COUNTS.items()), counts
