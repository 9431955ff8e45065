"""Attention and its neighbours against the ONNX project's own node tests, at that suite's tolerances."""

import re
from collections.abc import Iterable

import numpy as np
import pytest

from tests import ROOT

pytest.importorskip("onnx", minversion="1.23", reason="onnx, which has the cases, comes with the test extra")

import onnx

from tests.onnx_operators.cases import COUNTS, Case, collect
from tests.onnx_operators.operators import OPERATORS

CASES = list(collect())
TWO_BFLOAT16_STEPS = 2.0**-6  # the suite's own allowance for that type


# Each compiles a kernel of attention with a function of its own, which takes seconds; the rest has one more.
COMPILED = {f"test_flexattention_{name}" for name in ("relative_positional", "score_mod", "causal_mask")}


@pytest.mark.parametrize("operator", OPERATORS)
def test_nodes(operator: str):
    cases = [case for case in CASES if case.node.operator == operator]
    assert len(cases) >= COUNTS[operator]
    run(case for case in cases if case.name not in COMPILED)


@pytest.mark.slow
def test_nodes_that_compile():
    cases = [case for case in CASES if case.name in COMPILED]
    assert len(cases) == len(COMPILED)
    run(cases)


def run(cases: Iterable[Case]) -> None:
    for case in cases:
        outputs = OPERATORS[case.node.operator](case.node)
        wanted = [output for index, output in enumerate(outputs) if case.node.wants(index)]
        assert len(wanted) == len(case.expected), case.name
        for output, expected in zip(wanted, case.expected):
            if output is None:
                continue
            assert output.shape == expected.shape and output.dtype == expected.dtype, case.name
            rtol = case.rtol
            if output.dtype.name == "bfloat16":
                rtol = max(rtol, TWO_BFLOAT16_STEPS)
                output, expected = output.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_allclose(output, expected, rtol=rtol, atol=case.atol, err_msg=case.name)


def test_what_the_documents_say_of_onnx_is_in_its_schema():
    text = (ROOT / "docs" / "coming-from-attention.md").read_text(encoding="utf-8").partition("\nAlike")[0]
    cells = [line.split("|")[6] for line in text.splitlines() if line.startswith("|")]
    named = {name for cell in cells[2:] for name in re.findall(r"`(\w+)", cell)}
    schema = onnx.defs.get_schema("Attention", 25)
    formal = {parameter.name for parameter in (*schema.inputs, *schema.outputs)}
    everything = formal | set(schema.attributes)
    assert named <= everything
    assert everything - named == {"Q", "K", "V", "Y", "past_value", "present_key", "present_value"}
