"""Files of the cache are read as they were looked at: whoever may write further up can exchange names, not contents."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fastattn.runtime.code_cache import Code, CodeFolder
from fastattn.system.atomic_files import UntrustedFile, open_trusted

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two folders below that of the cache."""
    file = tmp_path / "cache" / "kernels" / "digest" / "file"
    file.parent.mkdir(mode=0o700, parents=True)
    file.parent.parent.chmod(0o755)
    file.write_bytes(b"mine")
    file.chmod(0o644)
    return file


def lowest() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


@pytest.fixture(autouse=True)
def _descriptors_are_closed() -> Iterator[None]:
    before = lowest()
    yield
    assert lowest() == before


def read(file: Path, folders: int = 2) -> bytes:
    with open_trusted(file, folders) as stream:
        return stream.readall()


def test_a_file_of_this_user(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [read(file, folders) for folders in (1, 2, 3)] == [b"mine"] * 3
    monkeypatch.chdir(file.parent.parent.parent)
    assert read(Path("kernels", "digest", "file")) == b"mine"
    with pytest.raises(FileNotFoundError):
        read(file.with_name("none"))
    with pytest.raises(FileNotFoundError):
        read(file.parent.with_name("none") / "file")


def test_what_others_may_write(file: Path) -> None:
    """Above the folders that count they may."""
    for above, place in enumerate([file, *file.parents][:4]):
        before = place.stat().st_mode
        for mode in (0o020, 0o002):
            place.chmod(before | mode)
            with nullcontext() if above == 3 else pytest.raises(UntrustedFile):
                assert read(file) == b"mine"
        place.chmod(before)
    assert read(file) == b"mine"


def test_what_is_another_s(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, who may give files away")
    for place in (file, file.parent, file.parent.parent):
        os.chown(place, 54321, 54321)
        with pytest.raises(UntrustedFile):
            read(file)
        os.chown(place, 0, 0)
    assert read(file) == b"mine"


def test_links_are_followed_above_the_cache_s_own_folders_alone(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for place in (file, file.parent, file.parent.parent):
        place.rename(elsewhere)
        place.symlink_to(elsewhere)
        # a user may move all kernels to another disk
        with nullcontext() if place == file.parent.parent else pytest.raises(UntrustedFile):
            assert read(file) == b"mine"
        place.unlink()
        elsewhere.rename(place)


def test_what_is_no_file(file: Path) -> None:
    """A pipe that nobody writes to is not waited for."""
    for make in (os.mkfifo, os.mkdir):
        file.unlink()
        make(file, 0o700)
        with pytest.raises(UntrustedFile):
            read(file)


def test_a_folder_exchanged_between_the_look_and_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who may write above; here at the worst moment: when the folder was just looked at, or opened."""
    mine, theirs = (tmp_path / "kernels" / name for name in ("a" * 24, "b" * 24))
    for folder, contents in ((mine, b"mine"), (theirs, b"theirs")):
        CodeFolder(lambda folder=folder: folder).save("norm.some", "key", Code({}, [], contents))
    theirs.chmod(0o777)

    def exchanging(call: Callable[..., Any]) -> Callable[..., Any]:
        def exchanged(path: Any, *arguments: Any, **options: Any) -> Any:
            found = call(path, *arguments, **options)
            if os.fspath(path).endswith(mine.name) and theirs.name in os.listdir(tmp_path / "kernels"):
                mine.rename(tmp_path / "moved")
                theirs.rename(mine)
            return found

        return exchanged

    for name in ("open", "stat", "lstat"):
        monkeypatch.setattr(os, name, exchanging(getattr(os, name)))
    code = CodeFolder(lambda: mine).load("norm.some", "key")
    assert code is not None and code.object_file == b"mine"
