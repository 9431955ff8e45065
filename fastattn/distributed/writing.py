"""Rows and what was computed for them, as the contents of a Parquet or JSON lines file."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.formats.rows import BlockRows
from fastattn.errors import InputError
from fastattn.printable import json_decimals, json_line

if TYPE_CHECKING:
    import pyarrow


def as_file(rows: BlockRows, columns: "Mapping[str, pyarrow.Array]", form: str) -> Any:
    """Rows with further columns, as the bytes of a form: "parquet" or "jsonl"."""
    if form == "parquet":
        return as_parquet(rows.table(), columns)
    refuse_twice(names_in(rows, form), columns)
    return as_json_lines(rows.objects(), columns)


def names_in(rows: BlockRows, form: str) -> set[str]:
    """The names of the columns, or of all records' fields, that a file of the form has of the rows."""
    return set(rows.table().column_names) if form == "parquet" else set().union(*rows.records())


def as_parquet(table: "pyarrow.Table", columns: "Mapping[str, pyarrow.Array]") -> "pyarrow.Buffer":
    """The table with further columns after its own. InputError where it has one of their names already."""
    pa = import_pyarrow()
    refuse_twice(table.column_names, columns)
    for name, array in columns.items():
        table = table.append_column(name, array)
    # pandas and others describe all columns in the schema's metadata, which would lack the new ones.
    table = table.replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    # Dictionaries of values made the files of vectors 11% larger and five times slower to write, those of texts larger.
    pa.parquet.write_table(table, sink, compression="zstd", use_dictionary=False)
    return sink.getvalue()


def as_json_lines(objects: Sequence[str], columns: "Mapping[str, pyarrow.Array]") -> bytes:
    """A line for each object of JSON, with further fields after its own: texts, numbers, or lists of them.

    Numbers of float32 are the shortest decimals that give them back; those that JSON has no word for are null.
    """
    added = [(json_line(name), _json_values(array)) for name, array in columns.items()]
    lines = []
    for whole in objects:
        fields = whole[1:-1].strip()
        more = [f"{name}: {next(values)}" for name, values in added]
        lines.append("{" + ", ".join([fields] * bool(fields) + more) + "}\n")
    return "".join(lines).encode()


def refuse_twice(names: Container[str], columns: Iterable[str]) -> None:
    """Raise InputError where the input has one of the columns already."""
    for name in columns:
        if name in names:
            raise InputError(f"the input has a column {name!r} already; name the one to be written otherwise")


def _json_values(array: "pyarrow.Array") -> Iterator[str]:
    """The JSON of each value."""
    types = import_pyarrow().types
    if types.is_list(array.type) or types.is_fixed_size_list(array.type):
        for scalar in array:
            yield f"[{', '.join(_json_values(scalar.values))}]" if scalar.is_valid else "null"
    elif types.is_string(array.type):
        yield from map(json_line, array.to_pylist())
    else:
        yield from json_decimals(array.to_numpy(zero_copy_only=False))
