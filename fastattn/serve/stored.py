"""Clients' glossaries and translated documents, as files that all processes of a server share."""

import json
import re
import time
import uuid
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

from fastattn.serve.settings import Refusal
from fastattn.system.atomic_files import write_whole

ID = re.compile("[0-9a-f]{32}")


class ClientFile(NamedTuple):
    """A caller's file: its content, and what describes the content."""

    id: str
    fields: dict[str, Any]
    content: bytes


class FileStore:
    """Files of one kind in a folder.

    limit    the most files of a caller
    seconds  the age at which a file is removed
    """

    def __init__(self, folder: Path, limit: int, seconds: float):
        self._folder, self._limit, self._seconds = folder, limit, seconds

    def put(self, caller: Hashable, content: bytes, **fields: Any) -> ClientFile:
        """Keep content for a caller; raises what ``check_room`` raises."""
        self.check_room(caller)
        stored = ClientFile(uuid.uuid4().hex, {**fields, "created": time.time()}, content)
        self._folder.mkdir(0o700, exist_ok=True)
        head = json.dumps({"caller": str(caller), "fields": stored.fields}).encode()
        write_whole(self._folder / stored.id, lambda file: file.writelines([head, b"\n", content]))
        return stored

    def check_room(self, caller: Hashable) -> None:
        """Refusal if the caller has as many files as a caller may have."""
        if len(self.files_of(caller)) >= self._limit:
            raise Refusal(429, f"{self._limit} files are kept for each caller: delete some")

    def files_of(self, caller: Hashable) -> list[ClientFile]:
        """The caller's files without their contents, oldest first; removes all callers' files that are too old."""
        files = [self._read(path.name, caller, 0) for path in self._folder.glob("*")]
        return sorted(filter(None, files), key=lambda stored: stored.fields["created"])

    def get(self, caller: Hashable, id: str) -> ClientFile:
        """The caller's file with this id, perhaps written with hyphens; Refusal if there is none."""
        if (stored := self._read(id.replace("-", ""), caller)) is None:
            raise Refusal(404, "there is nothing with this id")
        return stored

    def delete(self, caller: Hashable, id: str) -> None:
        (self._folder / self.get(caller, id).id).unlink(missing_ok=True)

    def _read(self, id: str, caller: Hashable, size: int = -1) -> ClientFile | None:
        """The caller's file with this id and so many bytes of its content; None if there is none or it is too old."""
        if not ID.fullmatch(id):
            return None
        try:
            with open(self._folder / id, "rb") as file:
                head, content = json.loads(file.readline()), file.read(size)
        except FileNotFoundError:  # another process may have removed it
            return None
        if time.time() - head["fields"]["created"] > self._seconds:
            (self._folder / id).unlink(missing_ok=True)
            return None
        return ClientFile(id, head["fields"], content) if head["caller"] == str(caller) else None
