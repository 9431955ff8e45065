"""Which folder the cache is, what is known in it, and what goes."""

import os
import sys
import time
from pathlib import Path

import pytest

from fastattn.errors import InputError
from fastattn.system.cache_folder import NOWHERE, cache_contents, cache_root, mark_used, remove_unused

needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX folders")


def test_a_relative_path_is_one_folder_wherever_a_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTATTN_CACHE", "below/cache")
    expected = Path.cwd() / "below" / "cache"
    assert cache_root() == expected
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert cache_root() == expected
    assert os.environ["FASTATTN_CACHE"] == str(expected), "which processes inherit that it starts"


@needs_posix
def test_a_relative_path_where_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("FASTATTN_CACHE", "cache")
    with pytest.raises(InputError, match="^FASTATTN_CACHE should be an absolute path, is cache, "):
        cache_root()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="another variable there, or none")
def test_a_relative_folder_of_the_platform_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTATTN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "caches", "./caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_root() == tmp_path / ".cache" / "fastattn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_root() == tmp_path / "caches" / "fastattn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "home")
    assert cache_root() == NOWHERE


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    return tmp_path


def written(path: Path, days: float = 0) -> Path:
    """A file, and the folder that it is in, so many days old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1234")
    for one in (path, path.parent):
        os.utime(one, (time.time() - 86_400 * days,) * 2)
    return path


@needs_posix
def test_what_is_used_is_marked_once_in_a_while(cache: Path) -> None:
    for days, every, is_marked in ((2, 86_400, True), (0.5, 86_400, False), (0.5, 0, True)):
        path = written(cache / "file", days)
        before = path.stat().st_mtime
        mark_used(path, every)
        assert (path.stat().st_mtime > before) is is_marked
    mark_used(cache / "none")
    mark_used(cache / "none", 5)


@needs_posix
def test_what_was_not_used_for_thirty_days_goes_but_for_the_current_one(cache: Path) -> None:
    ages = {"a": 31, "b": 29, "c": 31, "d": 31}
    files = {name: written(cache / "packed" / f"{name * 40}-int8-6.packed", age) for name, age in ages.items()}
    now = time.time()
    os.utime(files["d"], (now, now - 31 * 86_400))  # was read
    remove_unused("packed", files["c"])
    assert [name for name, file in files.items() if file.exists()] == ["b", "c", "d"]
    remove_unused("kernels", files["c"])  # there is no such folder
    entries, _ = cache_contents()
    for entry in entries:
        entry.remove()
        entry.remove()  # another process was first
    assert cache_contents() == ([], [])
