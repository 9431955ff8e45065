"""Jobs whose inputs, model or output go wrong on the way: a line that says it, and finished blocks that stay."""

import json
import logging
import os
import re
import shutil

import pytest

pytest.importorskip("ray", reason="jobs run on fastattn[ray]")

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from click.testing import CliRunner

from fastattn.cli.entry import commands
from fastattn.distributed.batch import BatchRun
from fastattn.distributed.cluster import ClusterOptions
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import FastattnError
from tests.distributed import nodes
from tests.distributed.jobs import TEXTS

pytestmark = nodes.WARNINGS


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One for all tests: a job uses the one that its process is connected to."""
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    ray.init("local", num_cpus=1, object_store_memory=nodes.STORE, **quiet)
    yield
    ray.shutdown()


@pytest.fixture
def model(translator, tmp_path):
    return shutil.copytree(translator, tmp_path / "model")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out [x] %41 é"


@pytest.fixture
def batch(request_for, model, out):
    """A function that makes a job over a file."""
    return lambda path, **changed: BatchRun(request_for(path, model=str(model), path=model, out=str(out), **changed))


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "some 'texts' é.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def test_a_damaged_page_costs_its_block_alone(batch, out, tmp_path):
    path = tmp_path / "a.parquet"
    pages = {"row_group_size": 200, "use_dictionary": False, "compression": "none"}
    pages |= {"write_batch_size": 50, "data_page_size": 100, "write_page_checksum": True, "write_statistics": False}
    pq.write_table(pa.table({"text": TEXTS * 15, "number": list(range(600))}), path, **pages)
    chunk = pq.read_metadata(path).row_group(1).column(0)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[data.index(b"w1", chunk.data_page_offset + chunk.total_compressed_size * 3 // 4)] ^= 1
    path.write_bytes(data)
    summary = batch(path, size=6400).run(ClusterOptions(actors=1))
    (number,) = summary.failed  # blocks are row groups
    assert re.search(r"^cannot read .*a.parquet: .* \(on .*\)$", summary.failed[number])
    aside = out / "_fastattn" / "set-aside"
    assert json.loads((aside / f"{number:08d}.json").read_bytes())["url"] == str(path)
    before = nodes.parts(out)
    assert len(before) == summary.blocks > 1
    path.write_bytes(whole)  # as its owner mends it
    summary = batch(path, size=6400).run(ClusterOptions(actors=1))
    assert not summary.failed and summary.rows == 600
    after = nodes.parts(out)
    assert {name: after[name] for name in before} == before
    assert os.listdir(aside) == []
    assert nodes.column(out, "number") == list(range(600))


def test_rows_without_text_are_counted_and_named(model, out, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "w1"}\n{"text": "w\xff"}\n{"text": null}\n{"text": 5}\n')
    result = CliRunner().invoke(
        commands, ["batch", "translate", str(path), "--out", str(out), "-m", str(model), "-b", "1"]
    )
    assert result.exit_code == 5
    done, fault = result.stderr.replace(str(tmp_path), "IN").splitlines()
    assert re.fullmatch(r"fastattn: 4 rows in 1 block are in IN/out.*; [\d.]+ rows/s; 1 had no text", done)
    assert re.match(
        r"fastattn: 2 of 4 rows not translated, the first: line 2 of IN/a.jsonl, byte 15: not UTF-8 \(", fault
    )
    assert [text is None for text in nodes.column(out, "translation")] == [False, True, True, True]


def test_an_output_that_cannot_be_written_ends_the_job(batch, texts, out):
    job = batch(texts, size=100)
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        folder.begin(job.job)
    obstacle = out / "part-00000003.parquet"
    obstacle.mkdir()
    with pytest.raises(FastattnError, match="^cannot write .*part-00000003.parquet: .*$"):
        job.run(ClusterOptions(actors=1))
    before = nodes.parts(out)
    assert not list(out.rglob("*.part"))
    obstacle.rmdir()
    summary = job.run(ClusterOptions(actors=1))
    assert (summary.blocks, summary.rows) == (len(job.blocks), len(TEXTS))
    after = nodes.parts(out)
    assert {name: after[name] for name in before} == before
