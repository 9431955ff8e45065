"""A function is compiled, or refused, whatever stack the caller's thread has."""

from pathlib import Path

import pytest

from tests.children import run_child

SMALL = """
import sys, threading
import fastattn
sys.path.insert(0, sys.argv[1])
from long_sum import mod

threading.stack_size(1 << 16)

def explain():
    try:
        print(fastattn.explain_function(mod))
    except fastattn.FastattnError as error:
        print(error)

thread = threading.Thread(target=explain)
thread.start()
thread.join()
assert threading.stack_size() == 1 << 16
"""


@pytest.mark.parametrize(("terms", "told"), [(100, "vectorised"), (900, "is too deeply nested")])
def test_a_thread_with_64_kb_compiles_a_long_function(tmp_path: Path, terms: int, told: str) -> None:
    added = "".join(f" + {n}.0 * t" for n in range(terms))
    (tmp_path / "long_sum.py").write_text(f"def mod(score, b, h, t, s):\n    return score{added}\n")
    assert run_child(SMALL, str(tmp_path)).strip().endswith(told)
