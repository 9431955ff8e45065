"""Attention against PyTorch and NumPy, and its memory."""

from bench.case import OURS
from bench.checks import Data, Findings, check
from bench.checks.compare import THREADS, against, compare, in_child, plural, request
from bench.kernel_cases import attention

SHAPES = ((8, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32))


@check(
    "attention-torch",
    "one thread and two, (8, 12, 512, 64), (1, 12, 2048, 64), (32, 12, 128, 32): "
    "at least 1.8 x PyTorch's scaled_dot_product_attention",
)
def torch(findings: Findings, data: Data) -> None:
    _ratios(findings, [(shape, False, 1.8) for shape in SHAPES], "PyTorch")


@check("attention-numpy", "one thread and two, (1, 12, 2048, 64): at least 3 x NumPy's, causal 5 x")
def numpy(findings: Findings, data: Data) -> None:
    _ratios(findings, [(SHAPES[1], False, 3.0), (SHAPES[1], True, 5.0)], "NumPy")


def _ratios(findings: Findings, cases: list[tuple[tuple[int, int, int, int], bool, float]], peer: str) -> None:
    """The ratio of each (shape, causal, wanted)."""
    for threads in THREADS:
        for shape, causal, wanted in cases:
            case = against(attention(*shape, causal=causal), peer)
            sides = compare(case, threads)
            what = f"{plural(threads)}, {shape}{', causal' if causal else ''}:"
            remark = f"{sides[OURS]['rate']}, {sides[peer]['rate']}"
            findings.at_least(what, sides[peer]["ratio"], f"x {peer}", wanted, remark)


@check("attention-memory", "one thread and two, n = 8192: less than 4 MB a thread beyond inputs and result")
def memory(findings: Findings, data: Data) -> None:
    for threads in THREADS:
        found = in_child(request(data, "resources", threads, item="attention fastattn 8192"))
        findings.at_most(plural(threads), found["extra"] / 1e6, "MB", 4 * threads)
