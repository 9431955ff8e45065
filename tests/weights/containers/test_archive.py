"""Archives whose numbers lie: an ArchiveError, whatever the library makes of them, and no OSError but of writing."""

import errno
import gzip
import io
import struct
import tarfile
from pathlib import Path

import pytest

from fastattn.weights.containers.archive import ArchiveError, extract
from fastattn.weights.containers.zip_archive import ZipFolder
from tests.weights.download.index_server import tarred
from tests.weights.mutators import packed

CONTENT = bytes(range(256)) * 16


def extract_one(archive: Path) -> bytes:
    target = archive.parent / "contents" / "file"
    extract(archive, {"file": target}, limit=1 << 16)
    return target.read_bytes()


def write_tar(path: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("file")
        info.size = len(CONTENT)
        archive.addfile(info, io.BytesIO(CONTENT))
    # Without the blocks that end it, so that the next member is looked for at the end of the compressed data.
    data = gzip.compress(buffer.getvalue()[: 512 + len(CONTENT)], mtime=0)
    path.write_bytes(data)
    return data


def test_a_member_said_to_begin_before_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    data = packed({"file": CONTENT})
    archive.write_bytes(data)
    assert extract_one(archive) == CONTENT
    end = data.rfind(b"PK\5\6")
    (start,) = struct.unpack_from("<I", data, end + 16)
    # A larger offset of the directory has every member sought that much earlier.
    archive.write_bytes(data[: end + 16] + struct.pack("<I", start + 40) + data[end + 20 :])
    with pytest.raises(ArchiveError, match="a.zip is damaged"):
        extract_one(archive)


def test_a_tar_whose_checksum_differs(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    data = write_tar(archive)
    assert extract_one(archive) == CONTENT
    (tmp_path / "contents" / "file").unlink()
    archive.write_bytes(data[:-8] + b"\0" * 8)
    with pytest.raises(ArchiveError, match="a.tar.gz is damaged"):
        extract(archive, {"file": tmp_path / "file", "other": tmp_path / "other"}, limit=1 << 16)


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_the_limit_is_of_all_members_together(tmp_path: Path, name: str) -> None:
    archive, members = tmp_path / name, ("one", "two", "three")
    contents = dict.fromkeys(members, CONTENT)
    archive.write_bytes(packed(contents) if name == "a.zip" else tarred(contents))
    extract(archive, {member: tmp_path / "whole" / member for member in members}, 3 * len(CONTENT))
    assert [(tmp_path / "whole" / member).read_bytes() for member in members] == [CONTENT] * 3
    with pytest.raises(ArchiveError, match=f"{name}: three unpacks to more than it should"):
        extract(archive, {member: tmp_path / "part" / member for member in members}, 3 * len(CONTENT) - 1)


def test_the_uppermost_folder_of_a_landmark_is_taken(tmp_path: Path) -> None:
    """And among those the one of the shortest name, with the members that are in it."""
    for members, top in (
        (("z/mark", "mark", "z/a"), ""),
        (("long/mark", "z/mark", "z/a"), "z/"),
        (("deep/er/mark", "long/mark"), "long/"),
        (("deep/er/mark",), ""),
    ):
        archive = tmp_path / "a.zip"
        archive.write_bytes(packed(dict.fromkeys(members, b"x")))
        folder = ZipFolder(archive, "mark")
        assert folder.prefix == top and folder.contains("mark") == (top + "mark" in members)


def test_a_disk_that_is_full_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(packed({"file": CONTENT}))
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        extract(archive, {"file": tmp_path / "below" / "file"}, limit=1 << 16)
