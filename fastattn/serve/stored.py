"""What clients leave with a server: glossaries and translated documents, as files that all its processes share."""

import json
import time
import uuid
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fastattn.serve.settings import Refusal
from fastattn.system.atomic_files import write_whole


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
        """Keep content for a caller; Refusal if the caller has as many files as a caller may have."""
        if len(self.of(caller)) >= self._most:
            raise Refusal(429, f"{self._most} files are kept for each caller: delete some")
        stored = Stored(uuid.uuid4().hex, {**fields, "created": time.time()}, content)
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(0o700, exist_ok=True)
        (self._folder / f"{stored.id}.content").write_bytes(content)
        entry = json.dumps({"caller": str(caller), "fields": stored.fields}).encode()
        write_whole(self._folder / f"{stored.id}.json", lambda file: file.writelines([entry]))
        return stored

    def of(self, caller: Hashable) -> list[Stored]:
        """The caller's files, oldest first; those that are too old go."""
        files = list[Stored]()
        for path in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):  # another process has removed it
                entry = json.loads(path.read_bytes())
                if time.time() - entry["fields"]["created"] > self._seconds:
                    self._remove(path.stem)
                elif entry["caller"] == str(caller):
                    files.append(Stored(path.stem, entry["fields"], path.with_suffix(".content").read_bytes()))
        return sorted(files, key=lambda stored: stored.fields["created"])

    def get(self, caller: Hashable, name: str) -> Stored:
        """One of the caller's files; Refusal if there is none with this id."""
        found = [stored for stored in self.of(caller) if stored.id == name.replace("-", "")]
        if not found:
            raise Refusal(404, "there is nothing with this id")
        return found[0]

    def delete(self, caller: Hashable, name: str) -> None:
        self._remove(self.get(caller, name).id)

    def _remove(self, name: str) -> None:
        for suffix in (".json", ".content"):
            (self._folder / f"{name}{suffix}").unlink(missing_ok=True)
