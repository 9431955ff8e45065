"""A Hugging Face hub on 127.0.0.1 for tests: the requests that huggingface_hub makes of models' files, and no more."""

import hashlib
import json
import os
from urllib.parse import unquote, urlsplit

from tests.weights.download import index_server
from tests.weights.forked import run_forked

COMMIT, LATER = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
# Kept elsewhere, as Git LFS has it: the file's address redirects.
LARGE = (".safetensors", ".bin", ".npz", ".argosmodel")


class Handler(index_server.Handler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append((self.command, path, dict(self.headers)))
        status, body, headers = self.answer(path.split("/"))
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        usual = {"Content-Type": kind, "Content-Length": len(content)} | self.server.headers
        self.head(status, usual | headers)
        if self.command != "HEAD":
            self.wfile.write(content)
        self.server.answered(path)

    do_HEAD = do_GET

    def answer(self, parts):
        """(status, content or JSON, headers)."""
        server = self.server
        if server.busy or server.status:
            return server.busy.pop(0) if server.busy else server.status, {}, {}
        if parts[0] == "stored":
            return 200, server.stored[parts[1]], {}
        if parts[:2] == ["api", "models"]:
            return self.describe("/".join(parts[2:4]), *parts[4:])
        if parts[2:3] == ["resolve"] and server.commit_of(parts[3]):
            return self.resolve("/".join(parts[:2]), "/".join(parts[4:]), server.commit_of(parts[3]))
        return 404, {}, {}

    def refusal(self, repo):
        """None: there is one, and for those without a token or with the right one."""
        if repo not in self.server.repos:
            return 401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if repo in self.server.gated and self.headers.get("Authorization") != f"Bearer {self.server.gated[repo]}":
            return 403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"}
        return None

    def describe(self, repo, kind="revision", revision="main", *_):
        # What a gated model is can be seen by everybody; its files cannot.
        if repo not in self.server.repos:
            return self.refusal(repo)
        commit = self.server.commit_of(revision)
        if not commit:
            return 404, {}, {"X-Error-Code": "RevisionNotFound"}
        files = self.server.commits[commit][repo]
        if kind == "tree":
            return self.refusal(repo) or (200, [_entry(name, content) for name, content in files.items()], {})
        if kind != "revision":
            return 404, {}, {}
        siblings = [{"rfilename": name} for name in files]
        return 200, {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "private": False}, {}

    def resolve(self, repo, name, commit):
        refused = self.refusal(repo)
        if refused:
            return refused
        content = self.server.commits[commit][repo].get(name)
        if content is None:
            return 404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
        digest = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        if not name.endswith(LARGE):
            return 200, content, headers
        self.server.stored[digest] = content
        headers |= {"X-Linked-Size": len(content), "X-Linked-Etag": f'"{digest}"'}
        # Another host, or clients take it for a file that was renamed.
        elsewhere = self.server.url.replace("127.0.0.1", "localhost")
        return 302, {}, headers | {"Location": f"{elsewhere}/stored/{digest}"}


def _entry(name, content):
    """A file as the listing of a commit has it."""
    digest = hashlib.sha256(content).hexdigest()
    lfs = {"lfs": {"oid": digest, "size": len(content), "pointerSize": 130}} if name.endswith(LARGE) else {}
    return {"type": "file", "path": name, "size": len(content), "oid": digest[:40], **lfs}


class HubServer(index_server.IndexServer):
    """``with HubServer({"owner/name": files}) as server``: serves until the block ends.

    gated     name -> the token that opens it
    status    if not 0, the answer to everything
    busy      statuses that the next requests are answered with, one each, before any other answer
    headers   of every answer
    answered  called with the path after each answer; a test may change something
    """

    def __init__(self, repos):
        super().__init__(handler=Handler)
        self.commits, self.stored = {}, {}
        self.gated, self.status, self.busy, self.headers, self.answered = {}, 0, [], {}, lambda path: None
        self.change(COMMIT, repos)

    @property
    def repos(self):
        """The files as they are now."""
        return self.commits[self.commit]

    def change(self, commit, repos):
        """From now on main is this; what was before can still be asked for by its commit."""
        self.commits[commit] = {name: dict(files) for name, files in repos.items()}
        self.commit = commit

    def commit_of(self, revision):
        """Empty for one that there is not."""
        return self.commit if revision == "main" else revision if revision in self.commits else ""

    @property
    def fetched(self):
        """The paths of files whose content was asked for."""
        return [path for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]

    @property
    def downloaded(self):
        return {path.split("/", 4)[4] for path in self.fetched}


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(server, home, *arguments, **variables):
    """A process with a hub and a cache of its own; no server: an endpoint where nobody listens."""
    others = ("HF_", "FASTATTN_OFFLINE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(others) and not k.lower().endswith("_proxy")}
    url = server.url if server is not None else "http://127.0.0.1:9"
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    return run_forked(*arguments, environment=kept | settings | variables)


def command(server, home, *arguments, **variables):
    return run(server, home, "-m", "fastattn.cli", *arguments, **variables)


def fails(done, code):
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    return line
