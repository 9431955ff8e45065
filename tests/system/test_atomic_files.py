"""Files that appear whole or not at all, locks on them, and what is swept of those whose writers are gone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from fastattn.system import atomic_files
from fastattn.system.atomic_files import (
    PARTIAL_SUFFIX,
    begin_file,
    begin_folder,
    discard_unfinished,
    finish_file,
    make_folder,
    sweep,
    try_lock,
    write_whole,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and locks")


@pytest.fixture(autouse=True)
def _all_is_finished() -> Iterator[None]:
    yield
    assert not atomic_files._partial_paths


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "some.packed"
    path.write_bytes(b"before")

    def write(stream: BinaryIO) -> None:
        stream.write(b"begun")
        (part,) = {*names(tmp_path)} - {path.name}
        assert part.startswith("some.") and part.endswith(PARTIAL_SUFFIX) and path.read_bytes() == b"before"

    def fail(stream: BinaryIO) -> None:
        write(stream)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_whole(path, fail)
    assert names(tmp_path) == [path.name] and path.read_bytes() == b"before"
    write_whole(path, write)
    assert names(tmp_path) == [path.name] and path.read_bytes() == b"begun"


def test_what_cannot_be_begun_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        write_whole(tmp_path / "file" / "below", lambda stream: None)
    with pytest.raises(FileNotFoundError):
        begin_folder(f"{tmp_path}/absent/")


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, call=call: (done.append(name), call(*given))[1])
    write_whole(tmp_path / "file", lambda stream: None)
    assert done == ["fsync", "replace"]


def test_only_the_user_writes_to_new_folders_and_others_read_files_as_the_umask_says(tmp_path: Path) -> None:
    for umask, mode in ((0, 0o644), (0o077, 0o600)):
        folder = tmp_path / f"{umask}" / "below"
        before = os.umask(umask)
        try:
            make_folder(folder)
            write_whole(folder / "file", lambda stream: None)
        finally:
            os.umask(before)
        for made in (folder, folder.parent):
            assert stat.S_IMODE(made.stat().st_mode) == (0o755 if os.geteuid() == 0 else 0o700)
        assert stat.S_IMODE((folder / "file").stat().st_mode) == mode
    folder.chmod(0o777)
    make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777, "what is there is left as it is"


def test_a_lock_is_one_writers_until_it_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as one, open(tmp_path / "file", "rb") as other:
        assert try_lock(one) is True and try_lock(other) is None
        one.close()
        assert try_lock(other.fileno()) is True


def test_what_is_left_is_swept_and_what_is_written_is_not(tmp_path: Path) -> None:
    (tmp_path / f"left{PARTIAL_SUFFIX}").write_bytes(b"")
    (tmp_path / "whole").write_bytes(b"")
    (tmp_path / f"link{PARTIAL_SUFFIX}").symlink_to("whole")
    (tmp_path / f"folder{PARTIAL_SUFFIX}").mkdir()
    (tmp_path / f".pull-left{PARTIAL_SUFFIX}").mkdir()
    stream, part = begin_file(f"{tmp_path}/written.", 0o644)
    descriptor, folder = begin_folder(f"{tmp_path}/.pull-")
    stay = {
        "whole",
        f"link{PARTIAL_SUFFIX}",
        f"folder{PARTIAL_SUFFIX}",
        f".pull-left{PARTIAL_SUFFIX}",
        os.path.basename(part),
        *[Path(folder).name],
    }
    sweep(tmp_path)
    assert {*names(tmp_path)} == stay
    sweep(tmp_path, ".pull-")
    assert {*names(tmp_path)} == stay - {f".pull-left{PARTIAL_SUFFIX}"}
    sweep(tmp_path / "none")
    finish_file(stream, part, str(tmp_path / "finished"))
    stream.close()
    os.close(descriptor)
    discard_unfinished()
    assert names(tmp_path) == sorted([f"folder{PARTIAL_SUFFIX}", f"link{PARTIAL_SUFFIX}", "finished", "whole"])
