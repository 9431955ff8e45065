"""A job on a cluster: the simulation and the formula agree where they should, and nothing is lost or done twice."""

from dataclasses import replace

import numpy as np
import pytest

from bench import cluster
from bench.cluster_measure import Figures
from bench.cluster_model import LARGEST, SMALLEST, Cluster, Job, block_bytes, calm, computed, cut
from bench.cluster_simulation import simulate

FIGURES = Figures("en-pt", 1000.0, 2 << 20, 0.3, 10.0, 125.0, 260.0, 1e-6)
BROKEN = Cluster(10, slow=0.2, losses=20.0, away=60.0)  # three machines are lost each minute
MARKS = "<!-- cluster: written by python -m bench cluster -->\n", "<!-- end of cluster -->\n"


def job(blocks: int = 3000, actors: int = 2) -> Job:
    return Job(np.full(blocks, 10_000.0), 1000.0, actors, start=5.0, own_storage=1e-6, moved=400.0)


def test_blocks_are_cut_by_the_rule_and_hold_every_sentence() -> None:
    assert block_bytes(1 << 20) == SMALLEST and block_bytes(1 << 40) == LARGEST
    assert SMALLEST < block_bytes(200 << 20) == 1 << 20 < LARGEST
    blocks = cut(10_000_000, 4, 1 << 20, 100.0)
    assert len(blocks) == 4 * 3
    assert blocks.sum() == pytest.approx(100_000)
    assert blocks.max() == pytest.approx((1 << 20) / 100)


