"""A cluster of node processes on this machine, and commands on it. Imported where ray is installed."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ray.cluster_utils import Cluster

from tests import ROOT

STORE = 80 << 20  # bytes of each node's objects, the least that Ray takes
# Of Ray's own code, in this process.
WARNINGS = [
    pytest.mark.filterwarnings("ignore:::ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextlib.contextmanager
def cluster(nodes: int, cpus: int = 1) -> Iterator[tuple[Cluster, list[Any]]]:
    """(cluster, its nodes that give out CPUs); the head gives out none, and this process is not connected."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE})
    try:
        yield made, [made.add_node(num_cpus=cpus, object_store_memory=STORE) for _ in range(nodes)]
    finally:
        made.shutdown()


def command(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """``fastattn batch`` as a process of its own group."""
    given = [sys.executable, "-m", "fastattn", "batch", *map(str, arguments)]
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    return subprocess.Popen(given, cwd=ROOT, text=True, **options)


def marked_environment() -> tuple[dict[str, str], str]:
    """(an environment of this one and a mark, the mark): what is started with it can be told by ``bench.processes``."""
    value = str(uuid.uuid4())
    return {**os.environ, "FASTATTN_TESTS_JOB": value}, f"FASTATTN_TESTS_JOB={value}"


def run(*arguments: object) -> tuple[int, str]:
    """(exit code, stderr) of ``fastattn batch``."""
    process = command(*arguments)
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def await_finished(out: Path, count: int, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until so many blocks are finished."""
    for _ in range(15_000):
        if len(parts(out)) >= count:
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"{len(parts(out))} blocks are finished, not {count}")


def parts(out: Path) -> dict[str, tuple[int, int]]:
    """Name -> (number of its place on disk, time) of each finished block's file: one that is written anew differs."""
    records = sorted((out / "_fastattn" / "finished").glob("*.json"))
    stats = {file: file.stat() for record in records for file in out.glob(f"part-{record.stem}.*")}
    return {file.name: (status.st_ino, status.st_mtime_ns) for file, status in stats.items()}


def column(out: Path, name: str) -> list[Any]:
    """A column of all parts, in order."""
    tables = [pq.read_table(part) for part in sorted(out.glob("part-*.parquet"))]
    return [value for table in tables for value in table.column(name).to_pylist()]
