"""The tables of README and of the page of performance are those of the results that the repository has."""

from bench.summary import JOBS, machines, sections, speeds
from tests import ROOT


def test_the_documents_have_the_tables_of_the_results() -> None:
    for section, text in sections().items():
        assert section.document is not None and not section.is_missing()
        assert f"\n{text}\n" in section.document.read_text(encoding="utf-8"), section.document.name


def test_a_speed_is_work_over_time_and_a_ratio_of_the_same_run() -> None:
    """Computed by hand from the data."""
    (machine,) = (machine for machine in machines() if machine.folder == "amd-zen5")
    case = machine.cases("translate", "int8")[2][2]
    ours, theirs = (case["sides"][name]["seconds"] for name in ("fastattn", "CTranslate2"))
    found = speeds(machine, JOBS[0], "int8")
    assert found["CTranslate2"][1] == (case["work"] / theirs, theirs / ours)
    assert found["fastattn"][1] == (case["work"] / ours, 1.0)
    first = f"translates {case['work'] / ours:,.0f} tokens a second, {theirs / ours:.1f} times as many as CTranslate2"
    assert first in (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
