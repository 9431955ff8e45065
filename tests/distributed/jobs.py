"""What tests of jobs share: inputs, rows that were read, a job, a record, a process to be killed."""

import contextlib
import subprocess
import sys

from fastattn.distributed.formats import cut, read_block
from fastattn.distributed.job import CorpusJob
from fastattn.distributed.storage import find_files
from tests import ROOT

TEXTS = [" ".join(f"w{(7 * n + k) % 16}" for k in range(1 + n % 5)) for n in range(40)]


def blocks_of(path, size=1 << 20, column="text"):
    return cut(find_files([str(path)]), column, size)


def rows_of(path, size=1 << 20, column="text"):
    """The rows of each block of a file."""
    return [read_block(block, column) for block in blocks_of(path, size, column)]


def some_job(**changes):
    files = [{"url": "in/a.txt", "size": 12, "modified": 7}, {"url": "in/b.txt", "size": 5, "modified": 8}]
    values = {"kind": "translate", "model": "ab" * 32, "model_name": "en-pt", "column": "text", "version": "0.1.0"}
    values |= {"options": {"precision": "float32", "beam_size": 1}, "outputs": ["translation"], "form": "parquet"}
    values |= {"block_bytes": 131072, "input_form": "text", "files": files}
    return CorpusJob(**values | changes)


RECORD = {"url": "in/a.txt", "start": 0, "stop": 12, "rows": 3, "null": 1, "cut": 0, "faults": 0, "fault_at": 0}
RECORD |= {"first_faults": [], "tokens": 20, "seconds": 0.5, "input": "cd" * 32, "size": 100, "host": "there"}
ASIDE = {"rows": 1, "error": "it failed"}
# For ``process``: holds an output folder.
HOLD = """
import sys, time
from fastattn.distributed.output_folder import OutputFolder
with OutputFolder(sys.argv[1], "parquet").hold():
    print("ready", flush=True)
    time.sleep(60)
"""


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
