"""Where the time of a translation goes, part by part: a batch, one sentence, and a process's start.

The time of a part excludes what it calls of other parts; the table also has each part's time in kernels. The clock is
the thread's CPU time, so that other processes hardly disturb it. The fastest of several rounds counts, as a whole, so
that the parts sum to it.
"""

import functools
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.sentences import sentences
from bench.timing import once

WORDS = 22  # of the sentence that is translated alone
# Part -> the functions that make it up: (module, class or "", name). A checkpoint does not call all of them.
PARTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "splitting": (("text.translation", "", "split_sentences"), ("text.translation", "", "split_to_fit")),
    "tokenizing": (("text.sentencepiece", "SentencePiece", "pieces"),),
    "parts of lines": (("translation.pipeline", "Pipeline", "read_text"),),
    "jobs": (("translation.pipeline", "Pipeline", "_job"), ("decoding.search", "", "_with_numbers")),
    "shortlist": (("decoding.search", "TokenChoice", "select_outputs"),),
    "encoder": (("models.decoder", "EncoderDecoder", "encode"),),
    "admission": (("decoding.worker", "", "begin"),),
    "steps": (("decoding.worker", "DecodingWorker", "_step"),),
    "tokens": (("translation.pipeline", "Pipeline", "_translation_of"),),
    "joining": (
        ("translation.pipeline", "Pipeline", "_join"),
        ("translation.pipeline", "Pipeline", "_join_with_details"),
    ),
}
# Step of loading -> its functions, as in the table above.
LOADING: dict[str, tuple[tuple[str, str, str], ...]] = {
    "finding the folder": (("weights.download", "", "resolve"),),
    "beginning with sentencepiece": (("translation.translator", "", "start_loading"),),
    "what is kept of the checkpoint": (("loading.model_cache", "", "_find"),),
    "reading the checkpoint": (("loading.model_cache", "", "_read"),),
    "tokenizer": (("translation.translator", "", "TranslationTokenizer"),),
    "model": (("loading.loaded_model", "", "load_model"),),
    "waiting for sentencepiece": (("text.translation", "TranslationTokenizer", "wait"),),
}
REST = "the rest"
# Group of modules -> the prefixes of their names.
GROUPS = {
    "llvmlite, numba": ("llvmlite", "numba"),
    "numpy": ("numpy",),
    "sentencepiece": ("sentencepiece",),
    "click, yaml": ("click", "yaml"),
    "fastattn.cli": ("fastattn.cli",),
    "fastattn.weights": ("fastattn.weights",),
    "fastattn.text": ("fastattn.text",),
    "fastattn.kernels, simd, runtime": ("fastattn.kernels", "fastattn.ops.cpu", "fastattn.simd", "fastattn.runtime"),
    "fastattn, other": ("fastattn",),
}


