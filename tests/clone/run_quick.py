"""Runs the tests that a change is likely to break: a part of `make quick`, which is for every commit.

First those of the clone as a whole: who imports whom, the bounds of the code, the package, help, options, documents.
Then, until SECONDS are over, those named after the files that differ from branch main; on main itself, from the last
commit.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_mutants import ROOT, tests_of

SECONDS = 20
WHOLE = (
    *("tests/test_imports.py", "tests/test_structure.py", "tests/test_package.py"),
    *("tests/cli/test_cli_help.py", "tests/cli/test_options_arrive.py", "tests/serve/test_options.py"),
    "tests/clone/test_docs.py",
)


class Clock:
    """A plugin of pytest by which no test of the change begins once the seconds are over."""

    def __init__(self) -> None:
        self.end = float("inf")
        self.stopped_well = False

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if item.nodeid.startswith(WHOLE):
            return
        self.end = min(self.end, time.monotonic() + SECONDS)
        if time.monotonic() > self.end:
            self.stopped_well = not item.session.testsfailed
            item.session.shouldstop = f"the change has more tests than {SECONDS} seconds take"


def changed() -> list[str]:
    """Files of the clone that were written or changed since it left main."""

    def git(*arguments: str) -> list[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()

    base = git("merge-base", "HEAD", "main") or ["HEAD"]
    return [*git("diff", "--name-only", "--diff-filter=d", *base), *git("ls-files", "-o", "--exclude-standard")]


def tests_named_after(path: str) -> list[str]:
    if Path(path).match("tests/**/test_*.py"):
        return [path]
    if not path.startswith(("fastattn/", "weights/", "cli/")) or not path.endswith(".py"):
        return []
    *named, folder = tests_of(path)
    return named or [folder]


def main() -> int:
    tests = dict.fromkeys(test for path in changed() for test in tests_named_after(path))
    clock = Clock()
    status = pytest.main([*WHOLE, *(test for test in tests if test not in WHOLE), *sys.argv[1:]], plugins=[clock])
    return int(pytest.ExitCode.OK if clock.stopped_well and status == pytest.ExitCode.INTERRUPTED else status)


if __name__ == "__main__":
    sys.exit(main())
