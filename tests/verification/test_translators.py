"""A translation model beside an undamaged copy of itself; what counts as the same translation."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn import verification
from fastattn.verification.comparison import Bounds, Comparison
from fastattn.verification.translators import FastattnTranslator, _compare_translations
from fastattn.weights import ctranslate2, read
from tests.cli.commands import run, succeed
from tests.weights.ctranslate2.writer import write_tiny

TEXTS = ("▁w1 ▁w2", "", "▁w4 ▁w5 ▁w6 ▁w7 ▁w1")


@pytest.fixture
def itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder; the framework's side is another Translator, of a copy, made before anything is damaged."""
    for name in ("undamaged", "model"):
        (tmp_path / name).mkdir()
    undamaged = write_tiny(tmp_path / "undamaged")
    source = FastattnTranslator(undamaged, read(undamaged), "float32")
    monkeypatch.setitem(verification.SOURCES, "ctranslate2", lambda path, checkpoint: source)
    return write_tiny(tmp_path / "model")


def test_the_same_model(itself: Path) -> None:
    report = succeed("verify", itself, *TEXTS, "--bound", "0")
    names = [line[:19].strip() for line in report[report.index("\n\n") :].splitlines()[3:-1]]
    layers = ("embedding", "block 1", "block 2", "output")  # there is a final norm
    stacks = [f"{stack} {layer}" for stack in ("encoder", "decoder") for layer in layers]
    expected = [f"text {text}, {search}" for text in (1, 3) for search in ("greedy", "beam 2")]
    assert [name for name in names if name] == ["tokens", *stacks, "log-probabilities", *expected]
    assert "the same: 2, 0, 5 ids" in report and "bound          rows 0, log-probabilities 0" in report


def test_damage_is_found_at_its_layer(itself: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_tensors = ctranslate2.read_tensors

    def damaged(*arguments: Any) -> Any:
        tensors = read_tensors(*arguments)
        name = "decoder.layers.0.feed_forward.norm.weight"
        return {**tensors, name: 5 * tensors[name]}

    monkeypatch.setattr(ctranslate2, "read_tensors", damaged)
    result = run("verify", itself, *TEXTS)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("past the bound: decoder block 1, decoder block 2, decoder output")


# The log-probabilities that the model gives to the tokens of a translation, its end included.
GIVEN = {"ab": [-1.0, -2.0, -0.3], "ac": [-1.0, -2.1, -0.5], "a": [-1.0, -4.0], "abbb": [-1.0, -2.0, -3.0, -3.0, -3.0]}


def compared(here: str, there: str, beam_size: int) -> Comparison:
    ours: Any = SimpleNamespace(lengths=(1, 4), log_probs=lambda source, target: np.array(GIVEN["".join(target)]))
    return _compare_translations("search", ours, ["x"], list(here), list(there), beam_size, Bounds(0.0, 0.15))


def test_translations_may_differ_where_both_are_as_good() -> None:
    same = compared("ab", "ab", 4)
    assert same.within and same.largest is None and same.remark == "the same 2 tokens; log-probability a token -1.1000"
    greedy = compared("ab", "ac", 1)
    assert greedy.within and greedy.largest == pytest.approx(0.1)
    assert greedy.remark.startswith(
        "differs from token 2: b here and c there; log-probability a token -1.1000 here, -1.2"
    )
    assert (greedy.here, greedy.there) == (["a", "b"], ["a", "c"])
    beam = compared("ab", "ac", 4)
    assert beam.within and beam.largest == pytest.approx(0.1)
    ended = compared("ab", "a", 1)
    assert not ended.within and ended.largest == pytest.approx(2.0) and "b here and the end there" in ended.remark
    assert not compared("a", "ab", 4).within


def test_hypotheses_of_a_beam_that_were_cut_off_are_not_compared() -> None:
    cut = compared("ab", "abbb", 4)
    assert cut.within and cut.remark == "not compared: no end within 4 tokens"
    assert not compared("ab", "abbb", 1).within


def test_ctranslate2(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    report = json.loads(succeed("verify", write_tiny(tmp_path), "▁w1 ▁w2", "▁w3", TEXTS[2], "--json"))
    found = {line["name"]: line for line in report["comparisons"]}
    assert found["tokens"]["remark"] == "not compared: ctranslate2 gets tokens, not text"
    assert found["layers"]["remark"] == "not compared: ctranslate2 does not show them"
    assert found["log-probabilities"]["largest"] < 1e-4
    assert all(found[f"text {number}, greedy"]["within"] for number in (1, 2, 3))
