"""A corpus larger than any process's memory, streamed through a job on this machine."""

import itertools
import os
import random
import re
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.batch_cluster import Job, Output
from bench.checks import Data, Findings, check, need

SIZE = "FASTATTN_BATCH_GB"
MOST_MB = 2000.0
GROWTH = 1.05
WORDS, PAGE = 4, 128 << 10  # words of a text that is encoded, bytes of the column beside it
_PAGES_A_FILE, _PAGES_A_GROUP = 8192, 256


@check(
    "batch-memory",
    f"{SIZE} (1) GB of Parquet, a text of {WORDS} words and a column of {PAGE >> 10} KiB of text a row that is carried "
    f"through, encoded with minilm on this machine's Ray: every process at most {MOST_MB / 1000:g} GB resident, in "
    f"the last third of the time at most {GROWTH} x its most in the middle third, all rows there",
)
def memory(findings: Findings, data: Data) -> None:
    need("ray")
    pages = round(float(os.environ.get(SIZE, "1")) * 1e9 / PAGE)
    samples = _Samples()
    with tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        source, size = _synthetic(Path(folder, "in"), data, pages)
        job = Job(Path(folder, "out"), "encode", "-m", "minilm", str(source))
        job.follow(each=lambda: samples.take(job))
        findings.at_most("exit code", job.end(), job.said(), 0)
        wrong = _differing(source, job.output)
        began, ended = job.output.span()
    findings.at_most(f"{size / 1e9:.3g} GB, {pages:,} rows, {ended - began:.0f} s:", wrong, "rows differ", 0)
    for number, series in sorted(samples.series.items()):
        middle, last = (_peak(series, began + (ended - began) * n / 3, (ended - began) / 3) for n in (1, 2))
        if middle and last:  # others, of the start, are not there long
            findings.at_most(samples.names[number], samples.peak(number), "MB", MOST_MB)
            findings.at_most("", last / middle, "x in the last third", GROWTH)
    findings.at_most("any other", max(map(samples.peak, samples.series)), "MB", MOST_MB)


class _Samples:
    """series  number of a process -> (seconds since 1970, MB resident) all along"""

    def __init__(self) -> None:
        self.series: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.names: dict[int, str] = {}  # as they were last: Ray's workers change their titles

    def take(self, job: Job) -> None:
        for process in job.processes():
            self.series[process.number].append((time.time(), process.resident / 1e6))
            self.names[process.number] = f"{_short(process.title)} {process.number}"

    def peak(self, number: int) -> float:
        return max(megabytes for _, megabytes in self.series[number])


def _short(title: str) -> str:
    """``ray::MapWorker`` of an actor, ``log_monitor.py`` of a script, ``fastattn``, ``raylet``."""
    found = re.match(r"ray::\w*", title) or re.search(
        r"-m (fastattn)|([\w.]+)(?= |$)", re.sub(r"\S*python\S*( -u)?", "", title)
    )
    return found[found.lastindex or 0] if found else title


def _peak(series: list[tuple[float, float]], start: float, seconds: float) -> float:
    return max((megabytes for moment, megabytes in series if start <= moment < start + seconds), default=0.0)


def _synthetic(folder: Path, data: Data, pages: int) -> tuple[Path, int]:
    """(a folder of Parquet files, bytes of text in them), of FLORES' words in any order."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    chance = random.Random(5)
    words = " ".join(data.flores("en")).split()
    pool = " ".join(chance.choices(words, k=4 << 20)).encode("ascii", "replace").decode()
    size = 0
    for first in range(0, pages, _PAGES_A_FILE):
        writer: Any = None
        stop = min(first + _PAGES_A_FILE, pages)
        for start in range(first, stop, _PAGES_A_GROUP):
            numbers = range(start, min(start + _PAGES_A_GROUP, stop))
            begins = [chance.randrange(len(pool) - PAGE) for _ in numbers]
            table = pa.table(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "text": [" ".join(chance.choices(words, k=WORDS)) for _ in numbers],
                    "page": [pool[begin : begin + PAGE] for begin in begins],
                }
            )
            size += table.nbytes
            path = folder / f"{first:09d}.parquet"
            writer = writer or parquet.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False)
            writer.write_table(table)
        writer.close()
    return folder, size


def _differing(source: Path, output: Output) -> int:
    """How many rows are missing, have no vector, or other columns than before."""
    given, made = _rows(source.glob("*.parquet")), _rows(output.folder.glob("part-*.parquet"))
    return sum(row != other for row, other in itertools.zip_longest(given, made))


def _rows(paths: Iterable[Path]) -> Iterator[tuple[int, str, int]]:
    """(id, text, checksum of the page) of each row; -1 for the id where a vector should be and is none."""
    from pyarrow import parquet

    for path in sorted(paths):
        for batch in parquet.ParquetFile(path).iter_batches(256):
            vectors = batch.column("embedding").to_pylist() if "embedding" in batch.schema.names else [()] * len(batch)
            columns = (batch.column(name).to_pylist() for name in ("id", "text", "page"))
            for number, text, page, vector in zip(*columns, vectors, strict=True):
                yield (-1 if vector is None else number), text, zlib.crc32(page.encode())
