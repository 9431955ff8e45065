"""How many lines the whole has: `python -m tests.clone.run_lines` prints them beside the commit before.

BUDGET is what each part may have. A change that removes lines lowers it.
"""

import subprocess

from tests import ROOT

PARTS = {
    "product": ("fastattn/**/*.py", "weights/**/*.py", "cli/**/*.py"),
    "tests": ("tests/**/*.py",),
    "bench": ("bench/**/*.py",),
    "docs": ("README.md", "docs/**/*.md"),
}
BUDGET = {"product": 75_317, "tests": 58_573, "bench": 14_355, "docs": 2_329}


def lines_of(patterns: tuple[str, ...]) -> int:
    """The lines of the files that the patterns name."""
    return sum(path.read_text(encoding="utf-8").count("\n") for one in patterns for path in ROOT.glob(one))


def lines_before(patterns: tuple[str, ...]) -> int | None:
    """Those of the commit before; None where it is not there."""
    command = ["git", "grep", "-c", "", "HEAD~1", "--", *(f":(glob){one}" for one in patterns)]
    counts = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    return sum(int(line.rpartition(":")[2]) for line in counts) or None


def main() -> None:
    for part, patterns in PARTS.items():
        now, before = lines_of(patterns), lines_before(patterns)
        print(f"lines of {part}: {now:,}{'' if before is None else f' ({now - before:+,})'}, at most {BUDGET[part]:,}")


if __name__ == "__main__":
    main()
