"""Many callers of one Translator: the cost of shared steps, and the wait of the last caller."""

import asyncio
import threading
import time
from collections.abc import Callable

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, plural
from bench.timing import alternate
from fastattn import Step, Translator

SENTENCES = 64
LONG, TRIALS = 500, 7


@check(
    "callers-together",
    f"{SENTENCES} callers with a sentence each at once, zh-en int8, as threads and as tasks, on one thread and two: at "
    "most 1.15 of the time of one call with the list",
)
def together(findings: Findings, data: Data) -> None:
    texts = data.flores("zh")[:SENTENCES]
    for threads in THREADS:
        translator = Translator("zh-en", "int8", threads)
        expected = translator.translate(texts)
        calls: dict[str, Callable[[], object]] = {
            "list": lambda translator=translator: translator.translate(texts),
            "threads": lambda translator=translator: _by_threads(translator, texts),
            "tasks": lambda translator=translator: asyncio.run(_by_tasks(translator, texts)),
        }
        if any(call() != expected for call in calls.values()):
            raise RuntimeError("callers have other translations than the list")
        times = alternate(calls, rounds=9, seconds=60.0)
        for name in ("threads", "tasks"):
            ratio = times[name] / times["list"]
            findings.at_most(f"{plural(threads)}, {name}:", ratio, "of the list's time", 1.15, f"{times[name]:.2f} s")


def _by_threads(translator: Translator, texts: list[str]) -> list[str]:
    found = [""] * len(texts)

    def call(number: int) -> None:
        found[number] = translator.translate(texts[number])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


async def _by_tasks(translator: Translator, texts: list[str]) -> list[str]:
    return list(await asyncio.gather(*(translator.translate_async(text) for text in texts)))


@check(
    "callers-fair",
    f"a short sentence behind {LONG} long ones of another caller, zh-en int8, on one thread and two: its first token "
    f"within 100 ms at the {TRIALS} moments tried, and its end while most of the others still wait",
)
def fair(findings: Findings, data: Data) -> None:
    long = sorted(data.flores("zh"), key=len)[-LONG:]
    for threads in THREADS:
        translator = Translator("zh-en", "int8", threads)
        translator.translate(long[:8] + ["你好。"])  # compiles the kernels
        waits, ends, left = zip(*(_behind(translator, long, 0.2 * trial) for trial in range(TRIALS)))
        remark = f"median {1e3 * np.median(waits):.0f}, ends after {1e3 * max(ends):.0f} at most"
        findings.at_most(f"{plural(threads)}:", 1e3 * max(waits), "ms to its first token", 100, remark)
        findings.at_least("", min(left), "others left at its end", LONG // 2)


def _behind(translator: Translator, long: list[str], after: float) -> tuple[float, float, int]:
    """(seconds to the first token, seconds to the end, others unfinished then) of a sentence ``after`` seconds."""
    others = [translator.submit(text, caller="one", beam_size=4) for text in long]
    time.sleep(after)
    first: list[float] = []
    start = time.perf_counter()

    def see(step: Step) -> None:
        first.append(time.perf_counter())

    translator.submit("你好。", caller="other", beam_size=1, callback=see).result()
    end, left = time.perf_counter(), sum(not other.done() for other in others)
    for other in others:
        other.cancel()
    return first[0] - start, end - start, left
