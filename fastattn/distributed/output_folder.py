"""The output of a job: a file for each block, and records of finished blocks, so that the next run skips these.

OUT/part-00000012.parquet                    the rows of block 12
OUT/_fastattn/job.json                       the job: ``CorpusJob``
OUT/_fastattn/finished/00000012.json         the record of block 12, written after the block's part
OUT/_fastattn/set-aside/00000012.jsonl, .json  the rows of a block that failed, and its record
OUT/_fastattn/lock, or leases/               which process is at work
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_pyarrow
from fastattn.distributed.formats.blocks import BlockRows
from fastattn.distributed.job import CorpusJob, are_texts, is_count, is_text, parse_object
from fastattn.distributed.output_stores import Buffer, LocalStore, ObjectStore, Store
from fastattn.distributed.storage import filesystem, public_url
from fastattn.errors import InputError
from fastattn.printable import json_decimals, json_line
from fastattn.system.worker_threads import map_in_threads

if TYPE_CHECKING:
    import pyarrow

Record = dict[str, Any]  # plain data

_STATE = "_fastattn"
_JOB, _FINISHED, _SET_ASIDE = f"{_STATE}/job.json", f"{_STATE}/finished", f"{_STATE}/set-aside"
_RECORD_NAME = re.compile(r"(\d{8,12})\.json")
_LARGEST_JOB, _LARGEST_RECORD = 1 << 28, 1 << 20  # bytes; longer contents are read in part, which is no JSON
_READER_THREADS = 16  # for records: an object store answers a request after some 20 ms


class OutputFolder:
    """A local path or a URL to which any process on any host writes blocks of a form, "parquet" or "jsonl".

    ``name`` is for messages. ``url`` is for other processes: absolute, and with the URL's secrets.
    """

    def __init__(self, url: str, form: str):
        if not url:
            raise InputError("the folder of the output has no name")
        self.name, self.url = public_url(url).rstrip("/") or "/", url
        self._form = form
        system, path = filesystem(url)
        if system.type_name != "local":
            self._store: Store = ObjectStore(system, path, self.name)
            return
        self.url = os.path.abspath(path)
        if os.path.lexists(self.url) and not os.path.isdir(self.url):
            raise InputError(f"cannot write {self.name}: it is no folder")
        self._store = LocalStore(self.url, self.name)

    def hold(self) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Keep other jobs out, and delete what killed jobs left. FastattnError if another job is at work.

        Yields a function that raises StorageError if the folder is no longer held, which can happen to leases only.
        InputError, before anything is written, if the folder has files but no job.
        """
        self._refuse_other_files()
        return self._store.hold(_STATE, ["", _STATE, _FINISHED, _SET_ASIDE])

    def begin(self, job: CorpusJob) -> CorpusJob:
        """The job that was first begun here; if there is none, ``job``, which is written.

        InputError, with the differences, if another job was begun here; if the folder has files but no job; for a job
        of too many files.
        """
        data = self._store.read(_JOB, _LARGEST_JOB)
        if data is None:
            self._refuse_other_files()
            self.write_job(job)
            return job
        first = CorpusJob.from_json(data, f"{self.name}/{_JOB}")
        differences = job.differences(first)
        if differences:
            raise InputError(f"{self.name} holds another job: {'; '.join(differences)}; name another folder")
        return first

    def write_job(self, job: CorpusJob) -> None:
        """Write the job; a job that it replaces has no differences but the times of files."""
        data = job.as_json()
        if len(data) >= _LARGEST_JOB:
            fault = f"{len(job.files):,} input files are too many for one job"
            raise InputError(f"{fault}: their names alone have more than {_LARGEST_JOB:,} bytes; begin several jobs")
        self._store.write(_JOB, data)

    def finished_records(self) -> dict[int, Record]:
        """Number -> record of each block whose part is intact, in order."""
        sizes = {name: entry.size for name, entry in self._store.list("").items()}
        matches = (_RECORD_NAME.fullmatch(name) for name in self._store.list(_FINISHED))
        numbers = sorted({int(match[1]) for match in matches if match})

        def valid_record(number: int) -> Record | None:
            return self._valid_record(number, sizes.get(self._part_file(number)))

        records = map_in_threads(valid_record, numbers, _READER_THREADS)
        return {number: record for number, record in zip(numbers, records) if record is not None}

    def finished_block(self, number: int) -> Record | None:
        """The record of a block whose part is intact, or None."""
        return self._valid_record(number, self._store.size(self._part_file(number)))

    def write_block(self, number: int, data: Buffer, record: Record) -> Record:
        """Write a block's part, then its record; returns the record with the block's number, part, bytes and digest.

        record  at least the other fields of ``_RECORD_CHECKS``, without which the block counts as unfinished
        If the block was set aside before, its files there are deleted. A StorageError leaves the block unfinished.
        """
        name = self._part_file(number)
        digest = hashlib.sha256(data).hexdigest()
        record = record | {"block": number, "file": name, "bytes": memoryview(data).nbytes, "digest": digest}
        self._store.write(name, data)
        self._store.write(f"{_FINISHED}/{number:08d}.json", json.dumps(record).encode() + b"\n")
        for suffix in ("json", "jsonl"):
            self._store.delete(f"{_SET_ASIDE}/{number:08d}.{suffix}")
        return record

    def set_aside(self, number: int, rows: bytes, record: Record) -> Record:
        """Write the rows of a block that failed, as JSON lines, then its record; returns the record with the number.

        record  at least the field "error"
        """
        record = record | {"block": number}
        self._store.write(f"{_SET_ASIDE}/{number:08d}.jsonl", rows)
        self._store.write(f"{_SET_ASIDE}/{number:08d}.json", json.dumps(record).encode() + b"\n")
        return record

    def _part_file(self, number: int) -> str:
        return part_name(number, self._form)

    def _valid_record(self, number: int, size: int | None) -> Record | None:
        """The record of a block whose part has this size and is intact, or None; size None: there is no part."""
        record = parse_object(self._store.read(f"{_FINISHED}/{number:08d}.json", _LARGEST_RECORD) or b"")
        if record is None or not all(is_valid(record.get(field)) for field, is_valid in _RECORD_CHECKS.items()):
            return None
        part = self._part_file(number)
        is_of_part = (record["block"], record["file"], record["bytes"]) == (number, part, size)
        return record if is_of_part and self._store.is_intact(part, record["digest"]) else None

    def _refuse_other_files(self) -> None:
        """Raise InputError if the folder has files but no job; hidden files do not count."""
        if self._store.read(_JOB, _LARGEST_JOB) is None:
            other_files = sorted(name for name in self._store.list("") if name != _STATE and not name.startswith("."))
            if other_files:
                contents = f"other files ({other_files[0]}) and no job"
                raise InputError(f"{self.name} holds {contents}; name a folder that is empty or new")


