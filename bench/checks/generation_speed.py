"""The speed of language models beside llama.cpp, transformers and ONNX Runtime GenAI."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from bench.case import OURS
from bench.checks import Data, Findings, check, need
from bench.checks.compare import pause, plural
from bench.decoder_peers import GenAI, Transformers, genai_folder, transformers_folder
from bench.decoder_shapes import HY_MT, QWEN3, SMOLLM2, Shape
from bench.llama_cpp import LlamaCpp
from bench.measure import LEAST_BYTES, reader
from bench.timing import library_threads, once, sample
from fastattn import Generator
from fastattn.ops.cpu import use_threads

PROMPT, STREAMS, ALONE, SHORT = 512, 16, 24, 16
SHARE = 0.85  # of the memory's bandwidth, by the bytes of the file
FIRST, MEMORY = "the first token", "memory"  # what is timed beside one stream
# (what, streams, tokens of a prompt, tokens of an answer, times the best peer's speed)
CASES = (
    (f"a prompt of {PROMPT} tokens", 1, PROMPT, 1, 1.2),
    ("one stream", 1, SHORT, ALONE, 0.95),
    (f"{STREAMS} streams", STREAMS, SHORT, ALONE, 2.0),
)


def _engines(shape: Shape, threads: int) -> dict[str, Callable[[list[list[int]], int], Any]]:
    """name -> a function that continues prompts by a number of tokens."""
    need("llama_cpp", "onnxruntime_genai", "torch", "transformers", "gguf")
    ours = Generator(shape.path, threads=threads)

    def answer(prompts: list[list[int]], count: int) -> Any:
        return ours.generate(prompts, details=True, max_new_tokens=count, min_new_tokens=count)

    folder = transformers_folder(shape)
    source = Transformers(folder)
    return {
        OURS: answer,
        "llama.cpp": LlamaCpp(shape.path, threads, STREAMS, PROMPT + 64).answer,
        "GenAI int4": GenAI(genai_folder(folder), threads).answer,
        source.name: source.answer,
    }


def _speed(findings: Findings, data: Data, shape: Shape, threads: int) -> None:
    rng = np.random.default_rng(0)
    engines = _engines(shape, threads)
    for answer in engines.values():
        answer([rng.integers(256, shape.words, PROMPT // 4).tolist()], 2)
    read = reader([np.ones(LEAST_BYTES // 8, np.int64)], threads)
    read()
    for what, streams, length, count, wanted in CASES:
        is_alone = what == "one stream"

        def call(answer: Callable[[list[list[int]], int], Any], streams: int, length: int, count: int) -> None:
            # Prompts that begin as no other has begun, since we keep what was read before.
            answer(rng.integers(256, shape.words, (streams, length)).tolist(), count)

        calls = {name: partial(call, answer, streams, length, count) for name, answer in engines.items()}
        if is_alone:  # the same memory is faster or slower from minute to minute, where others use it too
            calls |= {FIRST: partial(call, engines[OURS], 1, length, 1), MEMORY: read}
        seconds = _seconds(calls, threads)
        first, memory = (seconds.pop(FIRST), LEAST_BYTES / seconds.pop(MEMORY)) if is_alone else (0.0, 0.0)
        work = streams * (count if count > 1 else length)
        best = min((name for name in seconds if name != OURS), key=lambda name: seconds[name])
        remark = ", ".join(f"{side} {work / second:,.0f}" for side, second in seconds.items())
        ratio = seconds[best] / seconds[OURS]
        findings.at_least(f"{what}:", ratio, f"x {best}", wanted, f"tokens/s: {remark}")
        if is_alone:
            share = shape.path.stat().st_size * (count - 1) / (seconds[OURS] - first) / memory
            findings.at_least("its steps:", share, f"of {memory / 1e9:.1f} GB/s", SHARE)


def _seconds(calls: dict[str, Callable[[], None]], threads: int) -> dict[str, float]:
    """Median seconds of each call, in alternation: of a slow one the only sample, since all have run before."""
    with use_threads(threads), library_threads(threads):
        times = sample(calls, {name: once(call) for name, call in calls.items()}, 5, 3.0, pause(threads))
    return {name: float(np.median(values)) for name, values in times.items()}


CLAIM = (
    f"a prompt of {PROMPT} tokens 1.2 x the best, one stream 0.95 x and {SHARE:.0%} of the memory's bandwidth, {STREAMS} "
    "streams 2 x"
)
for _threads, (_shape, _what) in product(
    (1, 2), ((SMOLLM2, "SmolLM2-135M's file"), (QWEN3, "Qwen3-0.6B's shape"), (HY_MT, "Hy-MT-1.8B's shape"))
):
    _claim = f"{_what}, beside llama.cpp, ONNX Runtime GenAI and transformers on {plural(_threads)}: {CLAIM}"
    check(f"generation-speed-{_shape.name}-{_threads}", _claim)(partial(_speed, shape=_shape, threads=_threads))
