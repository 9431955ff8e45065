"""MiniLM against sentence-transformers."""

import numpy as np
from timing import alternate, library_threads

import fastattn
from checks import Data, check
from fastattn.weights import catalog


def _peer():
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(catalog.resolve("minilm")), device="cpu")


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Rank correlation, ties given their mean rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


@check("minilm-vectors", "STS dev sentences: largest difference from sentence-transformers 1e-5; Spearman to 1e-4")
def vectors(data: Data) -> tuple[bool, str]:
    first, second, scores = data.stsb
    ours, theirs = fastattn.Encoder("minilm"), _peer()
    mine = [ours.encode(texts) for texts in (first, second)]
    other = [theirs.encode(texts) for texts in (first, second)]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(mine, other, strict=True))
    mine_rank, other_rank = (spearman((a * b).sum(1), np.array(scores)) for a, b in (mine, other))
    passed = difference <= 1e-5 and abs(mine_rank - other_rank) <= 1e-4
    return passed, f"largest difference {difference:.1e}; Spearman {mine_rank:.5f}, theirs {other_rank:.5f}"


@check("minilm-speed", "one thread: at least 3 x sentence-transformers, tokenising included")
def speed(data: Data) -> tuple[bool, str]:
    texts = data.flores("en")[:486]
    ours, theirs = fastattn.Encoder("minilm", threads=1), _peer()
    tokens = sum(len(ids) for ids in theirs.tokenizer(texts)["input_ids"])
    with library_threads(1):
        times = alternate({"ours": lambda: ours.encode(texts), "theirs": lambda: theirs.encode(texts)}, 7)
    ratio = times["theirs"] / times["ours"]
    speeds = ", ".join(f"{name} {tokens / seconds:,.0f} tokens/s" for name, seconds in times.items())
    return ratio >= 3, f"{ratio:.2f} x sentence-transformers ({speeds})"
