"""Parquet: a block is a range of rows, chosen by the footer and a few texts; row groups may have any size."""

import bisect
import hashlib
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.formats.blocks import BlockRows, CorpusBlock, check_text, missing_column
from fastattn.distributed.formats.json_lines import is_text, json_values, text_values
from fastattn.distributed.storage import InputFile, file_errors, open_input, public_url
from fastattn.errors import FastattnError, InputError
from fastattn.printable import counted

if TYPE_CHECKING:
    import pyarrow

_BATCH_ROWS, _BATCH_BYTES = 1024, 16 << 20  # the most that are decoded at once
_BUFFER_BYTES = 1 << 20  # of each column, read at once; by default pyarrow reads a row group's whole column
_SAMPLED_ROWS = 64  # of each row group: a dictionary stores equal texts once, so the footer may say too few bytes
_LEAST_TEXT = 32  # bytes that a shorter text counts
_MOST_FOOTER_BYTES = 32 << 20  # of all columns of a block, by the footer
_MOST_MEMORY_BYTES = 1 << 28  # of all columns of a block in memory, whatever the footer says
# Rows or bytes for each byte of a file: a byte of a column of nulls has ten thousand rows, and zstd expands as much.
_MOST_EACH_BYTE = 1 << 16


def cut(file: InputFile, column: str, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of rows whose texts have about ``block_bytes``; a range may lie in one row group or span several.

    The cost of a row is its share of a block: by its text or, if other columns are wide, by all columns.
    """
    start = stop = 0
    size = cost = 0.0
    for rows, text_bytes, all_bytes in _row_groups(file, column):
        row_bytes = max(text_bytes / rows, _LEAST_TEXT)
        share = max(row_bytes / block_bytes, all_bytes / rows / _MOST_FOOTER_BYTES)
        group_stop = stop + rows
        while stop < group_stop:
            fitting_rows = int((1 - cost) / share)
            if fitting_rows < 1 and stop > start:
                yield start, stop, int(size)
                start, size, cost = stop, 0.0, 0.0
                continue
            count = min(max(fitting_rows, 1), group_stop - stop)
            stop, size, cost = stop + count, size + count * row_bytes, cost + count * share
    if stop > start:
        yield start, stop, int(size)


def _row_groups(file: InputFile, column: str) -> Iterator[tuple[int, int, int]]:
    """Yield (rows, bytes of the column, bytes of all columns) of each row group with rows, before compression.

    The first texts are read before the footer's metadata of the column: for a damaged file, reading raises an error,
    but pyarrow's ``column`` would end the process.
    """
    with open_input(file.url) as stream:
        parquet = _parquet_file(stream, file.url)
        _check_column(parquet.schema_arrow, file.url, column)
        metadata, position = parquet.metadata, parquet.schema_arrow.get_field_index(column)
        # Not by the column's path, which a field of an earlier nested column may have too.
        index = sum(_leaf_columns(parquet.schema_arrow.field(earlier).type) for earlier in range(position))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows == 0:
                continue
            batches = parquet.iter_batches(_SAMPLED_ROWS, row_groups=[number], columns=[column], use_threads=False)
            sample = next(batches, None)
            if sample is None:
                raise InputError(f"{public_url(file.url)}: damaged, row group {number} has no rows")
            text_bytes = _average_bytes(sample.column(column)) * group.num_rows
            text_bytes = max(text_bytes, group.column(index).total_uncompressed_size)
            sizes = (group.num_rows, text_bytes, group.total_byte_size)
            if not all(0 <= size <= file.size * _MOST_EACH_BYTE for size in sizes):
                sizes_text = f"{sizes[0]:,} rows of {max(sizes[1:]):,} bytes"
                raise InputError(f"{public_url(file.url)}: its footer says {sizes_text}: damaged")
            yield sizes


def _leaf_columns(data_type: "pyarrow.DataType") -> int:
    """How many columns of Parquet store a table's column of this type."""
    data_type = getattr(data_type, "storage_type", data_type)
    return sum(_leaf_columns(data_type.field(number).type) for number in range(data_type.num_fields)) or 1


def _average_bytes(values: "pyarrow.Array") -> int:
    """The average number of bytes of a text."""
    pa = import_pyarrow()
    lengths = pa.compute.binary_length(values.cast(pa.large_string()).cast(pa.large_binary()))
    return int(sum(length or 0 for length in lengths.to_pylist()) / len(lengths))


def _parquet_file(stream: Any, url: str) -> Any:
    """A ParquetFile with its footer read; InputError if that fails."""
    with file_errors(url, InputError):
        parquet = import_pyarrow().parquet
        return parquet.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)


