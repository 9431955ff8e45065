"""What README.md tells a reader to type does what it says."""

import re
import runpy
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import fastattn
from tests import ROOT
from tests.translation.test_translator import _translator

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block_with(text: str) -> str:
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if text in block]
    return block


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
    block = block_with("return_attention=True")
    monkeypatch.chdir(tmp_path)
    names = {"translator": _translator()}
    exec(block, names)  # noqa: S102  our own words
    saved = Path("attention.html").read_text(encoding="utf-8")
    assert saved == names["plot"].html and len(names["part"].tokens) > 0


def test_attention_itself_runs_and_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = Path("example.py")  # a file, since functions are compiled from their source
    example.write_text(block_with("score_mod="), encoding="utf-8")
    names = runpy.run_path(str(example))
    assert names["out"].shape == (2, 10, 4, 16)
    weights = names["weights"]
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert not np.triu(weights, 1).any()
    distances = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    expected = fastattn.attention(
        *(names[name] for name in ("query", "key", "value")),
        causal=True,
        bias=(-distances / np.arange(1, 5)[:, None, None]).astype(np.float32),
        return_weights=True,
    )[1]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert Path("weights.svg").read_text(encoding="utf-8") == fastattn.plot_attention(weights[0]).svg
