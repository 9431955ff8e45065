"""Jobs of ``fastattn batch`` as their users run them, on clusters of local node processes, and what is seen of them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.machine import ROOT
from bench.processes import Process, below, kill, marked

LONGEST = 1200.0  # seconds of a job, after which it hangs
_MARK = "FASTATTN_BENCH_JOB"
_EVERY = 0.1  # seconds
_STORE_BYTES = 128 << 20
OWN_TITLE = "BlockWorker"  # of Ray's workers that have one of our actors


class LocalCluster:
    """Ray's node processes on this machine; drivers connect to the first, which therefore is never killed."""

    def __init__(self, cluster: Any):
        self._cluster = cluster
        self._raylets = [self._raylet(cluster.head_node)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **resources: Any) -> None:
        self._raylets.append(self._raylet(self._cluster.add_node(**resources)))

    def actors(self, node: int | None = None) -> list[Process]:
        """The processes with one of our actors, on all nodes or one."""
        raylets = self._raylets if node is None else self._raylets[node : node + 1]
        return [process for process in below(raylets) if OWN_TITLE in process.title]

    def kill(self, node: int) -> int:
        """End a node with all of its processes at once; returns how many actors it had."""
        actors = len(self.actors(node))
        kill(below([self._raylets[node]]))
        return actors

    @staticmethod
    def _raylet(node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)


@contextlib.contextmanager
def local_cluster(nodes: int) -> Iterator[LocalCluster]:
    """A cluster of node processes with a core each."""
    from ray.cluster_utils import Cluster

    resources = {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args=resources)
    try:
        found = LocalCluster(cluster)
        for _ in range(nodes - 1):
            found.add(**resources)
        cluster.wait_for_nodes()
        yield found
    finally:
        cluster.shutdown()


class Output:
    def __init__(self, folder: Path):
        self.folder = folder
        self.seen: dict[str, set[tuple[int, int]]] = defaultdict(set)  # part -> its (inode, time of writing), ever

    def look(self) -> None:
        for path in self.folder.glob("part-*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                self.seen[path.name].add((status.st_ino, status.st_mtime_ns))

    def written_twice(self) -> list[str]:
        """Parts that were replaced after they had been finished."""
        return [name for name, versions in self.seen.items() if len(versions) > 1]

    def finished(self) -> int:
        return len(list(self.folder.glob("_fastattn/finished/*.json")))

    def records(self) -> dict[int, dict[str, Any]]:
        """The records of finished blocks; ``began`` and ``ended`` are added, seconds since 1970."""
        found = {}
        for path in sorted(self.folder.glob("_fastattn/finished/*.json")):
            record = json.loads(path.read_bytes())
            part = (self.folder / record["file"]).stat()
            record["began"] = part.st_mtime_ns / 1e9 - record["seconds"]
            record["ended"] = path.stat().st_mtime_ns / 1e9
            found[record["block"]] = record
        return found

    def span(self) -> tuple[float, float]:
        """From when the first actor had its first block to when the last block was finished, seconds since 1970."""
        records = self.records().values()
        return min(record["began"] for record in records), max(record["ended"] for record in records)

    def table(self) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        return pa.concat_tables(parquet.read_table(path) for path in sorted(self.folder.glob("part-*.parquet")))

    def json_rows(self) -> list[dict[str, Any]]:
        paths = sorted(self.folder.glob("part-*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


class Job:
    """A process of ``fastattn batch``, a process group of its own, as a shell starts it."""

    def __init__(self, out: Path, *arguments: str):
        self.output = Output(out)
        self._mark = f"{_MARK}={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self._errors = out.with_name(f"{out.name}.errors")
        command = [sys.executable, "-m", "fastattn", "batch", *arguments, "--out", str(out)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, name: value},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def processes(self) -> list[Process]:
        """The driver and all that descends from it, even where its parent is gone."""
        return marked(self._mark)

    def said(self) -> str:
        """The last line on stderr."""
        return self._errors.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]

    def follow(self, until: Callable[[], bool] = lambda: False, each: Callable[[], None] = lambda: None) -> None:
        """Return when ``until`` or at the end; ``each`` is called all the while. RuntimeError where the job hangs."""
        latest = time.monotonic() + LONGEST
        while not self.ended() and not until():
            self.output.look()
            each()
            time.sleep(_EVERY)
            if time.monotonic() > latest:
                kill(self.processes())
                raise RuntimeError(f"the job is still at work after {LONGEST:.0f} s")
        self.output.look()

    def until_finished(self, blocks: int) -> None:
        """Return when so many blocks are finished. RuntimeError where the job ends before."""
        self.follow(lambda: self.output.finished() >= blocks)
        if self.ended():
            raise RuntimeError(f"the job ended before {blocks} blocks were finished: {self.said()}")

    def end(self) -> int:
        self.follow()
        return self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """As a terminal does for Ctrl-C, to the whole group; SIGKILL to the driver alone."""
        if number == signal.SIGKILL:
            self._process.kill()
        else:
            os.killpg(self._process.pid, number)


def run_job(out: Path, *arguments: str) -> Output:
    """The output of a job that has to succeed."""
    job = Job(out, *arguments)
    if code := job.end():
        raise RuntimeError(f"fastattn batch {' '.join(arguments)} ended with {code}: {job.said()}")
    return job.output


def run_plain(*arguments: str) -> tuple[float, float]:
    """(lines a second, seconds) of the plain command once its model was loaded, as it says itself."""
    command = [sys.executable, "-m", "fastattn", *arguments, "-v"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    found = re.search(r"([\d,]+) lines?, .* in ([\d.]+) s \(loaded in [\d.]+ s(.*)\)", done.stderr)
    if done.returncode or not found:
        raise RuntimeError(f"fastattn {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    seconds = float(found[2])
    return int(found[1].replace(",", "")) / seconds, seconds


def gone_after(find: Callable[[], Sequence[Process]], seconds: float) -> tuple[float, list[str]]:
    """(seconds until no process was found, titles of those that were left)."""
    start = time.monotonic()
    while (left := find()) and time.monotonic() - start < seconds:
        time.sleep(_EVERY)
    return time.monotonic() - start, [process.title for process in left]
