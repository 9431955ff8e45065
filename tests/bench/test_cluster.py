"""A job on a cluster: the formula says what it should of cases that are plain."""

from dataclasses import replace

import numpy as np
import pytest

from bench import cluster
from bench.cluster_measure import Figures
from bench.cluster_model import LARGEST, SMALLEST, Cluster, Job, block_bytes, calm, computed, cut
from tests.bench.test_document import written

FIGURES = Figures("en-pt", 1000.0, 2 << 20, 0.3, 10.0, 125.0, 260.0, 1e-6)
BROKEN = Cluster(10, slow=0.2, losses=20.0, away=60.0)  # three machines are lost each minute


def job(blocks: int = 3000, actors: int = 2) -> Job:
    return Job(np.full(blocks, 10_000.0), 1000.0, actors, start=5.0, own_storage=1e-6, moved=400.0)


def test_blocks_are_cut_by_the_rule_and_hold_every_sentence() -> None:
    assert block_bytes(1 << 20) == SMALLEST and block_bytes(1 << 40) == LARGEST
    assert SMALLEST < block_bytes(200 << 20) == 1 << 20 < LARGEST
    blocks = cut(10_000_000, 4, 1 << 20, 100.0)
    assert len(blocks) == 4 * 3
    assert blocks.sum() == pytest.approx(100_000)
    assert blocks.max() == pytest.approx((1 << 20) / 100)


def test_without_disturbance_actors_do_block_after_block() -> None:
    assert computed(job(), calm(5)).seconds == pytest.approx(5 + 3000 / 10 * (10 + 0.3), rel=0.01)


def test_slow_storage_is_hidden_by_blocks_in_progress_as_far_as_they_go() -> None:
    for at_once, seconds in ((1, 10 + 16), (2, 13), (3, 10)):
        slow = replace(calm(2, at_once + 1, at_once), latency=4.0)
        assert computed(job(), slow).seconds == pytest.approx(5 + 3000 / 4 * seconds, rel=0.02)


def test_more_machines_are_never_slower() -> None:
    for make in (calm, Cluster):
        times = [computed(job(), make(n)).seconds for n in (1, 2, 5, 10, 40)]
        assert times == sorted(times, reverse=True)


def test_lost_machines_and_blocks_that_wait_at_a_slow_one_take_time() -> None:
    slow = Cluster(20, slow=0.1, losses=0.0, handing=0.0)
    times = [computed(job(), replace(slow, held=held, at_once=1)).seconds for held in (1, 2, 4)]
    assert times == sorted(times) and times[2] - times[0] > 20.0  # of a block, at half speed
    at_once, later = (computed(job(), replace(BROKEN, losses=2.0, passes=passes)).seconds for passes in (False, True))
    assert computed(job(), calm(10)).seconds < at_once < later


def test_actors_are_those_that_the_lock_suggests() -> None:
    light, larger = cluster.job_of(FIGURES), cluster.job_of(replace(FIGURES, weights=20 << 20))
    assert (light.actors, light.rate) == (8, 1000.0)
    assert larger.actors == 4 and 1700 < larger.rate < 2000  # of four threads
    assert light.sentences_B.sum() == pytest.approx(cluster.SENTENCES)


def test_costs_are_of_machines_and_requests() -> None:
    assert cluster.dollars(3600.0, 10, 0.5, 0) == pytest.approx(5.0)
    assert cluster.dollars(0.0, 10, 0.5, 1000) == pytest.approx(2 * 0.0054)


def test_the_tables_go_into_a_document(monkeypatch, marked) -> None:
    monkeypatch.setattr(cluster, "measure", lambda name, size, data: replace(FIGURES, name=name))
    monkeypatch.setattr(cluster, "SENTENCES", 10**7)
    monkeypatch.setattr(cluster, "INPUTS", 10)
    document = marked("cluster", "cluster")
    assert cluster.run("toy", "", None, 1.25, document) == 0
    text = written(document)
    assert "1.25 dollars" in text
    rows = [line for line in text.splitlines() if line.startswith(tuple(f"| {name}, " for name in cluster.MODELS))]
    assert [row.split(" | ")[0][2:] for row in rows] == [f"{m}, {n}" for m in cluster.MODELS for n in cluster.MACHINES]
    assert {row.count("|") for row in rows} == {10}


def test_a_name_that_no_model_has_is_told(capsys) -> None:
    assert cluster.run("toy", "nothing", None, 1.0, None) == 2
    assert "no model's name contains 'nothing'" in capsys.readouterr().err
