"""What a job would take is asked of the cluster that would run it."""

import contextlib

import pytest

pytest.importorskip("pyarrow", reason="jobs over files need the extra fastattn[ray]")

from fastattn.distributed.batch import BatchRun, estimate
from fastattn.distributed.cluster import ClusterOptions, Host


@pytest.mark.parametrize(
    "given, variable, asked",
    [(None, None, []), (None, "", []), (None, "there:1", [None]), ("here:2", "there:1", ["here:2"])],
)
def test_the_cluster_is_the_one_of_the_job(given, variable, asked, request_for, monkeypatch, tmp_path):
    """By --address, else by RAY_ADDRESS, else there is none."""
    found = []

    @contextlib.contextmanager
    def joined(address):
        found.append(address)
        yield [Host(name, 2) for name in "abc"]

    monkeypatch.setattr("fastattn.distributed.batch.joined", joined)
    monkeypatch.setattr("fastattn.distributed.batch.default_threads", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    (tmp_path / "a.txt").write_text("w1 w2\n" * 40)
    batch = BatchRun(request_for(tmp_path / "a.txt", size=24))
    told = estimate(batch, ClusterOptions(address=given, cores=1))
    assert (found, told.actors) == (asked, 6 if asked else 1)
    assert (told.blocks, told.rows, told.cores) == (10, 40, 1) and told.rate > 0
