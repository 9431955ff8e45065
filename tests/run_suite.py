"""``python tests/run_suite.py``: the suite in two processes side by side, since most of its time is spent compiling.

``python tests/run_suite.py distributed``: the tests of jobs on Ray likewise, which wait for it most of the time.

The second one's report is printed when the first has ended. The exit status is that of the first process that failed;
an interrupt ends both.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent

# About half of the time: what starts processes and interrupts them, and what reads checkpoints.
FIRST = ("runtime", "scheduling", "cli", "weights", "text", "ops", "simd")
FIRST_DISTRIBUTED = ("distributed/test_batch_cluster.py",)


def parts(folder: str) -> tuple[list[str], list[str]]:
    """pytest's arguments of both: folders or files, and all but those. ``folder``: of TESTS, "" for all."""
    first = [str(TESTS / name) for name in (FIRST_DISTRIBUTED if folder else FIRST)]
    return first, [str(TESTS / folder), *(f"--ignore={path}" for path in first)]


def main() -> int:
    command = [sys.executable, "-m", "pytest", *(["-rs"] if sys.argv[1:] else [])]
    first, second = parts(*sys.argv[1:] or [""])
    with tempfile.TemporaryFile() as report:
        beside = subprocess.Popen([*command, *second], stdout=report, stderr=report)
        try:
            status = subprocess.call([*command, *first])
            status = beside.wait() or status
        finally:
            if beside.poll() is None:
                beside.terminate()
                beside.wait()
        report.seek(0)
        sys.stdout.buffer.write(report.read())
        sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
