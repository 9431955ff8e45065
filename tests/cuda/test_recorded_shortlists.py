"""Greedy steps whose rows have shortlists of their own are recorded, and choose as the CPU's do."""

from dataclasses import replace

import numpy as np
import pytest

from fastattn.models.kinds import build_model
from fastattn.ops import cpu, cuda
from fastattn.ops.cuda.recording import LaunchProgram
from fastattn.spec.checkpoint import Shortlist
from tests.decoding.searching import search, tokens_of
from tests.models.tiny_models import random_checkpoint

WORDS, PIECES = 150, (5, 40, 70)  # words of a list: of part of a tile, of several tiles, and of several of each piece
SOURCES = [np.array(ids, np.int32) for ids in ([4, 5], [7], [10, 11, 12], [8], [9, 4])]


@pytest.mark.parametrize("scored", [False, True], ids=["", "scored"])
def test_shortlists(scored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, lists = np.random.default_rng(3), [np.sort(np.random.default_rng(n).permutation(WORDS)[:n]) for n in PIECES]
    targets = [lists[rng.integers(3)] for _ in range(WORDS)]
    starts = np.cumsum([0, *map(len, targets)]).astype(np.int32)
    first = Shortlist(np.arange(4, dtype=np.int32), starts, np.concatenate(targets).astype(np.int32))
    checkpoint = replace(random_checkpoint(seed=2, layers=1, vocabulary=WORDS, sharpness=4.0), shortlist=first)
    runs: list[int] = []
    run = LaunchProgram.run
    monkeypatch.setattr(LaunchProgram, "run", lambda self, *rest: (runs.append(rest[0]), run(self, *rest))[1])
    options = {"beam_size": 1, "max_decoding_length": 5, "return_scores": scored}
    got, expected = (search(build_model(checkpoint, ops), SOURCES, **options) for ops in (cuda, cpu))
    assert runs
    assert tokens_of(got) == tokens_of(expected)
    if scored:
        np.testing.assert_allclose(*([one[0].score for one in found] for found in (got, expected)), atol=1e-4)
