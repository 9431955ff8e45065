"""Jobs on Ray: their output beside the plain command's, what is left of them after losses, their speed and memory."""

import functools
import itertools
import json
import os
import random
import re
import signal
import statistics
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.batch_cluster import OWN_TITLE, Job, LocalCluster, Output, gone_after, local_cluster, run_job, run_plain
from bench.checks import Data, Findings, check, need
from bench.checks.compare import plural
from bench.checks.light import read_lines, write_lines
from bench.processes import Process, kill

NODES = 3
SOURCES = {"en-pt": "en", "zh-en": "zh", "minilm": "en"}
TIMES = {"en-pt": 50, "zh-en": 2, "minilm": 20}  # so often FLORES dev
KILLED_TIMES = 10  # of en-pt, where the driver is killed, four times
KILLED_BLOCK = "32K"
EQUAL_BLOCK = "16K"  # so that every node has some, but of en-pt
GONE = 15.0  # seconds
# Two idle agents of Ray's wait so long for its control service, to tell it that their node is gone; then they end.
AGENT, AGENTS_GONE = "Agent", 75.0


def _lines(data: Data, model: str, times: int) -> list[str]:
    return data.flores(SOURCES[model]) * times


def _command(model: str) -> list[str]:
    return ["encode" if model == "minilm" else "translate", "-m", model]


@functools.cache
def _plain(data: Data, model: str, times: int) -> Any:
    """What the plain command makes of FLORES dev so often: lines, or vectors."""
    with tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        lines = _lines(data, model, times)
        source, target = Path(folder, "lines.txt"), Path(folder, "made.npy")
        run_plain(*_command(model), "-i", str(write_lines(source, lines)), "-o", str(target))
        return np.load(target) if model == "minilm" else read_lines(target, len(lines))


def _differing_rows(table: Any, lines: Sequence[str], plain: Any) -> int:
    """How many rows are not the plain command's, bit for bit; missing ones and others too."""
    texts = table["text"].to_pylist()
    if len(texts) != len(lines):
        return max(len(texts), len(lines))
    wrong = np.array([text != line for text, line in zip(texts, lines)], bool)
    if isinstance(plain, np.ndarray):
        made_BE = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(texts), -1)
        wrong |= (made_BE.view(np.uint32) != plain.view(np.uint32)).any(axis=1)
    else:
        made = table["translation"].to_pylist()
        wrong |= [translation != line for translation, line in zip(made, plain)]
    return int(wrong.sum())


@check(
    "batch-equal",
    f"{NODES} local Ray node processes of one core, FLORES dev x {TIMES['en-pt']} with en-pt, x {TIMES['zh-en']} with "
    f"zh-en, x {TIMES['minilm']} with minilm, and x 2 with en-pt as Parquet, CSV and JSON lines with other columns: "
    "every row bit for bit the plain command's, other columns unchanged",
)
def equal(findings: Findings, data: Data) -> None:
    with local_cluster(NODES) as cluster, tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        for model, times in TIMES.items():
            lines = _lines(data, model, times)
            source = write_lines(Path(folder, f"{model}.txt"), lines)
            options = ["--address", cluster.address, *([] if model == "en-pt" else ["--block-size", EQUAL_BLOCK])]
            output = run_job(Path(folder, model), *_command(model), str(source), *options)
            wrong = _differing_rows(output.table(), lines, _plain(data, model, times))
            findings.at_most(f"{model}, {len(lines):,} lines:", wrong, "rows differ", 0)
            records = output.records().values()
            actors = len({record["host"] for record in records})
            findings.at_least("", actors, "actors", NODES, f"{len(records)} blocks")
        for form, wrong in _with_columns(data, cluster, Path(folder)):
            findings.at_most(f"{form}:", wrong, "rows or columns differ", 0)


