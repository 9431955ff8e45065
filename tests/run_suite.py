"""``python tests/run_suite.py``: the suite in two processes side by side, since most of its time is spent compiling.

The second one's report is printed when the first has ended. The exit status is that of the first process that failed;
an interrupt ends both.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS.parent))

from fastattn.cache_folder import cache_root  # noqa: E402
from tests.left_in_cache import none_added  # noqa: E402

# About half of the time: what starts processes and interrupts them, and what reads checkpoints.
FIRST = ("runtime", "scheduling", "cli", "weights", "text", "reference", "simd")


def parts() -> tuple[list[str], list[str]]:
    """pytest's arguments of both: folders, and all but those."""
    first = [str(TESTS / name) for name in FIRST]
    return first, [str(TESTS), *(f"--ignore={folder}" for folder in first)]


def main() -> int:
    command = [sys.executable, "-m", "pytest"]
    environment = {**os.environ, "FASTATTN_TESTS_SHARE_A_CACHE": "1"}
    first, second = parts()
    with none_added(cache_root()), tempfile.TemporaryFile() as report:
        beside = subprocess.Popen([*command, *second], env=environment, stdout=report, stderr=report)
        try:
            status = subprocess.call([*command, *first], env=environment)
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
