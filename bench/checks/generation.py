"""Language models beside llama.cpp: SmolLM2's real file."""

from pathlib import Path
from typing import Any

import numpy as np

from bench.checks import Data, Findings, check
from bench.decoder_shapes import SMOLLM2
from bench.llama_cpp import LlamaCpp
from fastattn import Generator

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