@pytest.mark.parametrize("blocks", [30, 3000])
@pytest.mark.parametrize("machines", [1, 7, 100])
@pytest.mark.parametrize(("held", "at_once"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_without_disturbance_simulation_and_formula_agree_within_a_block(blocks, machines, held, at_once) -> None:
    quiet = calm(machines, held, at_once)
    found, expected = simulate(job(blocks), quiet, 0).seconds, computed(job(blocks), quiet).seconds
    assert abs(found - expected) < 10.3  # seconds of a block, with its files


def test_slow_storage_is_hidden_by_blocks_in_progress_as_far_as_they_go() -> None:
    for at_once, seconds in ((1, 10 + 16), (2, 13), (3, 10)):
        slow = replace(calm(2, at_once + 1, at_once), latency=4.0)
        found = simulate(job(), slow, 0).seconds
        assert found == pytest.approx(5 + 3000 / 4 * seconds, rel=0.02)
        assert found == pytest.approx(computed(job(), slow).seconds, rel=0.01)


@pytest.mark.parametrize("passes", [False, True])
def test_with_disturbance_they_agree_on_average(passes: bool) -> None:
    disturbed = replace(BROKEN, losses=2.0, passes=passes)
    found = np.mean([simulate(job(), disturbed, seed).seconds for seed in range(20)])
    assert found == pytest.approx(computed(job(), disturbed).seconds, rel=0.03)


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize(("held", "at_once"), [(1, 1), (3, 2)])
def test_every_block_is_done_once_and_a_lost_machine_loses_open_blocks_only(held, at_once, passes) -> None:
    outcome = simulate(job(), replace(BROKEN, passes=passes, held=held, at_once=at_once), 1)
    assert outcome.losses > 20 and outcome.lost and (outcome.passes > 1) is passes
    assert np.isfinite(outcome.done_B).all() and outcome.done_B.max() == outcome.seconds
    again = np.bincount([block for block, _ in outcome.lost], minlength=len(outcome.done_B))
    np.testing.assert_array_equal(outcome.tries_B, 1 + again)
    assert all(time < outcome.done_B[block] for block, time in outcome.lost)


def test_more_machines_are_never_slower() -> None:
    for make in (calm, Cluster):
        times = [np.median([simulate(job(), make(n), seed).seconds for seed in range(3)]) for n in (1, 2, 5, 10, 40)]
        assert times == sorted(times, reverse=True)
        times = [computed(job(), make(n)).seconds for n in (1, 2, 5, 10, 40)]
        assert times == sorted(times, reverse=True)


def test_a_seed_gives_one_outcome_and_another_seed_another() -> None:
    first, same, other = (simulate(job(500), BROKEN, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.done_B, same.done_B)
    assert first.lost == same.lost and first.seconds == same.seconds != other.seconds


def test_blocks_that_wait_at_a_slow_machine_delay_the_end() -> None:
    slow = Cluster(20, slow=0.1, losses=0.0, handing=0.0)
    several = [replace(slow, held=held, at_once=1) for held in (1, 2, 4)]
    found = [np.mean([simulate(job(), each, seed).seconds for seed in range(5)]) for each in several]
    assert found == sorted(found) and found[2] - found[0] > 20.0  # of a block, at half speed
    assert found == pytest.approx([computed(job(), each).seconds for each in several], abs=20.0)


def test_lost_blocks_cost_more_in_a_pass_of_their_own_than_given_out_at_once() -> None:
    several = [replace(BROKEN, losses=2.0, passes=passes) for passes in (True, False)]
    later, next_ = (np.mean([simulate(job(), each, seed).seconds for seed in range(10)]) for each in several)
    assert next_ + 10.0 < later < next_ + 60.0  # of a block, and of two that are done at half speed


def test_a_handful_of_blocks_is_done_by_as_many_actors() -> None:
    outcome = simulate(job(blocks=3), calm(4, held=2), 0)
    assert outcome.seconds == pytest.approx(5.0 + 0.1 + 10.0 + 0.2, abs=0.1)
    assert outcome.files_a_second()[1] == pytest.approx(0.6)


def test_actors_are_those_that_the_lock_suggests() -> None:
    light, larger = cluster.job_of(FIGURES), cluster.job_of(replace(FIGURES, weights=20 << 20))
    assert (light.actors, light.rate) == (8, 1000.0)
    assert larger.actors == 4 and 1700 < larger.rate < 2000  # of four threads
    assert light.sentences_B.sum() == pytest.approx(cluster.SENTENCES)


def test_costs_are_of_machines_and_requests() -> None:
    assert cluster.dollars(3600.0, 10, 0.5, 0) == pytest.approx(5.0)
    assert cluster.dollars(0.0, 10, 0.5, 1000) == pytest.approx(2 * 0.0054)


@pytest.mark.parametrize("marks", [True, False])
def test_the_tables_go_into_a_document(tmp_path, monkeypatch, capsys, marks) -> None:
    monkeypatch.setattr(cluster, "measure", lambda name, size, data: replace(FIGURES, name=name))
    monkeypatch.setattr(cluster, "SENTENCES", 10**7)
    monkeypatch.setattr(cluster, "INPUTS", 10)
    document = tmp_path / "scale.md"
    around = "before\n{}before that\n{}after\n".format(*(MARKS if marks else ("", "")))
    document.write_text(around, encoding="utf-8")
    assert cluster.run("toy", "", None, 1.25, document) == (0 if marks else 2)
    written = document.read_text(encoding="utf-8")
    if not marks:
        assert written == around and "no marks" in capsys.readouterr().err
        return
    assert written.startswith("before\n<!-- cluster") and written.endswith("<!-- end of cluster -->\nafter\n")
    assert "before that" not in written and "1.25 dollars" in written
    rows = [line for line in written.splitlines() if line.startswith(tuple(f"| {name}, " for name in cluster.MODELS))]
    assert [row.split(" | ")[0][2:] for row in rows] == [f"{m}, {n}" for m in cluster.MODELS for n in cluster.MACHINES]
    assert {row.count("|") for row in rows} == {13}


def test_a_name_that_no_model_has_is_told(capsys) -> None:
    assert cluster.run("toy", "nothing", None, 1.0, None) == 2
    assert "no model's name contains 'nothing'" in capsys.readouterr().err