def _with_columns(data: Data, cluster: LocalCluster, folder: Path) -> list[tuple[str, int]]:
    """(form of a file with other columns, how much of its output differs); the model comes through Ray's store."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    lines, plain = _lines(data, "en-pt", 2), _plain(data, "en-pt", 2)
    rows = _table(lines)
    given = {
        "rows.parquet": rows,
        # What CSV can hold: text alone.
        "rows.csv": pa.table(
            {name: ["" if v is None else str(v) for v in rows[name].to_pylist()] for name in ("id", "note", "text")}
        ),
        "rows.jsonl": rows.drop_columns("when"),
    }
    found = []
    for name, table in given.items():
        path, form = folder / name, name.rpartition(".")[2]
        if form == "parquet":
            parquet.write_table(table, path, row_group_size=300)
        elif form == "csv":
            csv.write_csv(table, path)
        else:
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())
            path.write_text(text, encoding="utf-8")
        more = ["--format", "jsonl"] if form == "jsonl" else []
        arguments = [str(path), "--address", cluster.address, "--model-by", "store", "--block-size", "40K", *more]
        output = run_job(folder / f"{form}-out", *_command("en-pt"), *arguments)
        made = pa.Table.from_pylist(output.json_rows(), schema=None) if form == "jsonl" else output.table()
        wrong = _differing_rows(made, lines, plain)
        if form == "jsonl":
            wrong += [{**row, "translation": None} for row in output.json_rows()] != [
                {**row, "translation": None} for row in table.to_pylist()
            ]
        else:
            wrong += not made.drop_columns("translation").equals(table)
        found.append((form, wrong))
    return found


def _table(lines: list[str]) -> Any:
    """Rows with columns of several types beside their text: nulls, line ends and quotes, nested ones, dates."""
    import pyarrow as pa

    count = len(lines)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "note": [None if n % 7 == 0 else f'{n}, "quoted"\nand {"é" * (n % 5)}' for n in range(count)],
            "text": lines,
            "share": pa.array([None if n % 11 == 0 else n / 3 for n in range(count)], pa.float64()),
            "parts": [[] if n % 3 == 0 else [n, n + 1] for n in range(count)],
            "when": pa.array([n * 86_400_000 for n in range(count)], pa.timestamp("ms", "UTC")),
        }
    )


@check(
    "batch-losses",
    f"{NODES} local Ray node processes, FLORES dev x {TIMES['en-pt']} with en-pt; in the middle a node is killed with "
    "all of its processes, later an actor of another node: the job succeeds, its rows are the plain command's, none "
    "missing or twice, and no finished part is ever written again",
)
def losses(findings: Findings, data: Data) -> None:
    model = "en-pt"
    times = TIMES[model]
    lines = _lines(data, model, times)
    with local_cluster(NODES) as cluster, tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        source = write_lines(Path(folder, "lines.txt"), lines)
        job = Job(Path(folder, "out"), *_command(model), str(source), "--address", cluster.address)
        job.until_finished(10)
        at_work = cluster.kill(1)
        killed_at = job.output.finished()
        job.until_finished(killed_at + 8)
        actors = cluster.actors(2)
        actor_at = job.output.finished()
        kill(actors[:1])
        code = job.end()
        findings.at_most("exit code", code, job.said(), 0)
        findings.at_least("the killed node had", at_work, "actors", 1, f"after {killed_at} blocks")
        findings.at_least("the other node had", len(actors), "actors", 1, f"one killed after {actor_at} blocks")
        _compare(findings, job.output, lines, _plain(data, model, times))


def _compare(findings: Findings, output: Output, lines: list[str], plain: Any) -> None:
    records = output.records()
    numbered = sorted(records) == list(range(len(records)))
    rows = sum(record["rows"] for record in records.values())
    findings.at_most("rows that differ", _differing_rows(output.table(), lines, plain), f"of {len(lines):,}", 0)
    findings.at_most("rows by the records", abs(rows - len(lines)) + (not numbered), "too many or few", 0)
    again = output.written_twice()
    findings.at_most("parts written again", len(again), f"of {len(output.seen)}", 0)


@check(
    "batch-driver",
    f"FLORES dev x {KILLED_TIMES} with en-pt, blocks of {KILLED_BLOCK}, on this machine's Ray and on a cluster of two "
    f"local node processes; the driver gets SIGKILL, or Ctrl-C, in the middle: after {GONE:.0f} s none of its "
    f"processes is left, after {AGENTS_GONE:.0f} s no idle agent of Ray's; Ctrl-C has exit code 130; the same command "
    "finishes, finished parts keep their inode and time, and the rows are the plain command's",
)
def driver(findings: Findings, data: Data) -> None:
    lines = _lines(data, "en-pt", KILLED_TIMES)
    stopped: list[Job] = []
    with local_cluster(2) as cluster, tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        source = write_lines(Path(folder, "lines.txt"), lines)
        for where, options in (("own Ray", []), ("cluster", ["--address", cluster.address])):
            for number in (signal.SIGKILL, signal.SIGINT):
                out = Path(folder, f"{where} {number.name}")
                arguments = [*_command("en-pt"), str(source), "--block-size", KILLED_BLOCK, *options]
                findings.say(f"{where}, {number.name}")
                job, output = _stop_and_rerun(findings, out, arguments, number, cluster)
                stopped.append(job)
                _compare(findings, output, lines, _plain(data, "en-pt", KILLED_TIMES))
        seconds, left = gone_after(lambda: [process for job in stopped for process in job.processes()], AGENTS_GONE)
        findings.at_most("agents left", len(left), f"{seconds:.0f} s after all", 0)


def _stop_and_rerun(
    findings: Findings, out: Path, arguments: list[str], number: signal.Signals, cluster: LocalCluster
) -> tuple[Job, Output]:
    job = Job(out, *arguments)
    job.until_finished(6)
    actors = sum(OWN_TITLE in process.title for process in _at_work(job, cluster))
    findings.at_least("stopped", actors, "actors", 1)
    job.send(number)
    code = job.end()
    seconds, left = gone_after(lambda: _at_work(job, cluster), GONE)
    findings.at_most("processes left", len(left), ", ".join(left[:3]) or f"after {seconds:.1f} s", 0)
    findings.at_most("exit code", abs(code - (-9 if number == signal.SIGKILL else 130)), f"off ({code})", 0)
    job.output.look()
    before = job.output.finished()
    again = Job(out, *arguments)
    again.output.seen = job.output.seen
    findings.at_most("rerun's exit code", again.end(), again.said(), 0)
    findings.say(f"{before} blocks from before")
    return job, again.output


def _at_work(job: Job, cluster: LocalCluster) -> list[Process]:
    return [process for process in (*job.processes(), *cluster.actors()) if not process.title.endswith(AGENT)]


SPEED_TIMES = {"en-pt": 12, "zh-en": 2, "minilm": 10}  # so often FLORES dev on two threads, half of it on one
SPEED_CLAIM = (
    "rows a second of fastattn batch on this machine's Ray, from the moment the first actor has a block until the last "
    "block is in its place, and of the plain command once its model is loaded, medians of 3 in alternation, on two "
    "threads and on one: at least 0.90 of the plain command's"
)


def _speed(findings: Findings, data: Data, model: str) -> None:
    need("ray")
    with tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        for threads in (2, 1):
            lines = _lines(data, model, SPEED_TIMES[model] * threads // 2)
            source = write_lines(Path(folder, f"{threads}.txt"), lines)
            ours, theirs = [], []
            for round_ in range(4):
                out = Path(folder, f"{threads}-{round_}")
                place = ["--cores", "1", "--actors", "1"] if threads == 1 else []
                ours.append(_rate(run_job(out, *_command(model), str(source), *place)))
                options = ["-i", str(source), "-o", f"{out}.npy", "-t", str(threads)]
                theirs.append(run_plain(*_command(model), *options)[0])
            # The first of each warms caches up.
            batch, plain = statistics.median(ours[1:]), statistics.median(theirs[1:])
            findings.at_least(
                f"{plural(threads)}:", batch / plain, "of the plain rate", 0.90, f"{batch:,.0f} and {plain:,.0f} rows/s"
            )


def _rate(output: Output) -> float:
    began, ended = output.span()
    return sum(record["rows"] for record in output.records().values()) / (ended - began)


for _model in SPEED_TIMES:
    _claim = f"FLORES dev x {SPEED_TIMES[_model]} with {_model}, {SPEED_CLAIM}"
    check(f"batch-speed-{_model}", _claim)(partial(_speed, model=_model))


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
        pairs = itertools.zip_longest(_rows(source.glob("*.parquet")), _rows(job.output.folder.glob("part-*.parquet")))
        wrong = sum(row != other for row, other in pairs)
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


def _rows(paths: Iterable[Path]) -> Iterator[tuple[int, str, int]]:
    """(id, text, checksum of the page) of each row; -1 for the id where a vector should be and is none."""
    from pyarrow import parquet

    for path in sorted(paths):
        for batch in parquet.ParquetFile(path).iter_batches(256):
            vectors = batch.column("embedding").to_pylist() if "embedding" in batch.schema.names else [()] * len(batch)
            columns = (batch.column(name).to_pylist() for name in ("id", "text", "page"))
            for number, text, page, vector in zip(*columns, vectors, strict=True):
                yield (-1 if vector is None else number), text, zlib.crc32(page.encode())
