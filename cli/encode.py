"""``fastattn encode``: lines in, a vector for each line out, as .npy, JSON lines or CSV."""

import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import InputLine, InputLines, open_lines, open_output, pace, report
from fastattn.cli.options import declare, open_model
from fastattn.cli.printing import Progress, as_json, say
from fastattn.cli.vector_options import FORMATS, Lengths, calibration_vectors, chosen_vectors, vector_options
from fastattn.errors import InputError
from fastattn.printable import decimals, json_decimals
from fastattn.system.files import OutputFile

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoders.encoder import Encoder

    _Results = Iterator[tuple[InputLine, np.ndarray]]


@click.command(
    epilog="""\b
Examples:
  fastattn encode "A man is eating food." > vectors.jsonl
  fastattn encode -m minilm -i sentences.txt -o vectors.npy -v
  fastattn encode -i sentences.txt --format csv --truncate-dim 64
  fastattn encode -m ./my-encoder --task query < questions.txt
  fastattn encode -i sentences.txt -o bits.npy --output-dtype ubinary

\b
One vector for each line, empty ones included.
  npy    an array [lines, dimension], float32, int8 or uint8
  jsonl  {"text": ..., "embedding": [...]}, with null for numbers that are not
         finite, which only damaged weights lead to
  csv    numbers separated by commas, no header

\b
Through a pipe, a FIFO or a terminal, a line is answered before the next one
comes. With --on-error skip or mark a line that fails keeps its place in the
output: npy and csv have a row of nan there, or of zeros where numbers are
whole, jsonl has null, and with mark "error" beside it. Such lines are counted
on stderr at the end, and the exit code is 5.

\b
A line with more tokens than the model takes is cut, which stderr tells at the
end. With --long mean its parts are encoded, and their vectors averaged; with
--long error it fails.

\b
int8 and uint8 divide the range of each dimension in 256 steps. --calibration
names vectors to take the ranges from, a thousand or more of texts like yours,
as this command writes them: use the same for all that is compared. binary and
ubinary keep a bit of each number, whether it is positive, eight in a byte.
"""
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@declare("""
--model
--input
--output
--format [npy|jsonl|csv] -> form: Output format (default: by FILE's suffix, else jsonl).
""")
@vector_options
@declare(
    """
--on-error
--precision [float32|bfloat16|int8|auto]
--threads
--device
--processes
--verbose
""",
    on_error={"default": "stop"},
)
def encode(
    texts: tuple[str, ...],
    model: str | None,
    input_path: str | None,
    output_path: str | None,
    form: str | None,
    on_error: str,
    verbose: bool,
    **options: Any,
) -> None:
    """Turn TEXTs, the lines of a file, or standard input into vectors.

    -m names the model. The default is minilm, for English.
    """
    model_options = {name: options.pop(name) for name in ("precision", "threads", "device", "processes")}
    vectors_MD = calibration_vectors(options)
    if form is None and output_path not in (None, "-"):
        suffix = PurePath(output_path).suffix.lower()
        if suffix not in FORMATS:
            raise InputError(f"{output_path}: cannot tell the format from {suffix or 'no suffix'!r}; give --format")
        form = FORMATS[suffix]
    write = _WRITERS[form or "jsonl"]
    lines = open_lines(texts, input_path, on_error)
    with open_output(output_path) as output, Progress() as progress:
        if write is _write_npy and output.is_terminal():
            raise InputError("npy is not for a terminal; name a file with -o")
        start = time.monotonic()
        encoder, compiling = open_model("Encoder", model, progress, **model_options)
        encode_options = chosen_vectors(options, vectors_MD, lambda: encoder)
        lengths = Lengths(encoder, encode_options)
        if options["long"] == "error":
            lines.refuse = lengths.refusal
        loaded = time.monotonic()
        progress.enabled &= not output.is_terminal()
        results = _results(encoder, lines, encode_options, lengths, progress, loaded)
        write(output, results, encoder.encode([], **encode_options), on_error == "mark")
    if options["long"] in (None, "truncate") and (remark := lengths.remark()):
        say(f"fastattn: {remark}", err=True)
    if verbose:
        report(lines, start, loaded, compiling)
    lines.check("encoded")


def _results(
    encoder: "Encoder", lines: InputLines, options: dict[str, Any], lengths: Lengths, progress: Progress, start: float
) -> Iterator[tuple[InputLine, "np.ndarray"]]:
    """(line, vector_E) of each line, in order; only lines that the encoder reads ahead are in memory."""
    for burst in lines.bursts():
        for vector_E in encoder.encode_iter(burst, **options):
            line = lines.finish()
            if line.error is None:
                lengths.note(line.text)
            else:
                vector_E[:] = float("nan") if vector_E.dtype.kind == "f" else 0
            progress.show(pace(lines, time.monotonic() - start))
            yield line, vector_E


def _write_jsonl(output: OutputFile, results: "_Results", none_0E: "np.ndarray", marks: bool) -> None:
    """``marks``: write the reason in the place of a line that failed."""
    for line, vector_E in results:
        numbers = ", ".join(json_decimals(vector_E))
        embedding = f"[{numbers}]" if line.error is None else "null"
        reason = f', "error": {as_json(str(line.error))}' if line.error is not None and marks else ""
        output.write(f'{{"text": {as_json(line.text)}, "embedding": {embedding}{reason}}}\n'.encode())
        output.flush()


def _write_csv(output: OutputFile, results: "_Results", none_0E: "np.ndarray", marks: bool) -> None:
    for _, vector_E in results:
        output.write(",".join(decimals(vector_E)).encode() + b"\n")
        output.flush()


def _write_npy(output: OutputFile, results: "_Results", none_0E: "np.ndarray", marks: bool) -> None:
    """Write an array: a file grows, and its header is rewritten with the number of rows; a pipe gets all at the end.

    none_0E  an empty array of the vectors' type and width
    """
    parts: list[bytes] = []
    rows, width, stored = 0, none_0E.shape[1], none_0E.dtype.newbyteorder("<")  # the same on every machine
    write = output.write if output.rewritable else parts.append
    write(_npy_header(0, width, stored))
    for _, vector_E in results:
        rows += 1
        write(vector_E.astype(stored, copy=False).tobytes())
    header = _npy_header(rows, width, stored)
    if output.rewritable:
        output.rewrite_start(header)
    else:
        output.write(b"".join([header, *parts[1:]]))


def _npy_header(rows: int, width: int, stored: "np.dtype") -> bytes:
    """The file's header, of the same length for any ``rows`` (NumPy pads it for a growing first dimension)."""
    import io

    from numpy.lib import format

    buffer = io.BytesIO()
    format.write_array_header_1_0(buffer, {"descr": stored.str, "fortran_order": False, "shape": (rows, width)})
    return buffer.getvalue()


_WRITERS = {"npy": _write_npy, "jsonl": _write_jsonl, "csv": _write_csv}
