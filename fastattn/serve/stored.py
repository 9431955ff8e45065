"""What clients leave with a server: glossaries and translated documents, as files that all its processes share."""

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


class Stored(NamedTuple):
    """A stored file: its fields, and its content."""

    id: str
    fields: dict[str, Any]
    content: bytes


class FileStore:
    """Files of one kind.

    most     of each caller
    seconds  after which a file goes
    """

    def __init__(self, folder: Path, most: int, seconds: float):
        self._folder, self._most, self._seconds = folder, most, seconds

    def put(self, caller: Hashable, content: bytes, **fields: Any) -> Stored:
        """Keep content for a caller; Refusal as ``check_room``."""
        self.check_room(caller)
        stored = Stored(uuid.uuid4().hex, {**fields, "created": time.time()}, content)
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(0o700, exist_ok=True)
        (self._folder / f"{stored.id}.content").write_bytes(content)
        entry = json.dumps({"caller": str(caller), "fields": stored.fields}).encode()
        write_whole(self._folder / f"{stored.id}.json", lambda file: file.writelines([entry]))
        return stored

    def check_room(self, caller: Hashable) -> None:
        """Refusal if the caller has as many files as a caller may have."""
        if len(self.of(caller)) >= self._most:
            raise Refusal(429, f"{self._most} files are kept for each caller: delete some")

    def of(self, caller: Hashable) -> list[Stored]:
        """The caller's files without their contents, oldest first; those of all callers that are too old go."""
        files = [self._read(path.stem, caller) for path in self._folder.glob("*.json")]
        return sorted(filter(None, files), key=lambda stored: stored.fields["created"])

    def get(self, caller: Hashable, name: str) -> Stored:
        """One of the caller's files; Refusal if there is none with this id."""
        name = name.replace("-", "")
        stored = self._read(name, caller) if ID.fullmatch(name) else None
        if stored is None:
            raise Refusal(404, "there is nothing with this id")
        return stored._replace(content=(self._folder / f"{name}.content").read_bytes())

    def delete(self, caller: Hashable, name: str) -> None:
        self._remove(self.get(caller, name).id)

    def _read(self, name: str, caller: Hashable) -> Stored | None:
        """The caller's file of this id, if it is there and not too old."""
        try:
            entry = json.loads((self._folder / f"{name}.json").read_bytes())
        except FileNotFoundError:  # another process may have removed it
            return None
        if time.time() - entry["fields"]["created"] > self._seconds:
            self._remove(name)
            return None
        return Stored(name, entry["fields"], b"") if entry["caller"] == str(caller) else None

    def _remove(self, name: str) -> None:
        for suffix in (".json", ".content"):
            (self._folder / f"{name}{suffix}").unlink(missing_ok=True)
