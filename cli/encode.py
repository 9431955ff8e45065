"""``fastattn encode``: reads lines and writes a vector for each line, as .npy, JSON lines or CSV."""

import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.lines import InputLine, InputLines, open_lines, open_output, print_report, progress_text
from fastattn.cli.options import declare, open_model
from fastattn.cli.printing import Progress, as_json, say
from fastattn.cli.vector_options import FORMATS, LineLimit, calibration_vectors, encode_arguments, vector_options
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
        encoder, compilation = open_model("Encoder", model, progress, **model_options)
        encode_options = encode_arguments(options, vectors_MD, lambda: encoder)
        limit = LineLimit(encoder, encode_options)
        if options["long"] == "error":
            lines.refuse = limit.refusal
        load_end = time.monotonic()
        progress.enabled &= not output.is_terminal()
        results = _results(encoder, lines, encode_options, limit, progress, load_end)
        write(output, results, encoder.encode([], **encode_options), on_error == "mark")
    if options["long"] in (None, "truncate") and (remark := limit.remark()):
        say(f"fastattn: {remark}", err=True)
    if verbose:
        print_report(lines, start, load_end, compilation)
    lines.check("encoded")


def _results(
    encoder: "Encoder", lines: InputLines, options: dict[str, Any], limit: LineLimit, progress: Progress, start: float
) -> Iterator[tuple[InputLine, "np.ndarray"]]:
    """(line, vector_E) of each line, in order. Only the lines that the encoder reads ahead are in memory."""
    for burst in lines.bursts():
        for vector_E in encoder.encode_iter(burst, **options):
            line = lines.finish()
            if line.error is None:
                limit.note(line.text)
            else:
                vector_E[:] = float("nan") if vector_E.dtype.kind == "f" else 0
            progress.show(progress_text(lines, time.monotonic() - start))
            yield line, vector_E


def _write_jsonl(output: OutputFile, results: "_Results", empty_0E: "np.ndarray", with_reasons: bool) -> None:
    """Write JSON lines; ``with_reasons``: for a line that failed, write the reason too."""
    for line, vector_E in results:
        numbers = ", ".join(json_decimals(vector_E))
        embedding = f"[{numbers}]" if line.error is None else "null"
        reason = f', "error": {as_json(str(line.error))}' if line.error is not None and with_reasons else ""
        output.write(f'{{"text": {as_json(line.text)}, "embedding": {embedding}{reason}}}\n'.encode())
        output.flush()


def _write_csv(output: OutputFile, results: "_Results", empty_0E: "np.ndarray", with_reasons: bool) -> None:
    for _, vector_E in results:
        output.write(",".join(decimals(vector_E)).encode() + b"\n")
        output.flush()


def _write_npy(output: OutputFile, results: "_Results", empty_0E: "np.ndarray", with_reasons: bool) -> None:
    """Write an array. A file grows row by row, and its header is rewritten at the end; a pipe gets all at the end.

    empty_0E  an empty array of the vectors' type and width
    """
    parts: list[bytes] = []
    rows, width, stored_dtype = 0, empty_0E.shape[1], empty_0E.dtype.newbyteorder("<")  # little-endian everywhere
    write = output.write if output.rewritable else parts.append
    write(_npy_header(0, width, stored_dtype))
    for _, vector_E in results:
        rows += 1
        write(vector_E.astype(stored_dtype, copy=False).tobytes())
    header = _npy_header(rows, width, stored_dtype)
    if output.rewritable:
        output.rewrite_start(header)
    else:
        output.write(b"".join([header, *parts[1:]]))


def _npy_header(rows: int, width: int, stored_dtype: "np.dtype") -> bytes:
    """A .npy header, of the same length for any ``rows``, since NumPy pads it for a growing first dimension."""
    import io

    from numpy.lib import format

    buffer = io.BytesIO()
    format.write_array_header_1_0(buffer, {"descr": stored_dtype.str, "fortran_order": False, "shape": (rows, width)})
    return buffer.getvalue()


_WRITERS = {"npy": _write_npy, "jsonl": _write_jsonl, "csv": _write_csv}
