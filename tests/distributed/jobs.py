"""What tests of a job's output share: a job, a record, a process to be killed."""

import contextlib
import subprocess
import sys

from fastattn.distributed.job import CorpusJob
from tests import ROOT


def some_job(**changes):
    files = [{"url": "in/a.txt", "size": 12, "modified": 7}, {"url": "in/b.txt", "size": 5, "modified": 8}]
    values = {
        "kind": "translate",
        "model": "ab" * 32,
        "model_name": "en-pt",
        "options": {"precision": "float32", "beam_size": 1},
        "column": "text",
        "outputs": ["translation"],
        "form": "parquet",
        "version": "0.1.0",
        "block_bytes": 131072,
        "input_form": "text",
        "files": files,
    }
    return CorpusJob(**values | changes)


RECORD = {
    "url": "in/a.txt",
    "start": 0,
    "stop": 12,
    "rows": 3,
    "null": 1,
    "cut": 0,
    "faults": 0,
    "fault_at": 0,
    "first_faults": [],
    "tokens": 20,
    "seconds": 0.5,
    "input": "cd" * 32,
    "size": 100,
    "host": "there",
}
ASIDE = {"rows": 1, "error": "it failed"}


@contextlib.contextmanager
def process(code, *arguments):
    """A process that has printed "ready", and is killed at the end, as kill -9 does."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()
            child.wait()
