"""Which folder the cache is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastattn.errors import InputError
from fastattn.system.cache_folder import NOWHERE, cache_root

needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX folders")


def test_a_relative_path_means_one_folder_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for the processes that it starts from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTATTN_CACHE", "below/cache")
    expected = Path.cwd() / "below" / "cache"
    assert cache_root() == expected
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert cache_root() == expected
    code = "from fastattn.system.cache_folder import cache_root; print(cache_root())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == f"{expected}\n"


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
