"""Scores and labels of clients that go away."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from fastattn import CrossEncoder, TextClassifier
from fastattn.serve.gate import KeyQuota
from fastattn.serve.service import CHARACTERS, TOGETHER, Service
from fastattn.serve.settings import ServerSettings


@pytest.mark.parametrize("kind", [CrossEncoder, TextClassifier])
def test_a_client_that_went_away_has_no_more_scored(kind):
    begun, may_end, scored = threading.Event(), threading.Event(), []

    def score(*given):
        scored.append(len(given[-1]))
        begun.set()
        assert may_end.wait(60)
        return [{"corpus_id": b, "score": 1.0} for b in range(len(given[-1]))]

    model = SimpleNamespace(count_pair_tokens=lambda pairs: [1], max_length=100, rank=score, classify=score)

    async def leave():
        CHARACTERS.set(KeyQuota())
        service = Service(ServerSettings((("slow", "nowhere"),)))
        service.models.served["slow"].kind, service.models.served["slow"].model = kind, model
        many = 20 * TOGETHER
        asked = service.rank("a", ["b"] * many, False, False) if kind is CrossEncoder else None
        work = asyncio.ensure_future(asked or service.classify([("a", "b")] * many, False))
        await asyncio.to_thread(begun.wait, 60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        may_end.set()

    asyncio.run(leave())  # which waits for threads that are at work
    assert scored == [TOGETHER]
