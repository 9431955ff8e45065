"""Files of every format, damaged at random: a FastattnError or a correct load, never anything else.

run_mutations.py, a process of its own, does the work and says what counts as a fault; a fault here prints the seed, and
the command that repeats it.
"""

import random
import subprocess
import sys

import pytest

from tests import ROOT
from tests.weights.mutation_subjects import SUBJECTS

COUNT = 500
SLOW_COUNT, SLOW_RUNS = 20_000, 10


def check(first: int, count: int) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.weights.run_mutations", str(first), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", errors="replace")
    lines = done.stdout.splitlines()
    faults = [line for line in lines if "FAULT" in line]
    if done.returncode or faults or not lines:
        last = lines[-1] if lines else "no seed was reached"
        pytest.fail(
            f"status {done.returncode}; {len(faults)} faults: {faults[:5]}; last: {last}\n{done.stderr[-3000:]}\n"
            "again: python -m tests.weights.run_mutations SEED 1 --keep DIR",
            pytrace=False,
        )
    assert len(lines) == count + 1, lines[-1]
    # Damage that nothing survives would test the first check alone.
    assert sum("loaded" in line for line in lines[:-1]) >= count // 50


def test_damaged_files_load_or_raise_an_error() -> None:
    check(0, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(SLOW_RUNS))
def test_many_damaged_files_load_or_raise_an_error(run: int) -> None:
    size = SLOW_COUNT // SLOW_RUNS
    check(COUNT + run * size, size)


def test_a_seed_gives_the_same_damage() -> None:
    for seed, subject in enumerate(SUBJECTS.values()):
        state = random.getstate()
        damaged = subject.damaged(seed)
        assert damaged == subject.damaged(seed)
        assert random.getstate() == state
    assert len({tuple(subject.damaged(seed).items()) for subject in SUBJECTS.values() for seed in range(20)}) > 300
