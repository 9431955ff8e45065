"""The settings of a server, as plain data, and what refuses requests."""

from fastattn.errors import FastattnError, InputError
from fastattn.system.files import open_text
from fastattn.system.records import dataclass

HEAD_BYTES = 16 << 10  # the most bytes of a request's line and headers


class Refusal(FastattnError):
    """What makes the answer to a request an HTTP status of 4xx or 5xx with a message of one line.

    retry_after  seconds after which the client may send the request again; None: sending it again is of no use
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass(frozen=True)
class ServerSettings:
    """The options of ``fastattn serve``; times in seconds."""

    models: tuple[tuple[str, str], ...]  # (name, path) of each model
    lazy: bool = False  # whether models are loaded at their first use
    idle: float = 0.0  # after how long a model that nobody uses is closed; 0: never
    precision: str = "auto"
    threads: int | None = None  # threads of each process; None: all CPUs
    processes: int = 1
    characters: int = 50_000  # the most characters of all texts of a request together
    items: int = 1_000  # the most texts of a request
    requests: int = 256  # the most requests in progress at once, including those that wait for a model
    timeout: float = 120.0  # the most time from a request's first byte to the last byte of its answer
    origins: tuple[str, ...] = ()  # origins of pages from which browsers may send requests (CORS)
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For names the client; '*' alone: all
    keys: str = ""  # a file of API keys; "": no request needs a key
    log_texts: bool = False  # whether the log has the bodies of requests
    strict: bool = False  # whether unknown fields of requests are refused
    folder: str = ""  # of clients' glossaries and documents, shared by worker processes; "": no client can leave any

    @property
    def body_bytes(self) -> int:
        """The most bytes of a request's body: all characters as JSON escapes, and the JSON around each text."""
        return 12 * self.characters + 64 * self.items + 4096


def read_keys(path: str) -> dict[bytes, int]:
    """Key -> characters a minute (0: no quota), from a file. A line has a key, perhaps followed by a blank and a quota.

    Empty lines and lines that begin with # are skipped. Raises InputError for a file or a line that cannot be read.
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
