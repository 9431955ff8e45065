"""The parts whose cases are timed: kernels, lengths of attention, encoding, translation. Run in a child process."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bench.case import Case, run_case
from bench.measure import bandwidth, peak_flops
from bench.request import Request, say

# Seconds before a side's turn. OpenBLAS's threads wait on their cores for some 70 ms after a product: after 30 ms of
# rest PyTorch, which is next, lacked one (1024 cubed, two threads of a Zen 5: 16.0 ms, and 9.9 after 300 ms).
REST = 0.15


def measured(request: Request, cases: Iterable[Callable[[], Case]], rounds: int, seconds: float, pause: float) -> Any:
    """All cases' rows, and the better of two measurements of the machine's limits, before and after."""
    share = request.choose(1.0, 1.0, 0.1)
    limits = [(peak_flops(request.threads, request.precision, share), bandwidth(request.threads, share))]
    rows = []
    for make in cases:
        case = make()
        if request.only in case.name:
            say(f"  {case.name}")
            rows.append(run_case(case, rounds, seconds, pause if request.threads > 1 else 0.0))
        del case  # frees its arrays before the next case makes its own
    limits.append((peak_flops(request.threads, request.precision, share), bandwidth(request.threads, share)))
    peak, read = (max(values) for values in zip(*limits, strict=True))
    return {"peak_flops": peak, "bandwidth": read, "rows": rows}


def kernels(request: Request) -> Any:
    from bench.kernel_cases import table_cases

    return measured(request, table_cases(request), request.choose(11, 3, 2), request.choose(3.0, 0.3, 0.05), REST)


def lengths(request: Request) -> Any:
    """Attention over the number of positions, (1, 12, n, 64)."""
    from bench.kernel_cases import attention

    sizes = request.choose([128, 256, 512, 1024, 2048, 4096, 8192], [128, 512, 2048], [8, 16])
    # NumPy's scores of 12 heads at 8192 take 3.2 GB
    cases = [partial(attention, 1, 12, n, 64, naive=n <= 4096) for n in sizes]
    return measured(request, cases, request.choose(7, 3, 2), request.choose(3.0, 0.3, 0.05), REST)


def encode(request: Request) -> Any:
    from bench.model_cases import encode_cases

    return measured(request, encode_cases(request), request.choose(7, 3, 2), request.choose(12.0, 0.5, 0.1), 0.3)


def translate(request: Request) -> Any:
    from bench.model_cases import translate_cases

    return measured(request, translate_cases(request), request.choose(5, 3, 2), request.choose(15.0, 0.5, 0.1), 0.3)


def light(request: Request) -> Any:
    from bench.model_cases import light_cases

    return measured(request, light_cases(request), request.choose(7, 3, 2), request.choose(30.0, 0.5, 0.1), 0.3)
