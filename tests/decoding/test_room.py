"""How many sentences a worker has in progress: by what is free where a card computes."""

import numpy as np
import pytest

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.worker import DecodingWorker
from fastattn.ops import cpu as operations
from tests.decoding.searching import decode, little_room, plain
from tests.models.tiny_models import START, random_model, random_sources

MODEL = random_model(seed=7, ops=operations, sharpness=4.0)
WIDTHS = (*MODEL.sizes.row_widths, *MODEL.sizes.memory_widths)
ENOUGH = 4 * 1000 * sum(WIDTHS) * np.dtype(MODEL.sizes.row_dtype).itemsize  # bytes that TOKENS rows are a quarter of


@pytest.mark.parametrize(
    ("free", "most"), [(None, 3), (1 << 40, 6), (2 * ENOUGH, 6), (2 * ENOUGH - 1, 3), (ENOUGH, 3), (ENOUGH // 1000, 1)]
)
def test_the_free_memory_of_a_card(free: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    jobs = [Job(source, [START]) for source in random_sources(12, seed=8)]
    options = DecodingOptions(beam_size=1, max_decoding_length=10)
    expected = [plain(decode(MODEL, [job], options))[0] for job in jobs]
    step = DecodingWorker._step
    little_room(monkeypatch, 3, TOKENS=1000, ON_A_CARD=2)
    monkeypatch.setattr(operations, "free_memory", lambda: free)
    monkeypatch.setattr(DecodingWorker, "_step", lambda self: (counts.append(len(self.sentences())), step(self))[1])
    assert plain(decode(MODEL, jobs, options)) == expected
    assert max(counts) == most
