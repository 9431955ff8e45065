"""MiniLM against sentence-transformers, CTranslate2 and ONNX Runtime."""

import numpy as np

import fastattn
from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, compare, plural, request
from bench.model_cases import encode_cases
from bench.timing import library_threads
from fastattn.weights import download


def _peer():
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(download.resolve("minilm")), device="cpu")


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Rank correlation; ties have their mean rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


@check("minilm-vectors", "STS dev sentences: largest difference from sentence-transformers 1e-5; Spearman to 1e-4")
def vectors(findings: Findings, data: Data) -> None:
    first, second, scores = data.stsb
    ours, theirs = fastattn.Encoder("minilm", "float32"), _peer()
    mine = [ours.encode(texts) for texts in (first, second)]
    other = [theirs.encode(texts) for texts in (first, second)]
    difference = max(float(np.abs(a - b).max()) for a, b in zip(mine, other, strict=True))
    mine_rank, other_rank = (spearman((a * b).sum(1), np.array(scores)) for a, b in (mine, other))
    findings.at_most("largest difference", difference, "", 1e-5)
    findings.at_most("Spearman", abs(mine_rank - other_rank), "apart", 1e-4, f"{mine_rank:.5f}, {other_rank:.5f}")


@check(
    "minilm-peers",
    "486 sentences, tokenizing included: at least 1.2 x CTranslate2 and ONNX Runtime on one thread, 1.3 x on two, "
    "and 3.5 x sentence-transformers",
)
def peers(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        near = 1.2 if threads == 1 else 1.3
        wanted = {"CTranslate2": near, "ONNX Runtime": near, "sentence-transformers": 3.5}
        make = next(encode_cases(request(data, "encode", threads, engines=(OURS, *wanted))))
        with library_threads(threads):
            sides = compare(make(), threads, rounds=7, seconds=40.0)
        for name, least in wanted.items():
            side = sides[name]
            remark = f"{side['rate']}, {side['setting']}"
            findings.at_least(f"{plural(threads)}:", side["ratio"], f"x {name}", least, remark)
        findings.say(f"{OURS} {sides[OURS]['rate']}")
