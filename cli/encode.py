"""``fastattn encode``: lines in, a vector for each line out, as .npy, JSON lines or CSV."""

import json
import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import Line, Lines, open_lines
from fastattn.cli.loading import loading
from fastattn.cli.options import (
    TEXT,
    given,
    input_option,
    located_encoder,
    model_option,
    on_error_option,
    output_option,
    precision_option,
    threads_option,
    verbose_option,
)
from fastattn.cli.output import Output, open_output
from fastattn.cli.progress import Compiling, Progress, pace, rate
from fastattn.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoder import Encoder

    _Results = Iterator[tuple[Line, np.ndarray]]


@click.command(
    epilog="""\b
Examples:
  fastattn encode "A man is eating food." > vectors.jsonl
  fastattn encode -m minilm -i sentences.txt -o vectors.npy -v
  fastattn encode -i sentences.txt --format csv --truncate-dim 64
  fastattn encode -m ./my-encoder --prompt-name query < questions.txt

\b
One vector for each line, empty ones included.
  npy    a float32 array [lines, dimension]
  jsonl  {"text": ..., "embedding": [...]}, with null for numbers that are not
         finite, which only damaged weights lead to
  csv    numbers separated by commas, no header

\b
Through a pipe, a FIFO or a terminal, a line is answered before the next one
comes. With --on-error skip or mark a line that fails keeps its place in the
output: npy and csv have a row of nan there, jsonl has null, and with mark
"error" beside it. Such lines are counted on stderr at the end, and the exit
code is 5.
"""
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@model_option
@input_option
@output_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["npy", "jsonl", "csv"]),
    help="Output format (default: by FILE's suffix, else jsonl).",
)
@click.option(
    "--normalize/--no-normalize", default=None, help="Scale vectors to unit length (default: as the model says)."
)
@click.option(
    "--pooling",
    metavar="MODE[,MODE]",
    help="cls, max, mean, mean_sqrt_len, mean_sqrt_len_tokens, weightedmean, lasttoken (default: as the model says).",
)
@click.option("--truncate-dim", type=click.IntRange(min=1), help="Keep this many first dimensions (default: all).")
@click.option(
    "--prompt", type=TEXT, metavar="TEXT", help="Put TEXT before each line; '' for nothing (default: the model's own)."
)
@click.option("--prompt-name", type=TEXT, metavar="NAME", help="Put the model's prompt of that name before each line.")
@on_error_option
@precision_option("float32", "bfloat16", "int8", "auto")
@threads_option
@verbose_option
def encode(
    texts: tuple[str, ...],
    model: str | None,
    input_path: str | None,
    output_path: str | None,
    form: str | None,
    normalize: bool | None,
    pooling: str | None,
    on_error: str,
    precision: str | None,
    threads: int | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Turn TEXTs, the lines of a file, or standard input into vectors.

    -m names the model. The default is minilm, for English.
    """
    if options["prompt"] is not None and options["prompt_name"] is not None:
        raise click.UsageError("give --prompt or --prompt-name, not both")
    write = _WRITERS[form or _form_of(output_path)]
    lines = open_lines(texts, input_path, on_error)
    with open_output(output_path) as output, Progress() as progress:
        if write is _write_npy and output.is_terminal():
            raise InputError("npy is not for a terminal; name a file with -o")
        start = time.monotonic()
        with loading():
            path = located_encoder(model, progress)
            compiling = Compiling(progress)
            from fastattn.encoder import Encoder

            encoder = Encoder(path, **given(precision=precision, threads=threads))
        chosen = given(
            **options,
            normalize_embeddings=normalize,
            pooling=None if pooling is None else tuple(pooling.split(",")),
        )
        loaded = time.monotonic()
        progress.enabled &= not output.is_terminal()
        results = _results(encoder, lines, chosen, progress, loaded)
        write(output, results, encoder.encode([], **chosen).shape[1], on_error == "mark")
    if verbose:
        seconds = time.monotonic() - loaded
        click.echo(
            f"{rate(lines, seconds)} in {seconds:.2f} s (loaded in {loaded - start:.2f} s{compiling.remark()})",
            err=True,
        )
    lines.check("encoded")


def _results(
    encoder: "Encoder", lines: Lines, options: dict[str, Any], progress: Progress, start: float
) -> Iterator[tuple[Line, "np.ndarray"]]:
    """(line, vector_E) of each line, in order; only what the encoder reads ahead is kept."""
    for burst in lines.bursts():
        for vector_E in encoder.encode_iter(burst, **options):
            line = lines.finish()
            if line.error is not None:
                vector_E = vector_E * float("nan")
            progress.show(pace(lines, time.monotonic() - start))
            yield line, vector_E


def _form_of(path: str | None) -> str:
    """The format of a file's suffix."""
    if path is None or path == "-":
        return "jsonl"
    suffix = PurePath(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: cannot tell the format from {suffix or 'no suffix'!r}; give --format")
    return _SUFFIXES[suffix]


def _write_jsonl(output: Output, results: "_Results", width: int, marks: bool) -> None:
    """``marks``: write the reason in the place of a line that failed."""
    for line, vector_E in results:
        numbers = ", ".join(_NO_JSON.get(number, number) for number in _decimals(vector_E))
        embedding = f"[{numbers}]" if line.error is None else "null"
        reason = f', "error": {_json_string(str(line.error))}' if line.error is not None and marks else ""
        output.write(f'{{"text": {_json_string(line.text)}, "embedding": {embedding}{reason}}}\n'.encode())
        output.flush()


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_NO_JSON = dict.fromkeys(("nan", "inf", "-inf"), "null")


def _write_csv(output: Output, results: "_Results", width: int, marks: bool) -> None:
    for _, vector_E in results:
        output.write(",".join(_decimals(vector_E)).encode() + b"\n")
        output.flush()


def _decimals(vector_E: "np.ndarray") -> list[str]:
    """The shortest decimals that give the same float32 back."""
    return [str(value) for value in vector_E]


def _write_npy(output: Output, results: "_Results", width: int, marks: bool) -> None:
    """A pipe gets everything at the end; a file grows, and its header is rewritten with the number of rows."""
    parts: list[bytes] = []
    rows = 0
    write = output.write if output.rewritable else parts.append
    write(_npy_header(0, width))
    for _, vector_E in results:
        rows += 1
        write(vector_E.astype("<f4", copy=False).tobytes())
    header = _npy_header(rows, width)
    if output.rewritable:
        output.rewrite_start(header)
    else:
        output.write(b"".join([header, *parts[1:]]))


def _npy_header(rows: int, columns: int) -> bytes:
    """Of the same length for any ``rows`` (NumPy pads it for a growing first dimension)."""
    import io

    from numpy.lib import format

    buffer = io.BytesIO()
    format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)})
    return buffer.getvalue()


_WRITERS = {"npy": _write_npy, "jsonl": _write_jsonl, "csv": _write_csv}
_SUFFIXES = {".npy": "npy", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
