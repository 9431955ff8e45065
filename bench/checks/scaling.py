"""Two threads against one."""

from collections.abc import Callable
from functools import partial

from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.attention import SHAPES
from bench.checks.compare import THREADS, milliseconds, pause
from bench.kernel_cases import attention, linear
from bench.timing import alternate, library_threads
from fastattn import Encoder, Translator
from fastattn.ops import cpu as operations

LEAST = 1.8
PRODUCTS = ((1024, 1024, 1024), (96, 384, 1536))  # rows, inputs, outputs


def _scaling(findings: Findings, calls: dict[str, list[Callable[[], object]]], seconds: float) -> None:
    """calls: the work on one thread, and the same on two."""
    for what, (one_thread, two_threads) in calls.items():
        with library_threads(1):
            times = alternate({"1": one_thread, "2": two_threads}, rounds=9, seconds=seconds, pause=pause(2))
        findings.at_least(f"{what}:", times["1"] / times["2"], "x one thread", LEAST, milliseconds(times))


@check("two-threads-kernels", "products and attention: two threads at least 1.8 x one")
def kernels(findings: Findings, data: Data) -> None:
    def limited(call: Callable[[], object], threads: int) -> None:
        with operations.use_threads(threads):
            call()

    cases = [linear(*shape) for shape in PRODUCTS] + [attention(*shape) for shape in SHAPES]
    calls = {case.name: case.sides[OURS].calls[""] for case in cases}
    _scaling(findings, {name: [partial(limited, call, n) for n in THREADS] for name, call in calls.items()}, 3.0)


@check(
    "two-threads-models", "MiniLM's encoding, zh-en's 64 sentences greedy and beam 4: two threads at least 1.8 x one"
)
def models(findings: Findings, data: Data) -> None:
    english, chinese = data.flores("en")[:486], data.flores("zh")[:64]
    translators = [Translator("zh-en", "float32", threads) for threads in THREADS]
    calls = {"MiniLM": [partial(Encoder("minilm", "float32", threads).encode, english) for threads in THREADS]}
    for name, beam in (("greedy", 1), ("beam 4", 4)):
        calls[f"zh-en {name}"] = [partial(translator.translate, chinese, beam_size=beam) for translator in translators]
    _scaling(findings, calls, 45.0)
