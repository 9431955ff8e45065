"""Jobs on a cluster of three node processes, some of which are lost on the way."""

import json
import os
import re
import signal
import time

import pytest

pytest.importorskip("ray", reason="needs the extra fastattn[ray]")

from bench.processes import Process, below, processes
from fastattn import Translator
from fastattn.distributed import driver
from fastattn.distributed.batch import BatchRequest, BatchRun
from fastattn.distributed.block_worker import BlockWorker
from fastattn.distributed.cluster import ClusterOptions
from fastattn.distributed.output_folder import OutputFolder
from tests.distributed import nodes

pytestmark = nodes.WARNINGS

SENTENCES = [
    "The weather is nice today.",
    "Where is the station?",
    "He bought three apples, two pears and a loaf of bread at the market on Saturday morning.",
    "",
    "Scientists have found a new way to store energy for a long time.",
    "I do not know.",
]


def sentences(count: int) -> list[str]:
    return [f"{SENTENCES[n % len(SENTENCES)]} {n}" if n % 6 != 3 else "" for n in range(count)]


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "english text.txt"
    path.write_text("\n".join(sentences(600)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def portuguese(pulled):
    return Translator(pulled("en-pt")).translate(sentences(600), beam_size=1)


@pytest.fixture
def batch(pulled, english, tmp_path):
    def made(**changed):
        asked = {"kind": "translate", "inputs": [str(english)], "out": str(tmp_path / "out"), "model": "en-pt"}
        asked |= {"path": pulled("en-pt"), "column": "text", "output": "translation"}
        asked |= {"options": {"beam_size": 1}, "size": 1024}
        return BatchRun(BatchRequest(**asked | changed))

    return made


@pytest.fixture(scope="module")
def three():
    """(cluster, its nodes), which takes longer to start than a job does: two are left after the first test."""
    with nodes.cluster(3) as made:
        yield made


def test_a_lost_node_and_a_killed_actor_cost_their_open_blocks_alone(batch, portuguese, three, tmp_path):
    cluster, (first, *_) = three
    job, out = batch(), tmp_path / "out"
    stamps: dict[str, tuple[int, int]] = {}

    def told(summary):
        stamps.update({name: stamp for name, stamp in nodes.parts(out).items() if name not in stamps})
        if summary.blocks == 3:
            records = OutputFolder(str(out), "parquet").finished_records().values()
            os.kill(int(next(iter(records))["host"].rpartition(":")[2]), signal.SIGKILL)
        if summary.blocks == 8:
            cluster.remove_node(first, allow_graceful=False)  # its processes are killed at once, its actors' too

    summary = job.run(ClusterOptions(address=cluster.address, reach="store"), told)
    assert not summary.failed
    assert summary.blocks == len(job.blocks) > 12
    assert nodes.column(out, "translation") == portuguese
    assert {name: stamp for name, stamp in nodes.parts(out).items() if name in stamps} == stamps  # none written twice


def test_a_driver_that_is_killed_or_interrupted_is_taken_up_where_it_was(portuguese, pulled, english, tmp_path):
    out = tmp_path / "out"
    arguments = ("translate", english, "--out", out, "-m", pulled("en-pt"), "--beam-size", 1, "--block-size", "1K")
    process = nodes.command(*arguments)
    nodes.await_finished(out, 2, process)
    begun = below([process.pid])
    assert len(begun) > 4
    os.kill(process.pid, signal.SIGSTOP)
    code, said = nodes.run(*arguments)
    assert (code, said.count("\n")) == (1, 1)
    assert "another job is at work there" in said
    process.kill()
    _, said = process.communicate()
    assert said == "fastattn: this process was ended, by Ray or by the system; the same command does what is left\n"
    await_end(begun)
    there = nodes.parts(out)
    assert 2 <= len(there) < 20

    process = nodes.command(*arguments)
    nodes.await_finished(out, len(there) + 1, process)
    begun = below([process.pid])
    assert len(begun) > 4
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert re.fullmatch(r"fastattn: \d+ of \d+ blocks are done; the same command does the rest\n", said)
    await_end(begun)
    with OutputFolder(str(out), "parquet").hold():
        assert not list(out.rglob("*.part"))  # of actors that were killed while they wrote

    code, said = nodes.run(*arguments)
    assert code == 0, said
    now = nodes.parts(out)
    assert {name: now[name] for name in there} == there
    assert nodes.column(out, "translation") == portuguese


def await_end(begun: list[Process]) -> None:
    """Wait until nothing is left of a job, Ray's agents included, which would go on for a minute by themselves."""
    deadline = time.monotonic() + 30
    while left := [process.title for process in begun if process.number in processes()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


class EndsAtBlockOne(BlockWorker):
    """As a block that takes all memory would, or makes a library abort."""

    def __call__(self, batch):
        if json.loads(batch["block"][0])["number"] == 1:
            time.sleep(0.5)  # others are in progress beside it
            os._exit(1)
        return super().__call__(batch)


def test_a_block_that_ends_its_actors_costs_no_other_its_place(batch, english, three, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(driver, "BlockWorker", EndsAtBlockOne)
    monkeypatch.setattr(driver, "MOST_LOSSES", 2)
    job = batch(size=4096)
    summary = job.run(ClusterOptions(address=three[0].address, actors=1))
    assert capsys.readouterr().out == ""
    assert summary.failed == {1: driver.LOST_REASON}
    assert summary.blocks == len(job.blocks) - 1 > 2
    aside = tmp_path / "out" / "_fastattn" / "set-aside" / "00000001.jsonl"
    texts = [json.loads(line)["text"] for line in aside.read_text(encoding="utf-8").splitlines()]
    start, stop = job.blocks[1].start, job.blocks[1].stop
    assert "\n".join(texts).strip() in english.read_text(encoding="utf-8")[start - 100 : stop + 100]
    assert len(texts) > 20
