"""Language models beside llama.cpp, transformers and ONNX Runtime GenAI: tokens and speed."""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import OURS
from bench.checks import Data, Findings, check, need
from bench.checks.compare import pause, plural
from bench.decoder_peers import GenAI, LlamaCpp, Transformers, genai_folder, transformers_folder
from bench.decoder_shapes import HY_MT, QWEN3, SMOLLM2, Shape
from bench.measure import LEAST_BYTES, reader
from bench.timing import library_threads, once, sample
from fastattn import Generator
from fastattn.ops.cpu import use_threads

TOKENS = 64
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at",
    "1, 2, 3, 4, 5,",
    "To make a good cup of tea, first",
    "The three laws of motion are",
    "Dear Sir or Madam,\n\n",
    "Il était une fois",
    "Q: Why is the sky blue?\nA:",
)


def _peer(threads: int, context: int = 2048) -> LlamaCpp:
    return LlamaCpp(SMOLLM2.path, threads, 1, context)


def _licence() -> str:
    return (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")


@check("generation-tokens", f"smollm2, {len(PROMPTS)} prompts: the {TOKENS} greedy tokens of llama.cpp")
def tokens(findings: Findings, data: Data) -> None:
    peer = _peer(1)
    expected, found, _ = _answers(peer)
    same = [_common(ours, theirs) for ours, theirs in zip(found, expected)]
    equal = sum(count == min(len(one), TOKENS) for count, one in zip(same, found))
    findings.at_least("equal answers:", equal, f"of {len(PROMPTS)}", len(PROMPTS), f"equal first tokens {same}")


@check("generation-ties", "smollm2: where tokens differ from llama.cpp's, as near as its own without flash attention")
def ties(findings: Findings, data: Data) -> None:
    """Beside it, llama.cpp without flash attention, which rounds elsewhere: what that changes is its own noise."""
    peer = _peer(1)
    expected, found, again = _answers(peer)

    def gaps(answers: list[Any]) -> list[float]:
        firsts = [_common(one, theirs) for one, theirs in zip(answers, expected)]
        return [
            peer.gap([*peer.ids(prompt), *theirs[:first]], one[first])
            for prompt, one, theirs, first in zip(PROMPTS, answers, expected, firsts)
            if first < min(len(one), len(theirs))
        ]

    ours, own = gaps(found), gaps(again)
    remark = f"{len(ours)} and {len(own)} of {len(PROMPTS)} answers differ; ours at {[round(gap, 3) for gap in ours]}"
    findings.at_most("greatest gap of llama.cpp's logits there:", max(ours, default=0), "", max(own, default=0), remark)


def _answers(peer: LlamaCpp) -> tuple[list[Any], list[Any], list[Any]]:
    """(tokens of llama.cpp, ours, those of llama.cpp without flash attention)."""
    other, ids = LlamaCpp(SMOLLM2.path, 1, flash=False), [peer.ids(prompt) for prompt in PROMPTS]
    found = Generator("smollm2").generate(list(PROMPTS), details=True, max_new_tokens=TOKENS)
    theirs, again = ([one.answer([prompt], TOKENS)[0] for prompt in ids] for one in (peer, other))
    return theirs, [one.tokens for one in found], again


def _common(one: Any, other: Any) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


@check("generation-perplexity", "smollm2, a licence's text: perplexity within 0.5% of llama.cpp's")
def perplexity(findings: Findings, data: Data) -> None:
    peer = _peer(2, context=4096)
    text = _licence()[:8000]
    theirs = float(np.exp(-peer.log_probs(peer.ids(text)).mean()))
    for precision in ("auto", "float32"):
        ours = Generator("smollm2", precision).score(text).perplexity
        findings.at_most(f"{precision} {ours:.4f}, llama.cpp {theirs:.4f}:", 100 * abs(ours / theirs - 1), "%", 0.5)


@check("generation-cache", "smollm2, a licence's text: perplexity with caches of bfloat16 within 0.2%, of int8 0.5%")
def cache(findings: Findings, data: Data) -> None:
    text = _licence()[:8000]
    exact = 0.0
    for precision, most in (("float32", 0.0), ("bfloat16", 0.2), ("int8", 0.5)):
        ours = Generator("smollm2", cache_precision=precision)
        sizes, found = ours._service.model.sizes, ours.score(text).perplexity
        exact = exact or found
        remark = f"perplexity {found:.4f}, {sum(sizes.row_widths) * sizes.row_dtype.itemsize:,} bytes a token"
        findings.at_most(f"{precision}:", 100 * abs(found / exact - 1), "% off float32", most, remark)


LONG, BRIEF, TRIALS = 2000, 16, 7


@check(
    "generation-first-token",
    f"the first token behind a prompt of {BRIEF} tokens that comes while one of {LONG} is read, smollm2 on one thread "
    f"and two, {TRIALS} moments: within 100 ms",
)
def first_token(findings: Findings, data: Data) -> None:
    rng = np.random.default_rng(0)
    for threads in (1, 2):
        model = Generator(SMOLLM2.path, threads=threads)

        def prompt(length: int) -> list[int]:
            return rng.integers(256, SMOLLM2.words, length).tolist()

        waits = []
        for trial in range(TRIALS + 1):  # the first one compiles
            long = model.submit(prompt(LONG), caller="long", max_new_tokens=1)
            time.sleep(0.1 + 0.037 * trial)
            begun = time.perf_counter()
            model.submit(prompt(BRIEF), caller="short", max_new_tokens=1).result()
            waits.append(1e3 * (time.perf_counter() - begun))
            if trial and long.done():
                raise RuntimeError("the long prompt was read before")
            long.result()
        findings.at_most(f"{plural(threads)}:", max(waits[1:]), "ms", 100, f"median {np.median(waits[1:]):.0f} ms")


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
    f"a prompt of {PROMPT} tokens 1.2 x the best, one stream 0.95 x and {SHARE:.0%} of the memory's bandwidth, "
    f"{STREAMS} streams 2 x"
)
for _threads, (_shape, _what) in product(
    (1, 2), ((SMOLLM2, "SmolLM2-135M's file"), (QWEN3, "Qwen3-0.6B's shape"), (HY_MT, "Hy-MT-1.8B's shape"))
):
    _claim = f"{_what}, beside llama.cpp, ONNX Runtime GenAI and transformers on {plural(_threads)}: {CLAIM}"
    check(f"generation-speed-{_shape.name}-{_threads}", _claim)(partial(_speed, shape=_shape, threads=_threads))
