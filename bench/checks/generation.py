"""SmolLM2 against llama.cpp: tokens, perplexity, the cache's precision; the time to the first token."""

import time
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, plural
from bench.llama import LlamaCpp
from bench.machine import ROOT
from fastattn import Generator

TOKENS = 64
PROMPTS = [
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
]


def _licence() -> str:
    return (ROOT / "LICENSE").read_text(encoding="utf-8")[:8000]


def _common(a: Any, b: Any) -> int:
    """How many tokens are equal before the first that differs."""
    return next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))


@check("generation-tokens", f"smollm2, {len(PROMPTS)} prompts: the {TOKENS} greedy tokens of llama.cpp")
def tokens(findings: Findings, data: Data) -> None:
    ours, theirs = _ours(), LlamaCpp().answers(PROMPTS, TOKENS)
    same = [_common(a, b) for a, b in zip(ours, theirs)]
    equal = sum(count == min(len(answer), TOKENS) for count, answer in zip(same, ours))
    findings.at_least("equal answers:", equal, f"of {len(PROMPTS)}", len(PROMPTS), f"equal first tokens {same}")


@check("generation-ties", "smollm2: where tokens differ from llama.cpp's, as near as its own without flash attention")
def ties(findings: Findings, data: Data) -> None:
    """llama.cpp without flash attention rounds in other places: the changes are llama.cpp's own noise."""
    peer = LlamaCpp()
    expected = peer.answers(PROMPTS, TOKENS)

    def gaps(answers: list[Any]) -> list[float]:
        firsts = [_common(*pair) for pair in zip(answers, expected)]
        return [
            peer.gap([*peer.ids(prompt), *theirs[:first]], answer[first])
            for prompt, answer, theirs, first in zip(PROMPTS, answers, expected, firsts)
            if first < min(len(answer), len(theirs))
        ]

    ours, theirs = gaps(_ours()), gaps(LlamaCpp(flash=False).answers(PROMPTS, TOKENS))
    remark = (
        f"{len(ours)} and {len(theirs)} of {len(PROMPTS)} answers differ; ours at {[round(gap, 3) for gap in ours]}"
    )
    bound = max(theirs, default=0)
    findings.at_most("greatest gap of llama.cpp's logits there:", max(ours, default=0), "", bound, remark)


def _ours() -> list[Any]:
    results = Generator("smollm2").generate(PROMPTS, details=True, max_new_tokens=TOKENS)
    return [result.tokens for result in results]


@check("generation-perplexity", "smollm2, a licence's text: perplexity within 0.5% of llama.cpp's")
def perplexity(findings: Findings, data: Data) -> None:
    peer, text = LlamaCpp(threads=2, context=4096), _licence()
    theirs = float(np.exp(-peer.log_probs(peer.ids(text)).mean()))
    for precision in ("auto", "float32"):
        ours = Generator("smollm2", precision).score(text).perplexity
        findings.at_most(f"{precision} {ours:.4f}, llama.cpp {theirs:.4f}:", 100 * abs(ours / theirs - 1), "%", 0.5)


@check("generation-cache", "smollm2, a licence's text: perplexity with caches of bfloat16 within 0.2%, of int8 0.5%")
def cache(findings: Findings, data: Data) -> None:
    exact = 0.0
    for precision, most in (("float32", 0.0), ("bfloat16", 0.2), ("int8", 0.5)):
        model = Generator("smollm2", cache_precision=precision)
        sizes, ours = model._service.model.sizes, model.score(_licence()).perplexity
        exact = exact or ours
        remark = f"perplexity {ours:.4f}, {sum(sizes.row_widths) * sizes.row_dtype.itemsize:,} bytes a token"
        findings.at_most(f"{precision}:", 100 * abs(ours / exact - 1), "% off float32", most, remark)


LONG, BRIEF, TRIALS, WORDS = 2000, 16, 7, 49_152


@check(
    "generation-first-token",
    f"the first token behind a prompt of {BRIEF} tokens that comes while one of {LONG} is read, smollm2 on one thread "
    f"and two, {TRIALS} moments: within 100 ms",
)
def first_token(findings: Findings, data: Data) -> None:
    rng = np.random.default_rng(0)
    for threads in THREADS:
        model, waits = Generator("smollm2", threads=threads), []
        for trial in range(TRIALS + 1):  # the first call compiles
            long, brief = (rng.integers(256, WORDS, length).tolist() for length in (LONG, BRIEF))
            busy = model.submit(long, caller="long", max_new_tokens=1)
            time.sleep(0.1 + 0.037 * trial)
            start = time.perf_counter()
            model.submit(brief, caller="short", max_new_tokens=1).result()
            waits.append(1e3 * (time.perf_counter() - start))
            if trial and busy.done():
                raise RuntimeError("the long prompt was read before")
            busy.result()
        findings.at_most(f"{plural(threads)}:", max(waits[1:]), "ms", 100, f"median {np.median(waits[1:]):.0f} ms")
