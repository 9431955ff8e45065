"""A Hugging Face hub on 127.0.0.1 for tests: the requests that huggingface_hub makes of models' files, and no more."""

import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.weights.forked import run_forked

COMMIT, LATER = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
# Kept elsewhere, as Git LFS has it: the file's address redirects.
LARGE = (".safetensors", ".bin", ".npz", ".argosmodel")


class Handler(BaseHTTPRequestHandler):
    server: "HubServer"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append((self.command, path, dict(self.headers)))
        parts = path.split("/")
        if self.server.busy:
            self.reply(self.server.busy.pop(0), b"{}")
        elif self.server.status:
            self.reply(self.server.status, b"{}")
        elif parts[0] == "stored":
            self.reply(200, self.server.stored[parts[1]], "application/octet-stream")
        elif parts[:2] == ["api", "models"]:
            self.describe("/".join(parts[2:4]), parts[4:])
        elif parts[2:3] == ["resolve"] and self.server.commit_of(parts[3]):
            self.resolve("/".join(parts[:2]), "/".join(parts[4:]), self.server.commit_of(parts[3]))
        else:
            self.reply(404, b"{}")
        self.server.answered(path)

    def refused(self, repo: str) -> bool:
        """Whether an answer has been given already: none such, or not without a token."""
        if repo not in self.server.repos:
            self.reply(401, b'{"error":"Repository not found"}', headers={"X-Error-Code": "RepoNotFound"})
        elif repo in self.server.gated and self.headers.get("Authorization") != f"Bearer {self.server.gated[repo]}":
            self.reply(403, b'{"error":"gated"}', headers={"X-Error-Code": "GatedRepo"})
        else:
            return False
        return True

    def describe(self, repo: str, rest: list[str]) -> None:
        # What a gated model is can be seen by everybody; its files cannot.
        if repo not in self.server.repos:
            self.refused(repo)
            return
        commit = self.server.commit_of(rest[1]) if len(rest) > 1 else self.server.commit
        if not commit:
            self.reply(404, b"{}", headers={"X-Error-Code": "RevisionNotFound"})
            return
        files = self.server.commits[commit][repo]
        if rest[:1] == ["tree"]:
            if not self.refused(repo):
                self.reply_json([_entry(name, content) for name, content in files.items()])
        elif not rest or rest[0] == "revision":
            siblings = [{"rfilename": name} for name in files]
            self.reply_json({"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "private": False})
        else:
            self.reply(404, b"{}")

    def resolve(self, repo: str, name: str, commit: str) -> None:
        if self.refused(repo):
            return
        content = self.server.commits[commit][repo].get(name)
        if content is None:
            self.reply(404, b"{}", headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        digest = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        if name.endswith(LARGE):
            self.server.stored[digest] = content
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{digest}"'}
            # Another host, or clients take it for a file that was renamed.
            elsewhere = self.server.url.replace("127.0.0.1", "localhost")
            self.reply(302, b"", headers=headers | {"Location": f"{elsewhere}/stored/{digest}"})
        else:
            self.reply(200, content, "application/octet-stream", headers)

    def reply_json(self, value: object) -> None:
        self.reply(200, json.dumps(value).encode())

    def reply(
        self, status: int, body: bytes, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **self.server.headers,
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def _entry(name: str, content: bytes) -> dict[str, object]:
    """A file as the listing of a commit has it."""
    digest = hashlib.sha256(content).hexdigest()
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": digest[:40]}
    if name.endswith(LARGE):
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
    return entry


class HubServer(ThreadingHTTPServer):
    """``with HubServer({"owner/name": files}) as server``: serves until the block ends.

    gated   name -> the token that opens it
    status  if not 0, the answer to everything
    busy    statuses that the next requests are answered with, one each, before any other answer
    headers  of every answer
    """

    daemon_threads = True

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commit = COMMIT
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.change(COMMIT, repos)
        self.answered: Callable[[str], None] = lambda path: None  # after each answer; a test may change something
        self.gated: dict[str, str] = {}
        self.status = 0
        self.busy: list[int] = []
        self.headers: dict[str, str] = {}
        self.stored: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def repos(self) -> dict[str, dict[str, bytes]]:
        """The files as they are now."""
        return self.commits[self.commit]

    def change(self, commit: str, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        """From now on main is this; what was before can still be asked for by its commit."""
        self.commits[commit] = {name: dict(files) for name, files in repos.items()}
        self.commit = commit

    def commit_of(self, revision: str) -> str:
        """Empty for one that there is not."""
        return self.commit if revision == "main" else revision if revision in self.commits else ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def downloaded(self) -> set[str]:
        """The files whose content was asked for."""
        names = [path.split("/", 4)[4] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]
        return set(names)

    def __enter__(self) -> "HubServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(server: HubServer | None, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process with a hub and a cache of its own; no server: an endpoint where nobody listens."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "FASTATTN_OFFLINE"))}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    url = server.url if server is not None else "http://127.0.0.1:9"
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    return run_forked(*arguments, environment=kept | settings | variables)


def command(
    server: HubServer | None, home: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return run(server, home, "-m", "fastattn.cli", *arguments, **variables)


# Prints for each command, of the list that is given, its exit status and errors.
COMMANDS = """
import json, sys
from click.testing import CliRunner
from fastattn.cli.entry import commands
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(commands, arguments, prog_name="fastattn")
    print(json.dumps([done.exit_code, done.stderr]))
"""


def fail_all(server: HubServer | None, home: Path, *expected: tuple[list[str], int, str], **variables: str) -> None:
    """One process runs several commands, each of which fails: (its arguments, its exit status, a part of its line)."""
    done = run(server, home, "-c", COMMANDS, json.dumps([arguments for arguments, _, _ in expected]), **variables)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(expected), done.stderr
    for (arguments, code, part), (status, errors) in zip(expected, found):
        assert (status, len(errors.splitlines())) == (code, 1) and part in errors, (arguments, status, errors)


def fails(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    return line
