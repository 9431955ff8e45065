"""The benchmark of the mechanisms, at next to no size: every case agrees, and the table goes where it should."""

import numpy as np

from bench import mechanisms
from fastattn.runtime.threads import thread_limit
from tests.bench.test_document import written


def test_every_case_agrees_with_its_plain_form():
    for case in mechanisms.cases(mechanisms.SIZES["toy"]):
        np.testing.assert_allclose(case.ours(), case.plain(), rtol=1e-4, atol=1e-5, err_msg=case.name)


def test_a_difference_fails_the_run(monkeypatch, capsys):
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