def _check_column(schema: "pyarrow.Schema", url: str, column: str) -> None:
    """Raise InputError unless the column exists, is text, and all columns have different names."""
    duplicate = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(f"{public_url(url)}: two columns have the name {duplicate!r}")
    if column not in schema.names:
        raise missing_column(url, column, schema.names)
    data_type = schema.field(column).type
    if not is_text(data_type):
        raise InputError(f"{public_url(url)}: the column {column!r} should hold strings, and is {data_type}")


def read(block: CorpusBlock, column: str) -> BlockRows:
    """The block's rows with all columns. Earlier rows of the block's first row group are decoded too."""
    with open_input(block.url) as stream:
        parquet = _parquet_file(stream, block.url)
        _check_column(parquet.schema_arrow, block.url, column)
        table = import_pyarrow().Table.from_batches(_batches(parquet, block), parquet.schema_arrow).combine_chunks()
    texts, faults, name = text_values(table.column(column)), {}, public_url(block.url)
    is_null = table.column(column).is_null().to_pylist()
    for row, text in enumerate(texts):
        location = f"{name}, row {block.start + row}"
        try:
            if text is not None:
                check_text(text, location)
            elif not is_null[row]:
                raise InputError(f"{location}: not UTF-8")
        except InputError as error:
            faults[row] = str(error)
    digest = _digest(table)
    if any(texts[row] is None for row in faults):  # bytes that are not UTF-8 become null
        field = table.schema.field(column).with_nullable(True)
        table = table.set_column(table.schema.get_field_index(column), field, import_pyarrow().array(texts, field.type))
    texts = [None if row in faults else text for row, text in enumerate(texts)]
    return ParquetRows(texts, faults, range(block.start, block.stop), digest, name, table)


def _batches(parquet: Any, block: CorpusBlock) -> "Iterator[pyarrow.RecordBatch]":
    groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
    stops = list(itertools.accumulate(group.num_rows for group in groups))
    if not stops or stops[-1] < block.stop:
        rows = counted(parquet.metadata.num_rows, "row")
        raise FastattnError(f"{public_url(block.url)} has {rows}, and had at least {block.stop:,} when it was cut")
    first, last = bisect.bisect_right(stops, block.start), bisect.bisect_left(stops, block.stop)
    position = stops[first] - groups[first].num_rows  # the first row of the next batch
    total_bytes = 0
    row_bytes = max(group.total_byte_size // max(group.num_rows, 1) for group in groups[first : last + 1])
    size = max(min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)), 1)
    for batch in parquet.iter_batches(size, row_groups=list(range(first, last + 1)), use_threads=False):
        block_part = batch.slice(max(block.start - position, 0), block.stop - max(position, block.start))
        position += batch.num_rows
        if position > block.start:
            total_bytes += block_part.nbytes
            if total_bytes > _MOST_MEMORY_BYTES:
                rows = f"{public_url(block.url)}: rows {block.start} to {block.stop}"
                raise InputError(f"{rows} hold more than {_MOST_MEMORY_BYTES:,} bytes; cut smaller blocks")
            yield block_part
        if position >= block.stop:
            return


def _digest(table: "pyarrow.Table") -> str:
    pa = import_pyarrow()
    sink = _HashingFile()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        writer.write_table(table)
    return sink.digest.hexdigest()


class _HashingFile(io.RawIOBase):
    """A file that only hashes what is written to it."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)


@dataclass
class ParquetRows(BlockRows):
    name: str
    input_table: "pyarrow.Table"

    def table(self) -> "pyarrow.Table":
        return self.input_table

    def records(self) -> list[dict[str, Any]]:
        """As in BlockRows; InputError if a column's type has no form in JSON."""
        names = self.input_table.schema.names
        columns = [json_values(self.input_table.column(name), name, self.name) for name in names]
        return [dict(zip(names, values)) for values in zip(*columns)]
