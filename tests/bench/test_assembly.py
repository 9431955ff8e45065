"""``python -m bench.assembly`` shows what LLVM makes of a kernel."""

import pytest

from bench import assembly
from tests.runtime.workload import run_child

SHOW = """
import sys
import numpy as np
from bench import assembly
from fastattn.ops import cpu as operations
assembly.compile_all = lambda: operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
sys.argv[1:] = ["sentences._see"]
assert assembly.main() == 0
"""


def test_the_assembly_of_a_kernel_is_shown() -> None:
    shown = run_child(SHOW.replace("assert", "sys.stderr = sys.stdout\nassert"))
    assert shown.startswith("compiling every kernel\n# sentences._see l1C,l1C,l1C,")
    assert shown.count("# sentences._see ") == 1 and "fastattn.sentences._see." in shown and "ret" in shown


def test_an_unknown_kernel_is_told_of_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert assembly.show(["norm._normal"]) == 2
    assert capsys.readouterr().err.startswith("no kernel 'norm._normal'; there are: ")