def part_name(number: int, form: str) -> str:
    return f"part-{number:08d}.{form}"


_RECORD_CHECKS = {
    **dict.fromkeys(("block", "start", "stop", "rows", "null", "cut", "faults", "fault_at"), is_count),
    **dict.fromkeys(("tokens", "size", "bytes"), is_count),
    **dict.fromkeys(("url", "input", "file", "digest", "host"), is_text),
    "first_faults": are_texts,
    "seconds": lambda value: type(value) in (int, float) and 0 <= value < 1e12,
}


def as_file(rows: BlockRows, columns: "Mapping[str, pyarrow.Array]", form: str) -> Any:
    """Rows and their new columns as the bytes of a file of a form, "parquet" or "jsonl"."""
    if form == "parquet":
        return as_parquet(rows.table(), columns)
    refuse_duplicates(names_in(rows, form), columns)
    return as_json_lines(rows.objects(), columns)


def names_in(rows: BlockRows, form: str) -> set[str]:
    """The names of the rows' columns, or of the fields that any row has, in a file of this form."""
    return set(rows.table().column_names) if form == "parquet" else set().union(*rows.records())


def as_parquet(table: "pyarrow.Table", columns: "Mapping[str, pyarrow.Array]") -> "pyarrow.Buffer":
    """A table with new columns behind its own, as Parquet. InputError if the table has a column of a new name."""
    pa = import_pyarrow()
    refuse_duplicates(table.column_names, columns)
    for name, array in columns.items():
        table = table.append_column(name, array)
    # pandas and others describe all columns in the schema's metadata, in which the new columns would be missing.
    table = table.replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    # With dictionaries of values, files of vectors were 11% larger and took five times as long; files of texts grew.
    pa.parquet.write_table(table, sink, compression="zstd", use_dictionary=False)
    return sink.getvalue()


def as_json_lines(objects: Sequence[str], columns: "Mapping[str, pyarrow.Array]") -> bytes:
    """A line for each JSON object, with new fields behind its own: texts, numbers, or lists of texts or numbers.

    A float32 is written as the shortest decimal that reads as the same float32; NaN and infinity are null.
    """
    new_columns = [(json_line(name), _json_values(array)) for name, array in columns.items()]
    lines = []
    for json_object in objects:
        fields = json_object[1:-1].strip()
        new_fields = [f"{name}: {next(values)}" for name, values in new_columns]
        lines.append("{" + ", ".join([fields] * bool(fields) + new_fields) + "}\n")
    return "".join(lines).encode()


def refuse_duplicates(names: Container[str], columns: Iterable[str]) -> None:
    """Raise InputError if the input already has one of the columns."""
    for name in columns:
        if name in names:
            raise InputError(f"the input has a column {name!r} already; name the one to be written otherwise")


def _json_values(array: "pyarrow.Array") -> Iterator[str]:
    types = import_pyarrow().types
    if types.is_list(array.type) or types.is_fixed_size_list(array.type):
        for scalar in array:
            yield f"[{', '.join(_json_values(scalar.values))}]" if scalar.is_valid else "null"
    elif types.is_string(array.type):
        yield from map(json_line, array.to_pylist())
    else:
        yield from json_decimals(array.to_numpy(zero_copy_only=False))
