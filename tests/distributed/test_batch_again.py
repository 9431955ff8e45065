"""A job that is run again: what is finished is believed only where it is of the same rows."""

import json
import os

import pytest

pytest.importorskip("ray", reason="jobs run on fastattn[ray]")

from fastattn.distributed import batch as batch_module
from fastattn.distributed import block_worker
from fastattn.distributed.batch import BatchRun
from fastattn.distributed.block_worker import STOPPED, BlockWorker
from fastattn.distributed.cluster import ClusterOptions
from fastattn.distributed.model_source import ModelSource
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import InputError
from tests.messages import refused


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "in"
    path.mkdir()
    (path / "a.csv").write_text('text\n"w1"\n"w2"\n"w3"\n"w4"\n')
    (path / "b.csv").write_text("text\nw5\nw6\n")
    return path


@pytest.fixture
def batch(request_for, folder):
    short = {"beam_size": 1, "max_decoding_length": 4}
    return lambda **changed: BatchRun(request_for(folder, **{"options": short, "size": 9} | changed))


def worker(job, out):
    source = ModelSource(job.request.model, str(job.path), job.digest, "path", is_folder=True)
    return BlockWorker(job.job.without_files().as_json(), out, source, 1)


def finish(job, numbers=None):
    """Have the blocks of these numbers, or all, computed in this process."""
    out = OutputFolder(job.request.out, "parquet")
    with out.hold():
        out.begin(job.job)
        actor = worker(job, out.url)
        for block in job.blocks:
            if numbers is None or block.number in numbers:
                (told,) = actor({"block": [json.dumps(vars(block))]})["outcome"]
                assert json.loads(told)["outcome"] == "finished", told


def touch(path, data=None):
    """Write a file anew, a second later."""
    later = path.stat().st_mtime_ns + 10**9
    if data is not None:
        assert path.stat().st_size == len(data)
        path.write_bytes(data)
    os.utime(path, ns=(later, later))


def test_a_file_whose_cut_has_changed_is_refused(batch, folder):
    job = batch()
    cuts = [("a", 5, 15), ("a", 15, 25), ("b", 5, 11)]
    assert [(block.url[-5], block.start, block.stop) for block in job.blocks] == cuts
    finish(job, [2])  # of another file, whose blocks get other numbers
    touch(folder / "a.csv", b'text\n"w1\nw2\nw3\nw4\nw5\nw6"\n')
    assert len(batch().blocks) == 2
    with refused(InputError, "b.csv"):
        batch().run(ClusterOptions())


def test_a_block_that_became_another_files_is_refused(batch, folder):
    finish(batch(), [1])
    touch(folder / "a.csv", b'text\n"w1\nw2\nw3\nw4\nw5\nw6"\n')
    assert batch().blocks[1].url.endswith("b.csv")
    with refused(InputError, "a.csv", "block 1"):
        batch().run(ClusterOptions())


def test_a_file_that_has_changed_within_its_cut_is_refused(batch, folder):
    finish(batch())
    touch(folder / "b.csv", b"text\nw5\nw7\n")
    with refused(InputError, "b.csv", "block 2"):
        batch().run(ClusterOptions())


def test_files_that_were_touched_are_read_once_more_and_not_again(batch, folder, monkeypatch):
    finish(batch())
    touch(folder / "a.csv")
    read, real = [], batch_module.read_block
    first, second = batch(), batch()
    monkeypatch.setattr(batch_module, "read_block", lambda block, column: read.append(block) or real(block, column))
    assert first.run(ClusterOptions()).rows == 6
    assert [block.number for block in read] == [0, 1]
    assert second.run(ClusterOptions()).rows == 6
    assert len(read) == 2


def test_a_host_with_another_version_stops_the_job(batch, monkeypatch):
    job = batch()
    monkeypatch.setattr(block_worker, "VERSION", "0.0.9", raising=False)
    (told,) = worker(job, job.request.out)({"block": [json.dumps(vars(job.blocks[0]))]})["outcome"]
    outcome = json.loads(told)
    assert outcome["outcome"] == STOPPED
    assert f"has fastattn 0.0.9, the job is of {job.job.version}" in outcome["error"]
