"""A server's settings, as plain data that its worker processes get too."""

import json
import os
from dataclasses import asdict

from fastattn.errors import FastattnError, InputError
from fastattn.system.files import open_text
from fastattn.system.records import dataclass

VARIABLE = "FASTATTN_SERVE"  # where worker processes find it
HEAD_BYTES = 16 << 10  # the most of a request's line and headers


class Refusal(FastattnError):
    """An answer to a request by an HTTP status of 4xx or 5xx, and a line.

    retry_after  seconds after which the client may try again; None: trying again is of no use
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass(frozen=True)
class ServerSettings:
    """The options of ``fastattn serve``; times in seconds."""

    models: tuple[tuple[str, str], ...]  # (name, path) of each
    lazy: bool = False  # whether they are loaded when first used
    idle: float = 0.0  # after how long a model that nobody uses is put away; 0: never
    precision: str = "auto"
    threads: int | None = None  # of each process; None: all
    processes: int = 1
    characters: int = 50_000  # the most of all texts of a request together
    items: int = 1_000  # the most texts of a request
    requests: int = 256  # the most in progress at once, those that wait for a model included
    timeout: float = 120.0  # for a request, from its first byte to the last of its answer
    origins: tuple[str, ...] = ()  # that browsers may ask from (CORS)
    keys: str = ""  # a file of API keys; "": nobody needs one
    log_texts: bool = False  # whether the log has what is translated
    strict: bool = False  # whether unknown fields of requests are refused
    folder: str = ""  # of glossaries and documents, which worker processes share; "": each server's own

    @property
    def body_bytes(self) -> int:
        """The most bytes of a request's body: characters as JSON may escape them, and JSON around each text."""
        return 12 * self.characters + 64 * self.items + 4096

    def publish(self) -> None:
        """Make the settings available to ``published``, in this process and its children."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def published(cls) -> "ServerSettings":
        fields = json.loads(os.environ[VARIABLE])
        fields["models"], fields["origins"] = tuple(map(tuple, fields["models"])), tuple(fields["origins"])
        return cls(**fields)


def read_keys(path: str) -> dict[bytes, int]:
    """key -> characters a minute (0: no quota), of a file with a key a line, perhaps a blank and the quota.

    Empty lines, and lines that begin with #, are skipped. Raises InputError for a file or a line that cannot be read.
    """
    quotas: dict[bytes, int] = {}
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2 or not all(word.isascii() and word.isdecimal() for word in words[1:]):
                raise InputError(f"{path}, line {number}: expected a key, perhaps a blank and its characters a minute")
            quotas[words[0].encode()] = int(words[1]) if len(words) == 2 else 0
    if not quotas:
        raise InputError(f"{path}: has no key")
    return quotas
