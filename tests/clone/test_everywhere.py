"""Products on emulated CPUs, as the script has them that runs the tests as other machines would."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neon", "neon-dot", "neon-matrix"])
def test_products_on_emulated_arm_cpus(name):
    """The system and its compiled kernels stay in the usual folder; the first run compiles, some minutes."""
    narrow = "exact or neighbours or subset or follow_the_oracle"
    tests = ["tests/simd", "tests/kernels/test_precision.py", "tests/kernels/test_output_subset.py"]
    command = [sys.executable, str(Path(__file__).with_name("run_everywhere.py")), name, "--", *tests]
    said = subprocess.run([*command, "-k", f"simd or {narrow}"], capture_output=True, encoding="utf-8").stdout
    if said.startswith("SKIP"):
        pytest.skip(said.split(maxsplit=2)[2])
    assert said.startswith("PASS"), said
