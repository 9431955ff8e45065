"""What README.md tells a reader to type does what it says."""

import re
from contextlib import ExitStack
from pathlib import Path

from tests import ROOT
from tests.test_translator import _translator

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_loop_over_a_files_lines_prints_a_line_for_each(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    loop = re.search(r"^(for|with) .*\n(?: +.*\n)+", "\n".join(blocks), re.MULTILINE)
    assert loop is not None and "translate_iter" in loop[0]
    translator = _translator()
    lines = ["a b c", "", "d e", "f"]
    (name,) = re.findall(r'open\("([\w.]+)"', loop[0])
    monkeypatch.chdir(tmp_path)
    for end in ("\n", ""):
        Path(name).write_text("\n".join(lines) + end, encoding="utf-8")
        with ExitStack() as files:
            names = {"translator": translator, "open": lambda *a, **b: files.enter_context(open(*a, **b))}
            exec(loop[0], names)  # noqa: S102  our own words
        assert capsys.readouterr().out == "\n".join(map(translator.translate, lines)) + end


def test_a_translations_attention_is_drawn(tmp_path, monkeypatch):
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "plot_attention(" in block]
    monkeypatch.chdir(tmp_path)
    names = {"translator": _translator()}
    exec(block, names)  # noqa: S102  our own words
    saved = Path("attention.html").read_text(encoding="utf-8")
    assert saved == names["plot"].html and len(names["part"].tokens) > 0
