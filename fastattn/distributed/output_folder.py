"""The output of a job: a file a block, and beside it what is finished, so that the next run does what is missing.

OUT/part-00000012.parquet                    the rows of block 12
OUT/_fastattn/job.json                       what is written here: ``Job``
OUT/_fastattn/finished/00000012.json         the record of block 12; written after its part, which it describes
OUT/_fastattn/set-aside/00000012.jsonl, .json  the rows of a block that failed, and its record
OUT/_fastattn/lock, or leases/               who is at work
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

from fastattn.distributed.job import Job, is_count, parse_object, public
from fastattn.distributed.local_store import LocalStore
from fastattn.distributed.object_store import ObjectStore
from fastattn.distributed.storage import filesystem
from fastattn.distributed.store import Buffer, Store
from fastattn.errors import InputError
from fastattn.worker_threads import map_in_threads

Record = dict[str, Any]  # plain data

_ROOM = "_fastattn"
_JOB, _FINISHED, _SET_ASIDE = f"{_ROOM}/job.json", f"{_ROOM}/finished", f"{_ROOM}/set-aside"
_RECORD_NAME = re.compile(r"(\d{8,12})\.json")
_LARGEST_JOB, _LARGEST_RECORD = 1 << 28, 1 << 20  # bytes; what is cut there is no JSON, so it is not believed
_READERS = 16  # records read at a time: an object store answers each after some 20 ms


class OutputFolder:
    """A local path or a URL where blocks of a form ("parquet" or "jsonl") are written, by any process on any host.

    ``name`` is for messages; ``url`` for other processes: absolute, and with the URL's secrets.
    """

    def __init__(self, url: str, form: str):
        self.name = public(url).rstrip("/") or "/"
        self._form = form
        self.url, self._store = _store(url, self.name)

    @contextlib.contextmanager
    def hold(self) -> Iterator[Callable[[], None]]:
        """Keep other jobs out, and sweep what killed ones left. FastattnError where another is at work.

        Yields a function that raises StorageError if the folder is held no longer, which only leases may come to.
        InputError, before anything is written, where the folder has files that are no job's.
        """
        self._refuse_other_files()
        with self._store.hold(_ROOM, ["", _ROOM, _FINISHED, _SET_ASIDE]) as check:
            yield check

    def begin(self, job: Job) -> Job:
        """The job as it was first begun here; keeps ``job`` where there is none yet.

        InputError that says what differs where another job was begun here, or the folder has other files.
        """
        data = self._store.read(_JOB, _LARGEST_JOB)
        if data is None:
            self._refuse_other_files()
            self._store.write(_JOB, job.as_json())
            return job
        first = Job.from_json(data, f"{self.name}/{_JOB}")
        differences = job.differences(first)
        if differences:
            raise InputError(f"{self.name} holds another job: {'; '.join(differences)}; name another folder")
        return first

    def finished(self) -> dict[int, Record]:
        """The records of the blocks whose parts are there, by number, in order."""
        return self._finished(None)

    def finished_block(self, number: int) -> Record | None:
        """The record of a block whose part is there, or None."""
        record = self._record(_FINISHED, number)
        if record is None or record["file"] != self._part_name(number):
            return None
        return record if self._store.size(record["file"]) == record["bytes"] else None

    def aside(self) -> dict[int, Record]:
        """The records of the blocks that were set aside and are not finished, by number, in order."""
        aside = self._records(_SET_ASIDE, None)
        finished = self._finished(aside)
        return {number: record for number, record in aside.items() if number not in finished}

    def place(self, number: int, data: Buffer, record: Record) -> Record:
        """Write a block's part, then its record, with its number, the part's name and bytes, which is returned.

        record  with the rest of ``_FIELDS``, else the block counts as unfinished; more is kept as it is
        A block that was set aside before is so no longer. StorageError leaves the block unfinished.
        """
        name = self._part_name(number)
        record = record | {"block": number, "file": name, "bytes": memoryview(data).nbytes}
        self._store.write(name, data)
        self._store.write(f"{_FINISHED}/{number:08d}.json", _as_json(record))
        for suffix in ("json", "jsonl"):
            self._store.delete(f"{_SET_ASIDE}/{number:08d}.{suffix}")
        return record

    def set_aside(self, number: int, rows: bytes, record: Record) -> Record:
        """Keep the rows of a block that failed, as JSON lines, then its record, which is returned with its number.

        record  with the "error"; more is kept as it is
        """
        record = record | {"block": number}
        self._store.write(f"{_SET_ASIDE}/{number:08d}.jsonl", rows)
        self._store.write(f"{_SET_ASIDE}/{number:08d}.json", _as_json(record))
        return record

    def _part_name(self, number: int) -> str:
        return f"part-{number:08d}.{self._form}"

    def _finished(self, among: Container[int] | None) -> dict[int, Record]:
        parts = self._store.list("")
        records = self._records(_FINISHED, among)
        return {number: record for number, record in records.items() if self._has_part(number, record, parts)}

    def _has_part(self, number: int, record: Record, parts: dict[str, Any]) -> bool:
        name = self._part_name(number)
        return record["file"] == name and name in parts and record["bytes"] == parts[name].size

    def _records(self, folder: str, among: Container[int] | None) -> dict[int, Record]:
        matches = (_RECORD_NAME.fullmatch(name) for name in self._store.list(folder))
        named = {int(match[1]) for match in matches if match}
        numbers = sorted(number for number in named if among is None or number in among)
        records = map_in_threads(lambda number: self._record(folder, number), numbers, _READERS)
        return {number: record for number, record in zip(numbers, records) if record is not None}

    def _record(self, folder: str, number: int) -> Record | None:
        """A record, or None for what is none: a block is done again rather than believed to be finished."""
        data = self._store.read(f"{folder}/{number:08d}.json", _LARGEST_RECORD)
        record = parse_object(data or b"")
        if record is None or not all(is_right(record.get(field)) for field, is_right in _FIELDS[folder].items()):
            return None
        return record if record["block"] == number else None

    def _refuse_other_files(self) -> None:
        """Raise InputError where the folder has files but no job; hidden ones do not count."""
        if self._store.read(_JOB, _LARGEST_JOB) is None:
            others = sorted(name for name in self._store.list("") if name != _ROOM and not name.startswith("."))
            if others:
                raise InputError(
                    f"{self.name} holds other files ({others[0]}) and no job; name a folder that is empty or new"
                )


def _store(url: str, name: str) -> tuple[str, Store]:
    """(the folder's absolute path or URL, what it is kept in)"""
    found, path = filesystem(url)
    if found.type_name != "local":
        return url, ObjectStore(found, path, name)
    path = os.path.abspath(path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InputError(f"cannot write {name}: it is no folder")
    return path, LocalStore(path, name)


def _as_json(record: Record) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_SECONDS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_MOST_SECONDS = 1e12
_COUNTS = ("block", "rows", "null", "faults", "tokens", "size", "bytes")
_FIELDS = {
    _FINISHED: dict.fromkeys(_COUNTS, is_count)
    | {"first_faults": _is_texts, "seconds": _is_seconds, "input": _is_text, "file": _is_text, "host": _is_text},
    _SET_ASIDE: {"block": is_count, "error": _is_text},
}
