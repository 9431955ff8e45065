"""Jobs on Ray: their speed against the plain command's. tests/distributed checks equality, losses and memory."""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.checks import Data, Findings, check, need
from bench.checks.compare import plural
from bench.machine import ROOT
from bench.translate_locally import write_lines

LONGEST = 1200.0  # seconds of a command, after which it hangs
SOURCES = {"en-pt": "en", "zh-en": "zh", "minilm": "en"}
TIMES = {"en-pt": 12, "zh-en": 2, "minilm": 10}  # how often FLORES dev is translated on two threads, half of it on one
CLAIM = (
    "rows a second of fastattn batch on this machine's Ray, from the moment the first actor has a block until the last "
    "block is in its place, and of the plain command once its model is loaded, medians of 3 in alternation, on two "
    "threads and on one: at least 0.90 of the plain command's"
)


def _run(*arguments: str) -> str:
    """What ``fastattn ARGUMENTS`` prints; RuntimeError where it fails."""
    command = [sys.executable, "-m", "fastattn", *arguments]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        # Not a pipe: Ray's agents outlive a job, and would hold it open.
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, timeout=LONGEST
        )
        file.seek(0)
        text = file.read().strip()
    if done.returncode:
        raise RuntimeError(
            f"fastattn {' '.join(arguments)} ended with {done.returncode}: {text.rpartition(chr(10))[2]}"
        )
    return text


def _batch_rate(out: Path, *arguments: str) -> float:
    """Rows a second of a job, by the records and the times of the files in its output."""
    _run("batch", *arguments, "--out", str(out))
    records = [(path, json.loads(path.read_bytes())) for path in out.glob("_fastattn/finished/*.json")]
    began = min((out / record["file"]).stat().st_mtime_ns / 1e9 - record["seconds"] for _, record in records)
    ended = max(path.stat().st_mtime_ns / 1e9 for path, _ in records)
    return sum(record["rows"] for _, record in records) / (ended - began)


def _plain_rate(*arguments: str) -> float:
    """Lines a second of the plain command once its model is loaded, from its own report."""
    text = _run(*arguments, "-v")
    match = re.search(r"([\d,]+) lines?, .* in ([\d.]+) s \(loaded in [\d.]+ s(.*)\)", text)
    if not match:
        raise RuntimeError(f"fastattn {' '.join(arguments)} said no speed: {text.strip()}")
    return int(match[1].replace(",", "")) / float(match[2])


def _speed(findings: Findings, data: Data, model: str) -> None:
    need("ray")
    command = ["encode" if model == "minilm" else "translate", "-m", model]
    with tempfile.TemporaryDirectory(prefix="fastattn-batch-") as folder:
        for threads in (2, 1):
            lines = data.flores(SOURCES[model]) * (TIMES[model] * threads // 2)
            source = write_lines(Path(folder, f"{threads}.txt"), lines)
            batch, plain = [], []
            for round_ in range(4):
                out = Path(folder, f"{threads}-{round_}")
                place = ["--cores", "1", "--actors", "1"] if threads == 1 else []
                batch.append(_batch_rate(out, *command, str(source), *place))
                plain.append(_plain_rate(*command, "-i", str(source), "-o", f"{out}.npy", "-t", str(threads)))
            ours, theirs = statistics.median(batch[1:]), statistics.median(plain[1:])  # the first run warms caches up
            remark = f"{ours:,.0f} and {theirs:,.0f} rows/s"
            findings.at_least(f"{plural(threads)}:", ours / theirs, "of the plain rate", 0.90, remark)


for _model in TIMES:
    _claim = f"FLORES dev x {TIMES[_model]} with {_model}, {CLAIM}"
    check(f"batch-speed-{_model}", _claim)(partial(_speed, model=_model))
