"""semantic_search against faiss's flat indexes and the bandwidth of the memory."""

from bench import search
from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, milliseconds, plural
from bench.search import PEER, QUERIES, READING

BANDWIDTH_SHARE = 0.8


@check(
    "semantic-search",
    f"a million vectors of {search.WIDTH} numbers, float32, int8 and bits, {', '.join(map(str, QUERIES))} queries, one "
    "thread and two: ahead of faiss's flat index; one query: at least 80% of the memory's bandwidth",
)
def semantic_search(findings: Findings, data: Data) -> None:
    for make in search.corpora():
        corpus = make()
        if not corpus.agrees():
            raise RuntimeError(f"{corpus.name}: faiss finds other vectors")
        for threads in THREADS:
            for queries in QUERIES:
                found = search.times(corpus, queries, threads)
                what = f"{plural(threads)}, {corpus.name}, {queries} quer{'y' if queries == 1 else 'ies'}:"
                findings.at_least(what, found[PEER] / found[OURS], "x faiss", 1.0, milliseconds(found))
                if queries == 1:
                    rate = f"{corpus.vectors_ND.nbytes / found[OURS] / 1e9:.1f} GB/s"
                    share = found[READING] / found[OURS]
                    if corpus.name == "bits":  # most of which the last cache holds
                        findings.say(f"{what} {share:.2f} of the bandwidth ({rate})")
                    else:
                        findings.at_least(what, share, "of the bandwidth", BANDWIDTH_SHARE, rate)
