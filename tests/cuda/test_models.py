"""Public classes and functions on device "cuda" give what they give on the CPU; greedy steps are recorded."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fastattn
from fastattn.ops.cuda.recording import LaunchProgram
from tests.ops.computed import COMPUTED, FUNCTIONS, MODELS, agree
from tests.weights.ctranslate2.writer import write_tiny


@pytest.mark.parametrize("name", [*COMPUTED, *(pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS)])
def test_arrays(name: str) -> None:
    call: Callable[..., Any] = (COMPUTED | FUNCTIONS)[name]
    agree(call(device="cuda"), call(device="cpu"))


SHORT = {"beam_size": 2, "max_decoding_length": 8}  # a step takes the simulator a second


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    write, use = MODELS[name]
    if name == "Translator":
        use = partial(fastattn.Translator.translate, texts=["▁w3 ▁w4", "▁w5"], **SHORT)
    folder = write(tmp_path / "model")
    got, expected = (
        use(getattr(fastattn, name)(folder, "float32", threads=1, device=device)) for device in ("cuda", "cpu")
    )
    agree(got, expected)


@pytest.mark.parametrize("scored", [False, True], ids=["", "scored"])
def test_greedy_steps_are_recorded(scored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = LaunchProgram.run
    monkeypatch.setattr(LaunchProgram, "run", lambda self, *rest: (runs.append(rest[0]), run(self, *rest))[1])
    folder, texts = write_tiny(tmp_path / "model"), ["▁w3 ▁w4", "▁w5", "▁w6 ▁w7 ▁w8 " * 3]
    options = {"beam_size": 1, "max_decoding_length": 7, "details": True, "return_scores": scored}
    got, expected = (
        fastattn.Translator(folder, "float32", threads=1, device=device).translate(texts, **options)
        for device in ("cuda", "cpu")
    )
    assert runs and max(runs) > 1
    assert [one.hypotheses for one in got] == [one.hypotheses for one in expected]
    if scored:
        agree([one.scores for one in got], [one.scores for one in expected])
