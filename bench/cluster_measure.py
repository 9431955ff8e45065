"""What a cluster's time is computed from: an actor's speed, its start and its files, each measured on this machine."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.cluster_model import LARGEST
from bench.lock import MODELS
from bench.sentences import sentences
from bench.timing import once

THREADS = 2
COUNTS = {"full": 512, "quick": 128, "toy": 4}
ROUNDS = {"full": 3, "quick": 1, "toy": 1}
_START = """
import sys
from fastattn import Encoder, Translator
model, path, threads = sys.argv[1:]
if model == "minilm":
    Encoder(path, "int8", threads=int(threads)).encode(["One sentence."])
else:
    Translator(path, "int8", threads=int(threads)).translate(["One sentence."])
"""


@dataclass(frozen=True)
class Figures:
    """Of one model in int8.

    rate         sentences a second of THREADS threads
    weights      of the layers that a step goes through
    warm, cold   seconds of a process until it has done one sentence, with a cache of compiled kernels and without
    bytes_in     of a sentence, with its line end
    bytes_out    of a row that is written: the sentence and what became of it
    own_storage  seconds for a sentence to read it from a file of the size of a block, and to write the row to another
    """

    name: str
    rate: float
    weights: int
    warm: float
    cold: float
    bytes_in: float
    bytes_out: float
    own_storage: float


def measure(name: str, size: str, data: Path | None) -> Figures:
    texts = sentences(MODELS[name], COUNTS[size], data)
    call, weights = _model(name)
    results = call(texts)
    seconds = float(np.median([once(lambda: call(texts)) for _ in range(ROUNDS[size])]))
    rows = _written(texts, results)
    bytes_in = sum(len(text.encode()) + 1 for text in texts) / len(texts)
    warm = float(np.median([_start(name, {}) for _ in range(ROUNDS[size])]))
    return Figures(
        name,
        len(texts) / seconds,
        weights,
        warm,
        warm if size == "toy" else _cold(name),
        bytes_in,
        len(rows) / len(texts),
        _files(texts, rows, bytes_in),
    )


def _model(name: str) -> tuple[Callable[[list[str]], Any], int]:
    """(what an actor calls for a block, with the API's own options; weights as ``processes.choice`` counts them)."""
    from fastattn import Encoder, Translator

    if name == "minilm":
        encoder = Encoder(name, "int8", THREADS)
        stack = encoder._spec
        width = 2 * stack.feed_forward.inner_width + 4 * stack.attention.query_width
        return encoder.encode, stack.layers * stack.width * width
    translator = Translator(name, "int8", THREADS)
    return translator.translate, translator._service.model.sizes.layer_weights


def _written(texts: list[str], results: Any) -> bytes:
    """The rows of a block's output, without a format's own bytes."""
    lines = "".join(f"{text}\n" for text in texts)
    if isinstance(results, np.ndarray):
        return lines.encode() + results.tobytes()
    return (lines + "".join(f"{text}\n" for text in results)).encode()


def _start(name: str, environment: dict[str, str]) -> float:
    from fastattn.weights import download

    command = [sys.executable, "-c", _START, name, str(download.resolve(name)), str(THREADS)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | environment)
    return time.perf_counter() - begun


def _cold(name: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _start(name, {"FASTATTN_CACHE": folder})


def _files(texts: list[str], rows: bytes, bytes_in: float) -> float:
    """Seconds a sentence: a block is read, split and decoded; its output is written to the disk."""
    from fastattn.system.atomic_files import write_whole

    count = int(LARGEST / bytes_in)
    times = -(-count // len(texts))
    block = "".join(f"{text}\n" for text in texts).encode() * times
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "block.txt"), Path(folder, "part.txt")
        source.write_bytes(block)
        begun = time.perf_counter()
        source.read_bytes().decode().splitlines()
        write_whole(target, lambda stream: stream.writelines([rows] * times))
        return (time.perf_counter() - begun) / (times * len(texts))
