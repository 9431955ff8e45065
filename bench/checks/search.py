"""semantic_search against faiss's flat indexes, which compare a query with every vector too."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, milliseconds, plural
from bench.measure import reader
from bench.timing import library_threads, sample
from fastattn import semantic_search
from fastattn.ops.cpu import use_threads

ROWS, WIDTH = 1_000_000, 384
QUERIES = (1, 8, 64)
TOP_K = 10
PEER, READING = "faiss", "reading"


@dataclass(frozen=True)
class Corpus:
    """Vectors, queries of the same kind, and faiss's index of the vectors.

    function  of semantic_search
    search    (queries, k) -> (scores, ids) of the index; distances are positive
    """

    name: str
    vectors_ND: np.ndarray
    queries_QD: np.ndarray
    function: str
    search: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]

    def agrees(self) -> bool:
        """Whether both find the same scores, of the same rows but for equal scores."""
        ours = semantic_search(self.queries_QD, self.vectors_ND, TOP_K, self.function)
        scores, ids = self.search(self.queries_QD, TOP_K)
        close = np.allclose(np.abs(ours.scores), np.abs(scores), rtol=1e-5, atol=1e-5)
        return close and (self.function == "hamming" or float((ids == ours.ids).mean()) > 0.99)

    def calls(self, queries: int, threads: int) -> dict[str, Callable[[], object]]:
        import faiss

        some_QD = self.queries_QD[:queries]

        def theirs() -> object:
            faiss.omp_set_num_threads(threads)
            return self.search(some_QD, TOP_K)

        calls: dict[str, Callable[[], object]] = {
            OURS: lambda: semantic_search(some_QD, self.vectors_ND, TOP_K, self.function),
            PEER: theirs,
        }
        return calls | ({READING: reader([self.vectors_ND], threads)} if queries == 1 else {})


def _vectors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    vectors_ND, queries_QD = (rng.standard_normal((n, WIDTH), np.float32) for n in (ROWS, max(QUERIES)))
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return vectors_ND, queries_QD / np.linalg.norm(queries_QD, axis=1, keepdims=True)


def _floats() -> Corpus:
    import faiss

    vectors_ND, queries_QD = _vectors()
    index = faiss.IndexFlatIP(WIDTH)
    index.add(vectors_ND)
    return Corpus("float32", vectors_ND, queries_QD, "dot", index.search)


def _bytes() -> Corpus:
    import faiss

    vectors_ND, queries_QD = (np.rint(np.clip(x * 600, -128, 127)) for x in _vectors())
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    index = faiss.IndexScalarQuantizer(WIDTH, kind, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors_ND)

    def search(queries_QD: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return index.search(queries_QD.astype(np.float32), k)

    return Corpus("int8", vectors_ND.astype(np.int8), queries_QD.astype(np.int8), "dot", search)


def _bits() -> Corpus:
    import faiss

    vectors_NB, queries_QB = (np.packbits(x > 0, axis=1) for x in _vectors())
    index = faiss.IndexBinaryFlat(WIDTH)
    index.add(vectors_NB)
    return Corpus("bits", vectors_NB, queries_QB, "hamming", index.search)


def times(corpus: Corpus, queries: int, threads: int, rounds: int = 7, seconds: float = 3.0) -> dict[str, float]:
    with use_threads(threads), library_threads(threads):
        calls = corpus.calls(queries, threads)
        for call in calls.values():
            call()
        found = sample(calls, dict.fromkeys(calls, 0.01), rounds, seconds, 0.05 if threads > 1 else 0.0)
    return {name: float(np.median(values)) for name, values in found.items()}


BANDWIDTH_SHARE = 0.8


@check(
    "semantic-search",
    f"a million vectors of {WIDTH} numbers, float32, int8 and bits, {', '.join(map(str, QUERIES))} queries, one "
    "thread and two: ahead of faiss's flat index; one query: at least 80% of the memory's bandwidth",
)
def search_speed(findings: Findings, data: Data) -> None:
    for make in (_floats, _bytes, _bits):
        corpus = make()
        if not corpus.agrees():
            raise RuntimeError(f"{corpus.name}: faiss finds other vectors")
        for threads in THREADS:
            for queries in QUERIES:
                found = times(corpus, queries, threads)
                what = f"{plural(threads)}, {corpus.name}, {queries} quer{'y' if queries == 1 else 'ies'}:"
                findings.at_least(what, found[PEER] / found[OURS], "x faiss", 1.0, milliseconds(found))
                if queries == 1:
                    rate = f"{corpus.vectors_ND.nbytes / found[OURS] / 1e9:.1f} GB/s"
                    share = found[READING] / found[OURS]
                    if corpus.name == "bits":  # most of which the last cache holds
                        findings.say(f"{what} {share:.2f} of the bandwidth ({rate})")
                    else:
                        findings.at_least(what, share, "of the bandwidth", BANDWIDTH_SHARE, rate)
