"""``fastattn encode``: lines in, a vector for each out, as .npy, JSON lines or CSV."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import Lines, open_lines
from fastattn.cli.loading import loading
from fastattn.cli.options import (
    given,
    input_option,
    located,
    model_option,
    precision_option,
    threads_option,
    verbose_option,
)
from fastattn.cli.output import Output, open_output
from fastattn.cli.progress import Compiling, Progress, pace, rate
from fastattn.errors import InputError

if TYPE_CHECKING:
    import numpy as np

# Enough lines for batches of like lengths on every core, few enough for progress to move and memory to stay small.
CHUNK = 1024


@click.command(
    epilog="""\b
Examples:
  fastattn encode -m minilm "A man is eating food." > vectors.jsonl
  fastattn encode -m minilm -i sentences.txt -o vectors.npy -v
  fastattn encode -m minilm -i sentences.txt --format csv --truncate-dim 64
  fastattn encode -m ./my-encoder --prompt query --normalize < questions.txt

\b
One vector for each line, empty ones included.
  npy    a float32 array [lines, dimension]
  jsonl  {"text": ..., "vector": [...]}, with null for what is not finite, as damaged weights give
  csv    numbers separated by commas, no header
"""
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_option
@input_option
@click.option("-o", "--output", "output_path", metavar="FILE", help="Write to FILE, which appears once complete.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["npy", "jsonl", "csv"]),
    help="What to write; by default what FILE's suffix says, else jsonl.",
)
@click.option("--normalize/--no-normalize", default=None, help="To unit length (default: as the model has it).")
@click.option(
    "--pooling",
    metavar="MODE[,MODE]",
    help="cls, mean, max, mean_sqrt_len, weightedmean, lasttoken (default: as the model has it).",
)
@click.option("--truncate-dim", type=click.IntRange(min=1), help="Keep the first so many dimensions.")
@click.option("--prompt", help="The name of one of the model's prompts, or text to put before each line.")
@precision_option
@threads_option
@verbose_option
def encode(
    texts: tuple[str, ...],
    model: str | None,
    input_path: str | None,
    output_path: str | None,
    form: str | None,
    pooling: str | None,
    precision: str | None,
    threads: int | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Turn TEXTs, the lines of a file, or of standard input into vectors."""
    name = _chosen(model)
    write = _WRITERS[form or _form_of(output_path)]
    lines = open_lines(texts, input_path)
    with open_output(output_path) as output, Progress() as progress:
        if write is _write_npy and output.is_terminal():
            raise InputError("npy is not for a terminal; name a file with -o")
        start = time.monotonic()
        with loading():
            compiling = Compiling(progress)
            progress.show(f"loading {name}")
            name = located(name, progress)
            from fastattn.encoder import Encoder

            encoder = Encoder(name, **given(precision=precision, threads=threads))
        chosen = given(**options, pooling=None if pooling is None else tuple(pooling.split(",")))
        loaded = time.monotonic()

        def vectors() -> Iterator[tuple[list[str], "np.ndarray"]]:
            for chunk in _chunks(lines):
                yield chunk, encoder.encode(chunk, **chosen)
                lines.finish(len(chunk))
                progress.show(pace(lines, time.monotonic() - loaded))

        progress.enabled &= not output.is_terminal()
        write(output, vectors(), encoder.encode([], **chosen))
    if verbose:
        seconds = time.monotonic() - loaded
        click.echo(
            f"{rate(lines, seconds)} in {seconds:.2f} s (loaded in {loaded - start:.2f} s{compiling.remark()})",
            err=True,
        )


def _chosen(model: str | None) -> str:
    """``model``, or an InputError that lists the catalog's."""
    if model:
        return model
    from fastattn.weights.catalog import CATALOG

    names = [f"{name} ({entry.title})" for name, entry in CATALOG.items() if entry.kind == "sentence encoder"]
    raise InputError(f"choose a model with -m: a folder, or one of the catalog: {', '.join(names)}")


def _form_of(path: str | None) -> str:
    """The form that a file's suffix stands for."""
    if path is None or path == "-":
        return "jsonl"
    suffix = PurePath(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: cannot tell the format from {suffix or 'no suffix'!r}; give --format")
    return _SUFFIXES[suffix]


def _chunks(lines: Lines) -> Iterator[list[str]]:
    remaining = iter(lines)
    size = 1 if lines.terminal else CHUNK
    while chunk := list(islice(remaining, size)):
        yield chunk


def _write_jsonl(output: Output, chunks: Iterator, empty: "np.ndarray") -> None:
    for texts, vectors_BE in chunks:
        for text, vector in zip(texts, _decimals(vectors_BE)):
            numbers = ", ".join(_NO_JSON.get(number, number) for number in vector)
            output.write(f'{{"text": {json.dumps(text, ensure_ascii=False)}, "vector": [{numbers}]}}\n'.encode())
        output.flush()


_NO_JSON = dict.fromkeys(("nan", "inf", "-inf"), "null")


def _write_csv(output: Output, chunks: Iterator, empty: "np.ndarray") -> None:
    for _, vectors_BE in chunks:
        for vector in _decimals(vectors_BE):
            output.write(",".join(vector).encode() + b"\n")
        output.flush()


def _decimals(vectors_BE: "np.ndarray") -> Iterator[list[str]]:
    """The shortest decimals that give the same float32 back."""
    for vector_E in vectors_BE:
        yield [str(value) for value in vector_E]


def _write_npy(output: Output, chunks: Iterator, empty: "np.ndarray") -> None:
    """A pipe gets everything at the end; a file grows, and its header, written first, learns how many rows came."""
    kept: list[bytes] = []
    rows = 0
    write = output.write if output.rewritable else kept.append
    write(_npy_header(0, empty.shape[1]))
    for texts, vectors_BE in chunks:
        rows += len(texts)
        write(vectors_BE.astype("<f4", copy=False).tobytes())
    header = _npy_header(rows, empty.shape[1])
    if output.rewritable:
        output.rewrite_start(header)
    else:
        output.write(b"".join([header, *kept[1:]]))


def _npy_header(rows: int, columns: int) -> bytes:
    """Always as long, whatever ``rows`` (NumPy pads for a first dimension that grows)."""
    import io

    from numpy.lib import format

    buffer = io.BytesIO()
    format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)})
    return buffer.getvalue()


_WRITERS = {"npy": _write_npy, "jsonl": _write_jsonl, "csv": _write_csv}
_SUFFIXES = {".npy": "npy", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