@dataclass
class Budget:
    """Seconds by part: [own, kernels among them]."""

    parts: dict[str, tuple[tuple[str, str, str], ...]]
    clock: Callable[[], float] = time.thread_time
    kernels: dict[str, float] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=dict)
    _inside: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0]])
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def __enter__(self) -> "Budget":
        for part, places in self.parts.items():
            for module, owner, name in places:
                holder, function = holder_of(module, owner, name)
                self._undo.append(functools.partial(setattr, holder, name, function))
                setattr(holder, name, self._timed(part, function))
        return self

    def __exit__(self, *exception: object) -> None:
        for undo in self._undo:
            undo()

    def _timed(self, part: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._inside.append([0.0, 0.0])
            start, kernels = self.clock(), sum(self.kernels.values())
            try:
                return function(*arguments, **options)
            finally:
                whole = [self.clock() - start, sum(self.kernels.values()) - kernels]
                inside, own = self._inside.pop(), self.spent.setdefault(part, [0.0, 0.0])
                for n in range(2):
                    own[n] += whole[n] - inside[n]
                    self._inside[-1][n] += whole[n]

        return timed

    def run(self, call: Callable[[], object]) -> float:
        """Return the seconds of a call, and leave those of its parts in ``spent``, the most expensive first."""
        from bench.kernel_clock import kernel_seconds

        self.spent.clear()
        with kernel_seconds() as self.kernels:
            self._timed(REST, call)()
        self.spent = dict(sorted(self.spent.items(), key=lambda item: -item[1][0]))
        return sum(own for own, _ in self.spent.values())


def holder_of(module: str, owner: str, name: str) -> tuple[Any, Any]:
    """(the module or class that holds a function, the function)."""
    holder: Any = importlib.import_module(f"fastattn.{module}")
    holder = getattr(holder, owner) if owner else holder
    return holder, vars(holder)[name]


def run(size: str, model: str, threads: int, data: Path | None) -> int:
    from fastattn import Translator

    lines = sentences("en", {"full": 997, "quick": 256, "toy": 2}[size], data)
    translator = Translator(model, threads=threads)
    sentence = min(lines, key=lambda line: abs(len(line.split()) - WORDS))
    rounds = {"full": 5, "quick": 3, "toy": 1}[size]
    print(f"### {model}, {len(lines)} lines, threads: {threads}\n")
    _print_run(lambda: translator.translate(lines), rounds, len(lines), _reading(lines))
    print(f"\n### One sentence of {len(sentence.split())} words, resident\n")
    _print_run(lambda: translator.translate(sentence), 10 * rounds, 1, 0.0)
    print("\n### A process that translates one line: importing\n")
    _print_imports(model, sentence)
    print("\n### The same: loading, modules imported before\n\n| step | ms |\n| --- | ---: |")
    command = [sys.executable, "-m", "bench.budget", model, str(threads)]  # each round in a process of its own
    done = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(rounds)]
    for step in done[0]:
        values = sorted(seconds[step] for seconds in done)
        print(f"| {step} | {1e3 * values[len(values) // 2]:.2f} |")
    return 0


def _reading(lines: list[str]) -> float:
    """Seconds that the command line takes to read these lines from a file."""
    from fastattn.cli.lines import open_lines

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lines.txt")
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        start = time.thread_time()
        for burst in open_lines((), str(path)).bursts():
            list(burst)
        return time.thread_time() - start


def _print_run(call: Callable[[], object], rounds: int, count: int, reading: float) -> None:
    with Budget(PARTS) as budget:
        call()
        total, spent = min(((budget.run(call), dict(budget.spent)) for _ in range(rounds)), key=lambda run: run[0])
    print("| part | ms | us a line | % | of it in kernels, ms |\n| --- | ---: | ---: | ---: | ---: |")
    rows = {"reading a file": [reading, 0.0]} if reading else {}
    rows |= spent | {"**all but reading**": [total, sum(kernels for _, kernels in spent.values())]}
    for part, (own, kernels) in rows.items():
        inside = f"{1e3 * kernels:.3g}" if kernels else ""
        print(f"| {part} | {1e3 * own:.4g} | {1e6 * own / count:.4g} | {100 * own / total:.1f} | {inside} |")


def _print_imports(model: str, line: str) -> None:
    def run(*options: str) -> str:
        command = [sys.executable, *options, "-m", "fastattn.cli", "translate", "-m", model, line]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr

    run()
    whole, trace = once(run), run("-X", "importtime")
    spent: dict[str, int] = {}
    for own, module in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \| +(\S+)$", trace, re.MULTILINE):
        groups = (name for name, starts in GROUPS.items() if f"{module}.".startswith(tuple(f"{s}." for s in starts)))
        group = next(groups, "Python's own")
        spent[group] = spent.get(group, 0) + int(own)
    print("| modules | ms |\n| --- | ---: |")
    for group, microseconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"| {group} | {microseconds / 1e3:.1f} |")
    print(
        f"| **all imports** | {sum(spent.values()) / 1e3:.1f} |\n| **the process, not so traced** | {1e3 * whole:.0f} |"
    )


def _load(model: str, threads: int) -> dict[str, float]:
    """Wall-clock seconds of each step of loading, waits included."""
    from fastattn import Translator

    with Budget(LOADING, clock=time.perf_counter) as budget:
        total = budget.run(lambda: Translator(model, threads=threads))
    return {step: own for step, (own, _) in budget.spent.items()} | {"**all**": total}


if __name__ == "__main__":
    print(json.dumps(_load(sys.argv[1], int(sys.argv[2]))))
