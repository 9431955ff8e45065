"""Arrays from the files that ``fastattn encode`` writes: .npy, JSON lines and CSV."""

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from fastattn.errors import InputError, described
from fastattn.system.files import as_text, open_bytes, raw_lines

if TYPE_CHECKING:
    import numpy as np

FORMATS = {".npy": "npy", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}  # by a file's suffix


def open_array(path: str) -> "np.ndarray":
    """The array of a file: a .npy is mapped and not read, JSON lines and CSV have an array's rows.

    Raises InputError where it holds none, or Python objects.
    """
    form = FORMATS.get(PurePath(path).suffix.lower(), "npy")
    return _mapped(path) if form == "npy" else _rows(path, form)


def _mapped(path: str) -> "np.ndarray":
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'not a .npy file'}") from None
    except (ValueError, EOFError, OverflowError, MemoryError):
        raise InputError(f"{path}: a .npy file with an array of numbers is expected") from None
    if not isinstance(array, np.ndarray):  # a .npz
        raise InputError(f"{path}: a .npy file with one array is expected, not an archive of several")
    return array


def _rows(path: str, form: str) -> "np.ndarray":
    """The rows of JSON lines or CSV, one number at least; a line that failed has NaN, or zeros where all are whole."""
    import numpy as np

    rows: list[np.ndarray | None] = []
    with open_bytes(path) as file:
        for number, line in enumerate(raw_lines(file, path), start=1):
            rows.append(_row(as_text(line, number, path), form, f"{path}, line {number}"))
    found = [row for row in rows if row is not None]
    widths = sorted({len(row) for row in found})
    if len(widths) > 1:
        raise InputError(f"{path}: rows of one width are expected, got {widths[0]} and {widths[-1]} numbers")
    whole = bool(found) and all(row.dtype == np.int64 for row in found)
    array = np.full((len(rows), *(widths or [1])), 0 if whole else np.nan, np.int64 if whole else np.float32)
    for filled, row in zip(array, rows):
        if row is not None:
            filled[:] = row
    return array.astype(_bytes_of(array, path)) if whole else array


def _row(line: str, form: str, location: str) -> "np.ndarray | None":
    """A line's numbers, int64 where all are whole, else float32; None for a line that failed."""
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
        wanted = "numbers between commas" if form == "csv" else '{"embedding": [numbers]}'
        raise InputError(f"{location}: {wanted} expected, got {described(line)}") from None


def _bytes_of(array: "np.ndarray", path: str) -> str:
    """The type of an array's whole numbers, int8 or uint8."""
    least, most = int(array.min()), int(array.max())
    if least < -128 or most > 255 or (least < 0 and most > 127):
        raise InputError(f"{path}: whole numbers of int8 or uint8 are expected, got {least} to {most}")
    if least >= 0 and most <= 127:
        raise InputError(f"{path}: cannot tell int8 from uint8 where all numbers are 0 to 127; write .npy")
    return "int8" if least < 0 else "uint8"
