"""Processes of language models beside llama.cpp's: their memory, their start; and who waits for whom within one."""

import statistics
import sys
import time

import numpy as np

from bench.checks import Data, Findings, check, need
from bench.checks.compare import plural
from bench.checks.start import python
from bench.decoder_shapes import HY_MT, QWEN3, SMOLLM2
from bench.memory import peak_of_command
from bench.timing import once
from fastattn import Generator

SHAPES = (SMOLLM2, QWEN3, HY_MT)
OURS = """
import sys
from fastattn import Generator
print(Generator(sys.argv[1], threads=2).generate("Once upon a time", max_new_tokens=int(sys.argv[2])))
"""
THEIRS = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=512, n_threads=2, n_threads_batch=2, verbose=False)
print(model("Once upon a time", max_tokens=int(sys.argv[2]), temperature=0.0)["choices"][0]["text"])
"""
LONG, SHORT, TRIALS = 2000, 16, 7


@check(
    "generation-memory",
    "a fresh process that answers with 32 tokens, smollm2 and the shapes of Qwen3-0.6B and Hy-MT-1.8B: at its peak at "
    "most 1.15 x the file",
)
def memory(findings: Findings, data: Data) -> None:
    need("llama_cpp", "gguf")
    for shape in SHAPES:
        size, arguments = shape.path.stat().st_size, [str(shape.path), "32"]
        python("-c", OURS, *arguments)  # packs the weights; the second has what the first read
        python("-c", OURS, *arguments)
        peaks = [peak_of_command([sys.executable, "-c", script, *arguments]) for script in (OURS, THEIRS)]
        remark = f"{peaks[0] / 1e6:.0f} MB, llama.cpp {peaks[1] / 1e6:.0f} MB, {peaks[1] / size:.3g} x"
        findings.at_most(f"{shape.name}:", peaks[0] / size, f"x {size / 1e6:.0f} MB", 1.15, remark)


@check(
    "generation-start",
    "a process from its start to the first token behind a short prompt, kernels compiled and files read before, median "
    "of 5, smollm2 and both shapes on two threads: at most 0.2 s longer than llama.cpp's",
)
def start(findings: Findings, data: Data) -> None:
    need("llama_cpp", "gguf")
    for shape in SHAPES:
        commands = {
            name: ("-c", script, str(shape.path), "1") for name, script in (("ours", OURS), ("llama.cpp", THEIRS))
        }
        for _ in range(2):
            for command in commands.values():
                python(*command)
        times = {name: list[float]() for name in commands}
        for _ in range(5):
            for name, command in commands.items():
                times[name].append(once(lambda command=command: python(*command)))
        ours, theirs = map(statistics.median, times.values())
        findings.at_most(f"{shape.name}:", ours - theirs, "s", 0.2, f"{ours:.2f} and {theirs:.2f} s")


@check(
    "generation-first-token",
    f"the first token behind a prompt of {SHORT} tokens that comes while one of {LONG} is read, smollm2 on one thread "
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
            model.submit(prompt(SHORT), caller="short", max_new_tokens=1).result()
            waits.append(1e3 * (time.perf_counter() - begun))
            if trial and long.done():
                raise RuntimeError("the long prompt was read before")
            long.result()
        findings.at_most(f"{plural(threads)}:", max(waits[1:]), "ms", 100, f"median {np.median(waits[1:]):.0f} ms")
