"""Scores and labels: pairs, and clients that go away."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from fastattn import CrossEncoder, TextClassifier
from fastattn.serve.gate import KeyQuota
from fastattn.serve.service import CHARACTERS, TOGETHER, Service
from fastattn.serve.settings import ServerSettings
from tests.encoders.classifiers import LABELS, some_pairs, some_texts, write_classifier
from tests.serve.serving import serving


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("scores")
    return write_classifier(root / "reranker"), write_classifier(root / "labels", LABELS)


def test_scores_and_labels_are_the_apis(folders):
    texts, pairs = some_texts(40), some_pairs(3)
    with serving(models=tuple((folder.name, str(folder)) for folder in folders)) as asked:
        ranked = asked.post("/rerank", {"query": "w7 w9", "texts": texts, "raw_scores": True})[1]
        wanted = CrossEncoder(folders[0]).rank("w7 w9", texts, activation_fn="none")
        assert [(one["index"], one["score"]) for one in ranked] == [(one["corpus_id"], one["score"]) for one in wanted]
        classifier = TextClassifier(folders[1])
        for inputs, answer in (
            ("w5 w6", classifier.classify("w5 w6")),
            (["w5 w6", "w8"], classifier.classify([("w5 w6", "w8")])[0]),
            ([["w5"], ["w5", "w8"]], [classifier.classify("w5"), classifier.classify([("w5", "w8")])[0]]),
            ([list(pair) for pair in pairs], classifier.classify(pairs)),
        ):
            assert asked.post("/predict", {"inputs": inputs}) == (200, answer)
        assert asked.post("/predict", {"inputs": ["a", "b", "c"]})[0] == 400
        fits = classifier.max_length - 5  # [CLS] w9 w7 [SEP] ... [SEP]
        for words, status in ((fits, 200), (fits + 1, 413)):
            pair = "w9 w7", " ".join(["w5"] * words)
            for path, body in (("/rerank", {"query": pair[0], "texts": [pair[1]]}), ("/predict", {"inputs": [*pair]})):
                assert asked.post(path, body)[0] == status
                assert asked.post(path, body | {"truncate": True})[0] == 200


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
