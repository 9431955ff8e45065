"""Translate and encode from many Python threads for a given time; nothing may differ, fail or grow.

    python bench/soak.py --minutes 20
    python bench/soak.py --minutes 30 --server      # the HTTP server: bench.soak_server

First, one thread computes each text's result in each precision with each set of options. Then THREADS Python threads,
sharing engines that use one thread and engines that use all, take a random precision, random batches of texts and a
random set of options; every text's result must have the same bits as before. The process's resident memory is sampled
each second: the median of the last quarter may exceed that of the first by at most 5% and 20 MB. One line, PASS or
FAIL, has the figures; the exit status is 0, 1, or 130 after Ctrl-C, which ends at once.
"""

import argparse
import itertools
import os
import random
import statistics
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: what it imports is in this folder's package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.memory import resident

THREADS = 8
LARGEST_BATCH = 6
GROWTH, ALLOWANCE = 1.05, 20e6

CHINESE = (
    "今天天气很好，我们明天去北京开会。 她说： “这本书是我在旧书店里找到的，价格只有五块钱。” 谢谢！ "
    "政府计划在未来三年内修建一百二十公里的铁路，把沿海城市与内陆地区连接起来。 你叫什么名字？ 好 "
    "由于昨晚的暴雨，许多道路被淹没，学校宣布停课一天，老师们通过网络给学生布置了作业。 2023年5月1日 "
    "科学家发现，这种小鱼能够在没有光线的深海里生存，它们依靠细微的水流变化来寻找食物。 汉"
).split()
ENGLISH = (
    "A man is eating food. The river crosses a narrow valley and reaches the sea near an old fishing village! "
    "Why? Rain fell all night, so the roads were closed and the children stayed at home with their books. "
    "It costs 45.50 euros, which nobody expected. Naïve café owners sell crème brûlée 😀."
).split()
TRANSLATION_OPTIONS: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 2},
    {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0.6},
    {"beam_size": 3, "patience": 2.0, "return_attention": True},
    {"beam_size": 2, "split": "sentences", "disable_unk": True, "min_decoding_length": 3},
    {"beam_size": 2, "target_prefix": "The", "max_decoding_length": 20},
]
ENCODING_OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalize_embeddings": True, "truncate_dim": 64},
    {"pooling": ("cls", "mean")},
    {"prompt": "query: "},
]


Engine = Callable[[list[str], dict[str, Any]], list[Any]]


@dataclass(frozen=True)
class Work:
    """One kind of request: the engines that share it, its texts, its options, and the expected results."""

    name: str
    engines: list[Engine]
    texts: list[str]
    options: list[dict[str, Any]]
    expected: list[list[Any]] = field(default_factory=list)  # by options, by text

    def prepare(self) -> None:
        for options in self.options:
            self.expected.append([self.engines[0]([text], options)[0] for text in self.texts])

    def differences(self, rng: random.Random) -> int:
        number = rng.randrange(len(self.options))
        batch = [rng.randrange(len(self.texts)) for _ in range(rng.randint(1, LARGEST_BATCH))]
        results = rng.choice(self.engines)([self.texts[i] for i in batch], self.options[number])
        return sum(result != self.expected[number][i] for i, result in zip(batch, results, strict=True))


@dataclass
class Tally:
    requests: Counter[str] = field(default_factory=Counter)
    differences: int = 0
    errors: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, differences: int, error: bool = False) -> None:
        with self.lock:
            self.requests[name] += 1
            self.differences += differences
            self.errors += error


def texts_of(words: list[str], separator: str, count: int, longest: int) -> list[str]:
    rng = random.Random(7)
    return ["", *(separator.join(rng.choices(words, k=rng.randint(1, longest))) for _ in range(count - 1))]


