"""The script that runs the tests as other machines would: what it tells, and that its machines are what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run_everywhere.py"


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.slow
def test_a_line_for_each_machine_and_a_failure_is_told(tmp_path):
    """The tests that run hold on one machine alone, so each line shows that its machine is another."""
    tests = tmp_path / "test_it.py"
    tests.write_text("import os\n\ndef test_it():\n    assert os.environ.get('NUMBA_NUM_THREADS') == '1'\n")
    done = run(tmp_path / "out", "one-thread", "many-threads", "--", str(tests))
    passed, failed = done.stdout.splitlines()
    assert done.returncode == 1 and done.stderr == ""
    assert passed.startswith("PASS one-thread      1 passed, ")
    output = tmp_path / "out" / "many-threads" / "output.txt"
    assert failed.startswith("FAIL many-threads    1 failed, ") and failed.endswith(f" s; see {output}")
    assert "assert '64' == '1'" in output.read_text(encoding="utf-8")


def test_where_a_limit_does_not_limit_no_test_counts(tmp_path):
    code = (
        "import runpy, sys; sys.argv[0] = sys.argv.pop(1); "
        "import run_everywhere as it; it.MACHINES['none'] = lambda folder: it.Machine('False'); sys.exit(it.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "it", "--folder", str(tmp_path), "none"],
        cwd=SCRIPT.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout.startswith("FAIL none            AssertionError, ")


def test_an_unknown_machine_is_a_usage_error(tmp_path):
    done = run(tmp_path, "avx3")
    assert done.returncode == 2 and "no machine 'avx3'; there are one-cpu, " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neon", "neon-dot", "neon-matrix"])
def test_products_on_emulated_arm_cpus(name):
    """The system and its compiled kernels stay in the usual folder; the first run compiles, some minutes."""
    narrow = "exact or neighbours or subset or follow_the_oracle"
    tests = ["tests/simd", "tests/kernels/test_precision.py", "tests/kernels/test_output_subset.py"]
    command = [sys.executable, str(SCRIPT), name, "--", *tests, "-k", f"simd or {narrow}"]
    said = subprocess.run(command, capture_output=True, text=True, encoding="utf-8").stdout
    if said.startswith("SKIP"):
        pytest.skip(said.split(maxsplit=2)[2])
    assert said.startswith("PASS"), said
