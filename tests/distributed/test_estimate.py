"""What a job would take is asked of the cluster that would run it."""

import contextlib

import pytest

pytest.importorskip("pyarrow", reason="jobs over files need the extra fastattn[ray]")

from fastattn.distributed import estimate
from fastattn.distributed.batch import BatchRequest, BatchRun
from fastattn.distributed.cluster import ClusterOptions, Host
from fastattn.weights.native import convert
from tests.models.tiny_models import random_checkpoint


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    (folder / "model").mkdir()
    convert.write(folder / "model", random_checkpoint(21), "float32")
    (folder / "a.txt").write_text("w1 w2\n" * 40)
    how = {"options": {"beam_size": 1, "max_decoding_length": 9}, "size": 24}
    files = [str(folder / "a.txt")], str(folder / "out")
    return BatchRun(BatchRequest("translate", *files, "any", folder / "model", "text", "translation", **how))


@pytest.mark.parametrize(
    "given, variable, asked",
    [(None, None, []), (None, "", []), (None, "there:1", [None]), ("here:2", "there:1", ["here:2"])],
)
def test_the_cluster_is_the_one_of_the_job(given, variable, asked, batch, monkeypatch):
    """By --address, else by RAY_ADDRESS, else there is none."""
    found = []

    @contextlib.contextmanager
    def joined(address):
        found.append(address)
        yield [Host(name, 2) for name in "abc"]

    monkeypatch.setattr(estimate, "joined", joined)
    monkeypatch.setattr(estimate, "default_threads", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    told = estimate.estimate(batch, ClusterOptions(address=given, cores=1))
    assert (found, told.actors) == (asked, 6 if asked else 1)
    assert (told.blocks, told.rows, told.cores) == (10, 40, 1) and told.rate > 0
