"""Public classes and functions on device "cuda" give what they give on the CPU; greedy steps are recorded."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastattn
from fastattn import Translator
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, cuda
from fastattn.ops.cuda.recording import LaunchProgram
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint, Shortlist
from fastattn.spec.text_spec import EncoderText
from tests.decoding.searching import search, tokens_of
from tests.models.encoder_cases import make_tensors
from tests.models.test_models_encoder import VARIETIES as ENCODERS
from tests.models.tiny_models import VARIETIES, random_checkpoint
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


may_be_scored = pytest.mark.parametrize("scored", [False, True], ids=["", "scored"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each run of a recorded program is for."""
    found, run = [], LaunchProgram.run
    monkeypatch.setattr(LaunchProgram, "run", lambda self, *rest: (found.append(rest[0]), run(self, *rest))[1])
    return found


@may_be_scored
def test_greedy_steps_are_recorded(scored: bool, tmp_path: Path, runs: list[int]) -> None:
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


LINES = ["▁w1 ▁w2 ▁w9 ▁w4", "▁w7"]


@pytest.mark.slow
@pytest.mark.parametrize("variety", VARIETIES)
def test_translations(variety: str) -> None:
    checkpoint = random_checkpoint(**VARIETIES[variety])
    got, expected = (Translator.from_checkpoint(checkpoint, ops=ops) for ops in (cuda, cpu))
    attended = {"return_attention": expected._service.model.sizes.aligns}
    for searched in ({"beam_size": 1}, {"beam_size": 2, "return_scores": True} | attended):
        options = searched | {"max_decoding_length": 5, "details": True}
        agree(*(translator.translate(LINES, **options) for translator in (got, expected)))
    agree(*(translator.score(LINES, LINES[::-1]) for translator in (got, expected)))


@pytest.mark.slow
@pytest.mark.parametrize("spec", ENCODERS.values(), ids=ENCODERS)
def test_vectors(spec: StackSpec) -> None:
    whole = ModelSpec("encoder", spec)
    checkpoint = Checkpoint(whole, make_tensors(whole, 0), EncoderText(b"", max_length=512))
    ids_B = [np.random.default_rng(n).integers(0, spec.vocabulary, n).astype(np.int32) for n in (5, 0, 11, 1)]
    rows_ND, expected_ND = (np.asarray(build_model(checkpoint, ops).encode(ids_B)[0]) for ops in (cuda, cpu))
    np.testing.assert_allclose(rows_ND, expected_ND, rtol=1e-5, atol=1e-4)


WORDS, PIECES = 150, (5, 40, 70)  # words of a list: of part of a tile, of several tiles, and of several of each piece
SOURCES = [np.array(ids, np.int32) for ids in ([4, 5], [7], [10, 11, 12], [8], [9, 4])]


@may_be_scored
def test_shortlists(scored: bool, runs: list[int]) -> None:
    """Greedy steps whose rows have shortlists of their own are recorded, and choose as the CPU's do."""
    rng, lists = np.random.default_rng(3), [np.sort(np.random.default_rng(n).permutation(WORDS)[:n]) for n in PIECES]
    targets = [lists[rng.integers(3)] for _ in range(WORDS)]
    starts = np.cumsum([0, *map(len, targets)]).astype(np.int32)
    first = Shortlist(np.arange(4, dtype=np.int32), starts, np.concatenate(targets).astype(np.int32))
    checkpoint = replace(random_checkpoint(seed=2, layers=1, vocabulary=WORDS, sharpness=4.0), shortlist=first)
    options = {"beam_size": 1, "max_decoding_length": 5, "return_scores": scored}
    got, expected = (search(build_model(checkpoint, ops), SOURCES, **options) for ops in (cuda, cpu))
    assert runs
    assert tokens_of(got) == tokens_of(expected)
    if scored:
        np.testing.assert_allclose(*([one[0].score for one in found] for found in (got, expected)), atol=1e-4)
