"""What the commands of the benchmarks measure and compute; their tables go between two marks of a document."""

import xml.etree.ElementTree
from dataclasses import replace

import numpy as np
import pytest

from bench import cluster, growth, lock, mechanisms
from bench.cluster import LARGEST, SMALLEST, Cluster, Figures, Job, block_bytes, calm, computed, cut
from bench.document import Section, markdown
from fastattn.runtime.threads import thread_limit
from tests.bench.conftest import MARKED


def test_a_table_goes_between_its_marks(tmp_path, capsys):
    document = tmp_path / "some.md"
    document.write_text(MARKED)
    section = Section(document, "some", "work")
    assert not section.is_missing()
    for text in (markdown(["a", "b"], [["1", "2"]]), r"with \1 and \g<0>"):
        section.show(text)
        assert document.read_text() == MARKED.replace("\nto be replaced\n", f"\n\n{text}\n")
        assert capsys.readouterr().out == f"{text}\n"
    assert not Section(None, "some").is_missing()


def test_a_document_without_the_marks_is_told_of_and_left_alone(tmp_path, capsys):
    document = tmp_path / "some.md"
    document.write_text(MARKED)
    for run in (
        lambda: lock.run("toy", "", None, 200e9, document),
        lambda: cluster.run("toy", "", None, 1.0, document),
        lambda: growth.run("toy", thread_limit(), document),
        lambda: mechanisms.run("toy", thread_limit(), "hard", document),
    ):
        assert run() == 2
        assert "no marks" in capsys.readouterr().err
    assert document.read_text() == MARKED and list(tmp_path.iterdir()) == [document]


def written(document):
    """What stands between the marks."""
    begin, _, rest = document.read_text(encoding="utf-8").partition(" -->\n")
    text, _, end = rest.partition("<!-- end of ")
    assert begin.startswith("before\n<!-- ") and end.endswith(" -->\nafter\n") and "to be replaced" not in text
    return text


def test_every_case_agrees_with_its_plain_form():
    for case in mechanisms.cases(mechanisms.SIZES["toy"]):
        np.testing.assert_allclose(case.ours(), case.plain(), rtol=1e-4, atol=1e-5, err_msg=case.name)


def test_a_difference_of_mechanisms_fails_the_run(monkeypatch, capsys):
    case = mechanisms.Case("wrong", "1", lambda: np.zeros(3), lambda: np.ones(3))
    monkeypatch.setattr(mechanisms, "cases", lambda sizes: [case])
    table, agree = mechanisms.measure("toy", thread_limit())
    assert not agree and "| wrong | 1 |" in table
    assert "wrong: the results differ by 1.0" in capsys.readouterr().err


def test_the_table_goes_into_a_document(marked):
    document = marked("cost", "mechanisms")
    assert mechanisms.run("toy", thread_limit(), "hard", document) == 0
    assert "| hard, most probable |" in written(document)
    assert mechanisms.run("toy", thread_limit(), "pointer", document) == 0
    assert "| hard, most probable |" not in written(document)


def test_the_command(tmp_path, bench):
    done = bench("mechanisms", "--toy", "--only", "saliency")
    assert done.returncode == 0 and "| saliency |" in done.stdout
    missing = bench("mechanisms", tmp_path / "none.md")
    assert missing.returncode == 2 and "a file that is there" in missing.stderr


def test_the_window_is_as_wide_as_it_says():
    functions = growth.calls(200)
    _, weights = functions[growth.NEAR](return_weights=True)
    assert (weights > 0).sum(axis=-1).max() == growth.WINDOW


def test_the_table_goes_into_a_document_and_the_picture_beside_it(marked):
    document = marked("growth", "growth")
    assert growth.run("toy", thread_limit(), document) == 0
    assert "\n| 32 | " in written(document) and "\n| 64 | " in written(document)
    root = xml.etree.ElementTree.parse(document.parent / "pictures" / "growth.svg").getroot()
    assert {"time", growth.OURS, growth.NEAR, growth.PLAIN} <= set(root.itertext())


def test_a_picture_without_memory_has_the_times_alone():
    times = dict.fromkeys((growth.OURS, growth.NEAR, growth.PLAIN), 0.5)
    drawn = growth.picture([(32, times, {}), (64, times, {})])
    assert ">ms<" in drawn and ">MB<" not in drawn


def test_a_difference_of_growth_fails_the_run(monkeypatch):
    given = growth.calls(32)
    wrong = {**given, growth.PLAIN: lambda: np.zeros(3, np.float32)[:1]}
    monkeypatch.setattr(growth, "calls", lambda n: wrong)
    with pytest.raises(ValueError, match="results differ"):
        growth.measure("toy", thread_limit())


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