def translation_work(model: str, precision: str) -> Work:
    from fastattn import Translator

    def engine(threads: int | None) -> Engine:
        translator = Translator(model, precision, threads)

        def run(texts: list[str], options: dict[str, Any]) -> list[Any]:
            results = translator.translate(texts, details=True, **options)
            attention = [[[row.tobytes() for row in part.attention or ()] for part in each.parts] for each in results]
            return [(each.hypotheses, each.scores, rows) for each, rows in zip(results, attention)]

        return run

    name, texts = f"{precision} translations", texts_of(CHINESE, "", 12, 4)
    return Work(name, [engine(1), engine(None)], texts, TRANSLATION_OPTIONS)


def encoding_work(model: str, precision: str) -> Work:
    from fastattn import Encoder

    def engine(threads: int | None) -> Engine:
        encoder = Encoder(model, precision, threads)
        return lambda texts, options: [vector.tobytes() for vector in encoder.encode(texts, **options)]

    return Work(f"{precision} encodings", [engine(1), engine(None)], texts_of(ENGLISH, " ", 40, 60), ENCODING_OPTIONS)


def run_threads(
    run: Callable[[int], None], over: threading.Event, minutes: float, memory: Callable[[], int]
) -> list[int]:
    """Run threads, each with its number, until the time is over; returns the memory of each second."""
    # Daemons: Ctrl-C does not wait for them.
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    samples, end = [], time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        samples.append(memory())
        time.sleep(min(1, max(0.0, end - time.monotonic())))
    over.set()
    for thread in threads:
        thread.join()
    return samples


def soak(works: list[tuple[Work, Work]], minutes: float, seed: int, tally: Tally) -> list[int]:
    over = threading.Event()

    def run(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        while not over.is_set():
            # Encoding is much faster: most requests are encodings, most time goes to translation.
            work = rng.choice(works)[rng.random() < 0.7]
            try:
                tally.add(work.name, work.differences(rng))
            except Exception:  # noqa: BLE001  counted and shown; the others go on
                traceback.print_exc()
                tally.add(work.name, 0, error=True)

    return run_threads(run, over, minutes, lambda: resident() or 0)  # where the system does not report memory


def verdict(tally: Tally, kinds: int, samples: list[int], what: str) -> bool:
    quarter = max(1, len(samples) // 4)
    first, last = statistics.median(samples[:quarter]), statistics.median(samples[-quarter:])
    flat = last <= GROWTH * first + ALLOWANCE
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(tally.requests.items()))
    passed = flat and not tally.differences and not tally.errors and len(tally.requests) == kinds
    memory = f"memory {first / 1e6:,.0f} MB in the first quarter, {last / 1e6:,.0f} in the last, at most "
    memory += f"{max(samples) / 1e6:,.0f}" if max(samples) else "? (this system does not tell)"
    print(
        f"{'PASS' if passed else 'FAIL'}  soak, {what}: requests {counts or 'none'}; {tally.differences} differences; "
        f"{tally.errors} errors; {memory}"
    )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--translation", default="zh-en", metavar="MODEL")
    parser.add_argument("--encoding", default="minilm", metavar="MODEL")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16", "int8"], metavar="PRECISION")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", action="store_true", help="the HTTP server instead, by clients good and bad")
    options = parser.parse_args()
    if not 0 < options.minutes < 1e6:
        parser.error(f"--minutes should be above 0, got {options.minutes}")
    tally = Tally()
    if options.server:
        from bench.soak_server import soak_server

        texts = texts_of(ENGLISH, " ", 40, 40)[1:]
        kinds, samples = soak_server(options.minutes, options.seed, texts, tally.add)
        what = f"server, {options.minutes:g} min, {THREADS} clients"
        return 0 if verdict(tally, kinds, samples, what) else 1
    works = [
        (translation_work(options.translation, precision), encoding_work(options.encoding, precision))
        for precision in options.precisions
    ]
    for work in itertools.chain(*works):
        work.prepare()
    samples = soak(works, options.minutes, options.seed, tally)
    return 0 if verdict(tally, 2 * len(works), samples, f"{options.minutes:g} min, {THREADS} threads") else 1


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:
        print("FAIL  soak: interrupted", flush=True)
        status = 130
    sys.stdout.flush()
    # A normal exit would wait for threads in compiled code, or destroy it while they run.
    os._exit(status)
