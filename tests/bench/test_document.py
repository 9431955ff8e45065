"""Where the commands of the benchmarks write their tables: between two marks of a document, and nowhere else."""

from bench import cluster, growth, lock, mechanisms
from bench.document import Section, markdown
from fastattn.runtime.threads import thread_limit

MARKED = "before\n<!-- some: written by python -m bench work -->\nto be replaced\n<!-- end of some -->\nafter\n"


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
