"""Two threads against one."""

from collections.abc import Callable

from bench.checks import Data, Findings, check
from bench.checks.attention import SHAPES
from bench.checks.compare import pause
from bench.kernel_cases import attention, linear
from bench.timing import alternate, library_threads
from fastattn import Encoder, Translator
from fastattn.ops.cpu import use_threads

LEAST = 1.8
PRODUCTS = ((1024, 1024, 1024), (96, 384, 1536))  # rows, inputs, outputs


def _scaling(findings: Findings, calls: dict[str, Callable[[int], Callable[[], object]]], seconds: float) -> None:
    """``calls[name](threads)`` is the work on ``threads`` threads."""
    for what, on in calls.items():
        with library_threads(1):
            times = alternate({str(n): on(n) for n in (1, 2)}, rounds=9, seconds=seconds, pause=pause(2))
        remark = ", ".join(f"{1e3 * seconds:.4g} ms" for seconds in times.values())
        findings.at_least(f"{what}:", times["1"] / times["2"], "x one thread", LEAST, remark)


@check("two-threads-kernels", "products and attention: two threads at least 1.8 x one")
def kernels(findings: Findings, data: Data) -> None:
    cases = [linear(*shape) for shape in PRODUCTS] + [attention(*shape) for shape in SHAPES]

    def on(call: Callable[[], object]) -> Callable[[int], Callable[[], object]]:
        def limited(threads: int) -> Callable[[], object]:
            def run() -> None:
                with use_threads(threads):
                    call()

            return run

        return limited

    _scaling(findings, {case.name: on(case.sides["fastattn"].calls[""]) for case in cases}, 3.0)


@check(
    "two-threads-models", "MiniLM's encoding, zh-en's 64 sentences greedy and beam 4: two threads at least 1.8 x one"
)
def models(findings: Findings, data: Data) -> None:
    english, chinese = data.flores("en")[:486], data.flores("zh")[:64]
    encoders = {threads: Encoder("minilm", "float32", threads) for threads in (1, 2)}
    translators = {threads: Translator("zh-en", "float32", threads) for threads in (1, 2)}

    def translation(beam: int) -> Callable[[int], Callable[[], object]]:
        return lambda threads: lambda: translators[threads].translate(chinese, beam_size=beam)

    _scaling(
        findings,
        {
            "MiniLM": lambda threads: lambda: encoders[threads].encode(english),
            "zh-en greedy": translation(1),
            "zh-en beam 4": translation(4),
        },
        45.0,
    )
