"""An output folder that a stranger made: what lies in it leads nowhere else, and nothing waits for it."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import StorageError
from tests import ROOT


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_a_lock_that_is_no_plain_file_is_refused_and_left(out, tmp_path, kind):
    victim, lock = tmp_path / "victim", out / "_fastattn" / "lock"
    lock.parent.mkdir(parents=True)
    victim.write_text("years of work")
    if kind == "folder":
        lock.mkdir()
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.symlink_to(victim if kind == "link" else tmp_path / "new")
    with pytest.raises(StorageError, match=r"^cannot write .*out/_fastattn/lock: "):
        with OutputFolder(str(out), "parquet").hold():
            pass
    assert victim.read_text() == "years of work" and not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["_fastattn", "_fastattn/finished", "_fastattn/set-aside"])
def test_a_folder_within_that_leads_elsewhere_is_refused(out, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=rf"^cannot write .*out/{name}: it is a link, or no folder$"):
        with OutputFolder(str(out), "parquet").hold():
            pass
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("name", ["job.json", "finished/00000000.json"])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(out, name):
    path = out / "_fastattn" / name
    with OutputFolder(str(out), "parquet").hold():
        pass
    os.mkfifo(path)
    reader = subprocess.run(
        [sys.executable, "-c", READ, str(out)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert reader.stdout == f"cannot read {out}/_fastattn/{name}: no regular file\n", reader.stderr


READ = """
import sys
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import StorageError
from tests.distributed.jobs import some_job
folder = OutputFolder(sys.argv[1], "parquet")
try:
    folder.begin(some_job())
    folder.finished()
except StorageError as error:
    print(error)
"""
