"""bench.commits's process for each of two commits: ``commits_child.py TREE THREADS``, with requests as lines of JSON.

It imports fastattn from TREE, and nothing else from this repository: only public names that both commits have.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

sys.path[0] = sys.argv[1]

import numpy as np  # noqa: E402  the path comes first

import fastattn  # noqa: E402

THREADS = int(sys.argv[2])
LEAST = 0.1  # seconds of a sample: a faster call is repeated
SHAPES = {  # sentences, queries, keys, heads, width
    "one head": (1, 256, 256, 1, 64),
    "sentences": (32, 24, 24, 8, 64),
    "long": (1, 2048, 2048, 12, 64),
    "step": (32, 1, 300, 8, 64),
    "wide": (4, 128, 128, 8, 128),
}


def attention_cases() -> Iterator[tuple[str, Callable[[], object]]]:
    rng = np.random.default_rng(0)
    for name, (B, T, S, H, K) in SHAPES.items():
        query, key, value = (rng.standard_normal((B, n, H, K), np.float32) for n in (T, S, S))
        for causal in (False, True):
            offset = S - T if causal else None
            arrays = (query, key, value)
            title = f"attention {name}{' causal' * causal}"
            yield title, lambda a=arrays, c=causal, o=offset: fastattn.attention(*a, causal=c, offset=o)


@cache
def translator(name: str, precision: str) -> fastattn.Translator:
    return fastattn.Translator(name, precision=precision, threads=THREADS)


@cache
def encoder(precision: str) -> fastattn.Encoder:
    return fastattn.Encoder("minilm", precision=precision, threads=THREADS)


def model_cases(texts: dict[str, list[str]], single: int) -> Iterator[tuple[str, Callable[[], object]]]:
    few = texts["zh"][:: max(1, len(texts["zh"]) // single)]
    for precision in ("int8", "float32"):
        zh = partial(translator, "zh-en", precision)
        for beam in (1, 4):
            mode = f"zh-en {precision} {'greedy' if beam == 1 else 'beam 4'}"
            yield f"{mode} batch", lambda t=zh, b=beam: t().translate(texts["zh"], beam_size=b)
            yield f"{mode} single", lambda t=zh, b=beam: [t().translate(text, beam_size=b) for text in few]
    for precision in ("float32", "bfloat16", "int8"):
        rows = partial(encoder, precision)
        yield f"minilm {precision} batch", lambda e=rows: e().encode(texts["en"])
        yield f"minilm {precision} single", lambda e=rows: [e().encode(text) for text in texts["en"][:16]]
    pt = partial(translator, "en-pt", "auto")
    yield "en-pt batch", lambda: pt().translate(texts["en"], beam_size=1)
    yield "en-pt single", lambda: [pt().translate(text, beam_size=1) for text in texts["en"][:16]]


def main() -> None:
    setup = json.loads(sys.stdin.readline())
    cases = dict([*attention_cases(), *model_cases(setup["texts"], setup["single"])])
    repeats: dict[str, int] = {}
    print(json.dumps(list(cases)), flush=True)
    for line in sys.stdin:
        name = json.loads(line)
        if name == "peak":
            print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]), flush=True)
            continue
        call = cases[name]
        if name not in repeats:
            call()
            repeats[name] = max(1, round(LEAST / seconds(call, 1)))
        call()  # wakes this process's threads
        print(json.dumps([seconds(call, repeats[name])]), flush=True)


def seconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
