"""Processes of Python that need not import the package again: each is forked from one that has, and waits.

    python -m tests.weights.forked OUTPUT ERRORS    that one: for each line, a request in JSON, an exit status

What reads its settings when it is imported, as huggingface_hub does, each process imports for itself.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from typing import IO, Any

from tests import ROOT

OWN = "huggingface_hub"  # but what it imports is shared
# What such processes use, each part of it that is worth a tenth of a second.
IMPORTED = (
    f"{OWN}.hf_api",
    f"{OWN}.file_download",
    "fastattn.cli.entry",
    "fastattn.cli.pull",
    "fastattn.cli.translate",
    "fastattn.text.huggingface",
    "fastattn.text.sentencepiece",
    "fastattn.text.translation",
    "fastattn.weights",
    "fastattn.weights.containers.pytorch",
    "fastattn.weights.containers.shortlist",
    "fastattn.weights.download.hub",
    "fastattn.weights.download.package_index",
    "fastattn.weights.gguf.architecture",
    "fastattn.weights.marian",
)


def run_forked(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout: int = 400
) -> subprocess.CompletedProcess[str]:
    """subprocess.run with ``python -W error`` before the arguments, -c CODE or -m MODULE and theirs, in the root.

    timeout  in seconds, after which a signal ends the process
    """
    given = dict(os.environ if environment is None else environment)
    if not hasattr(os, "fork"):
        command = [sys.executable, "-W", "error", *arguments]
        return subprocess.run(command, cwd=ROOT, env=given, timeout=timeout, capture_output=True, encoding="utf-8")
    waiting, streams = _waiting()
    for stream in streams:  # of which both processes have the same place
        stream.seek(0)
        stream.truncate()
    assert waiting.stdin is not None and waiting.stdout is not None
    print(
        json.dumps({"arguments": arguments, "environment": given, "timeout": timeout}), file=waiting.stdin, flush=True
    )
    status = int(waiting.stdout.readline())
    for stream in streams:
        stream.seek(0)
    output, errors = (stream.read().decode("utf-8", "replace") for stream in streams)
    return subprocess.CompletedProcess(arguments, status, output, errors)


@cache
def _waiting() -> tuple[subprocess.Popen[str], list[IO[bytes]]]:
    """The process that is forked, and the files of its processes' output and errors."""
    streams = [tempfile.TemporaryFile() for _ in range(2)]
    numbers = [stream.fileno() for stream in streams]
    command = [sys.executable, "-m", "tests.weights.forked", *map(str, numbers)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": numbers}
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # what is forked should have no others
    process = subprocess.Popen(command, cwd=ROOT, env=one_thread, text=True, **pipes)
    atexit.register(process.communicate)  # it ends with its standard input
    return process, streams


def _next_request() -> dict[str, Any]:
    """Returns in each process that is forked."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return dict(json.loads(line))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()
    sys.exit()


def _become(arguments: list[str], environment: dict[str, str], timeout: int) -> None:
    for number, source in enumerate([os.open(os.devnull, os.O_RDONLY), *map(int, sys.argv[1:])]):
        os.dup2(source, number)
    signal.alarm(timeout)
    os.environ.clear()
    os.environ.update(environment)
    warnings.simplefilter("error")
    kind, what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-c":
        exec(what, {"__name__": "__main__"})  # noqa: S102  as the interpreter does
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == OWN]:
        del sys.modules[name]
    gc.freeze()  # what is shared is not gone through by each process at its end
    _become(**_next_request())
