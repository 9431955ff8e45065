"""What the commands that make vectors share: options of an Encoder's calls, a count of cut lines, vector files."""

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.options import TEXT, declare, without_none
from fastattn.errors import InputError, described
from fastattn.printable import counted
from fastattn.system.files import as_text, open_bytes, raw_lines

if TYPE_CHECKING:
    import numpy as np

    from fastattn.encoders.encoder import Encoder

# The options from which ``encode_arguments`` makes an Encoder's arguments.
vector_options = declare(
    """
--normalize/--no-normalize: Scale vectors to unit length (default: as the model says).
--pooling MODE[,MODE]: cls, max, mean, mean_sqrt_len, mean_sqrt_len_tokens, weightedmean, lasttoken (default: as the
    model says).
--truncate-dim INTEGER>=1: Keep this many first dimensions (default: all).
--prompt TEXT: Put TEXT before each line; '' for nothing (default: the model's own).
--prompt-name NAME: Put the model's prompt of that name before each line.
--task [query|document]: What the lines are: put the model's prompt for queries or documents before each, if it has one.
--long [truncate|mean|error]: What becomes of a line with more tokens than the model takes (default: truncate).
--output-dtype [float32|int8|uint8|binary|ubinary]: Type of the numbers written (default: float32).
--calibration FILE: A file of float vectors: each dimension's range there becomes that of int8 or uint8.
""",
    prompt_name={"type": TEXT},
)


def calibration_vectors(options: dict[str, Any]) -> "np.ndarray | None":
    """The vectors in the file of --calibration; click.UsageError for options that exclude each other."""
    if options["prompt"] is not None and options["prompt_name"] is not None:
        raise click.UsageError("give --prompt or --prompt-name, not both")
    if (options["output_dtype"] in ("int8", "uint8")) != (options["calibration"] is not None):
        raise click.UsageError("--output-dtype int8 and uint8 need --calibration, others take none")
    return None if options["calibration"] is None else open_array(options["calibration"])


def encode_arguments(
    options: dict[str, Any], calibration_MD: "np.ndarray | None", get_encoder: "Callable[[], Encoder]"
) -> dict[str, Any]:
    """The options of ``vector_options`` as arguments of ``Encoder.encode``.

    get_encoder  returns the encoder, whose width is needed; called only with ``calibration_MD``
    """
    pooling = None if options["pooling"] is None else tuple(options["pooling"].split(","))
    arguments = {name: value for name, value in options.items() if name not in ("calibration", "pooling", "normalize")}
    arguments = without_none(**arguments, normalize_embeddings=options["normalize"], pooling=pooling)
    if calibration_MD is not None:
        from fastattn.vectors.quantized import calibrated_ranges

        width = get_encoder().encode([], **arguments | {"output_dtype": "float32"}).shape[1]
        arguments["ranges"] = calibrated_ranges(calibration_MD, width)
    return arguments


# The most lines, and characters of lines, whose tokens are counted at once.
MOST_LINES, MOST_CHARACTERS = 256, 1 << 18


class LineLimit:
    """Compares each line's number of tokens with the encoder's limit.

    options  arguments of ``Encoder.encode``: the tokens of a prompt count too
    """

    def __init__(self, encoder: "Encoder", options: dict[str, Any]):
        from fastattn.encoders.encoder import TokenLimit  # imports NumPy, which --help does not need

        self._limit = TokenLimit(encoder, options)
        self._uncounted_lines, self._characters = list[str](), 0  # lines whose tokens are not counted yet
        self._line_count = self._cut_lines = self._cut_tokens = 0

    def refusal(self, text: str) -> str | None:
        token_counts = self._limit.exceeded([text])
        return self._limit.refusal(token_counts[0]) if token_counts else None

    def note(self, text: str) -> None:
        """Count an encoded line, and its tokens if it may have been cut."""
        self._line_count += 1
        if not self._limit.may_exceed(text):
            return
        self._uncounted_lines.append(text)
        self._characters += len(text)
        if len(self._uncounted_lines) >= MOST_LINES or self._characters >= MOST_CHARACTERS:
            self._count()

    def remark(self) -> str | None:
        self._count()
        if not self._cut_lines:
            return None
        lines = f"{self._cut_lines:,} of {counted(self._line_count, 'line')}"
        verb = "was" if self._cut_lines == 1 else "were"
        tokens = counted(self._cut_tokens, "token")
        return f"{lines} {verb} cut at {self._limit.max_length:,} tokens, by {tokens} in all; --long mean cuts nothing"

    def _count(self) -> None:
        for tokens in self._limit.exceeded(self._uncounted_lines).values():
            self._cut_lines += 1
            self._cut_tokens += tokens - self._limit.max_length
        self._uncounted_lines, self._characters = [], 0


FORMATS = {".npy": "npy", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}  # suffix -> form


def open_array(path: str) -> "np.ndarray":
    """The array in a file: a .npy is mapped, JSON lines and CSV are read row by row; InputError for other contents."""
    import numpy as np

    if (form := FORMATS.get(PurePath(path).suffix.lower(), "npy")) != "npy":
        return _read_rows(path, form)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'not a .npy file'}") from None
    except (ValueError, EOFError, OverflowError, MemoryError):
        raise InputError(f"{path}: a .npy file with an array of numbers is expected") from None
    if not isinstance(array, np.ndarray):  # a .npz
        raise InputError(f"{path}: a .npy file with one array is expected, not an archive of several")
    return array


def _read_rows(path: str, form: str) -> "np.ndarray":
    """An array of at least one column from JSON lines or CSV; a line without a vector is NaN, among whole numbers 0."""
    import numpy as np

    rows: list[np.ndarray | None] = []
    with open_bytes(path) as file:
        for number, line in enumerate(raw_lines(file, path), start=1):
            rows.append(_parse_row(as_text(line, number, path), form, f"{path}, line {number}"))
    vectors = [row for row in rows if row is not None]
    widths = sorted({len(vector) for vector in vectors})
    if len(widths) > 1:
        raise InputError(f"{path}: rows of one width are expected, got {widths[0]} and {widths[-1]} numbers")
    is_whole = bool(vectors) and all(vector.dtype == np.int64 for vector in vectors)
    array = np.full((len(rows), *(widths or [1])), 0 if is_whole else np.nan, np.int64 if is_whole else np.float32)
    for array_row, row in zip(array, rows):
        if row is not None:
            array_row[:] = row
    if not is_whole:
        return array
    least, most = int(array.min()), int(array.max())
    if least < -128 or most > 255 or (least < 0 and most > 127):
        raise InputError(f"{path}: whole numbers of int8 or uint8 are expected, got {least} to {most}")
    if least >= 0 and most <= 127:
        raise InputError(f"{path}: cannot tell int8 from uint8 where all numbers are 0 to 127; write .npy")
    return array.astype("int8" if least < 0 else "uint8")


def _parse_row(line: str, form: str, location: str) -> "np.ndarray | None":
    """The numbers of a line, int64 if all are whole, else float32; None for a line without a vector."""
    import numpy as np

    try:
        values: Any = line.split(",") if form == "csv" else json.loads(line)["embedding"]
        if values is None:
            return None
        if form == "csv":
            values = [int(value) if value.lstrip("-").isdecimal() else float(value) for value in values]
        if values and all(type(value) is int for value in values):
            return np.array(values, np.int64)
        if not values or not all(value is None or type(value) in (int, float) for value in values):
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(values, np.float32)  # None becomes NaN
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        expected = "numbers between commas" if form == "csv" else '{"embedding": [numbers]}'
        raise InputError(f"{location}: {expected} expected, got {described(line)}") from None
