"""Device "cuda" on this machine's card: equality first, then models, then each kernel's share of what the card can do.

    python -m bench.gpu [--part PART] [--only TEXT] [--rounds N] [--data DIR]
    sh bench/card.sh MODELS        # all parts one after the other, where a card is lent for minutes

A part goes on behind what fails, and prints each line at once.

Peaks are measured here: the bandwidth of a copy, and what cuBLAS, by PyTorch, makes of a large product in a precision.
PyTorch and transformers are beside every line where they are installed with CUDA; without them only our figures stand.
Compiling is apart: each call runs once before it is timed. --data holds flores-dev/flores-dev.{en,zh}.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.operations import OPERATIONS
from bench.operations.table import Operation, Problem
from bench.sentences import sentences
from fastattn import Encoder, Generator, Translator, attention
from fastattn.ops import backend, reference
from fastattn.ops.protocol import ImageOps
from fastattn.weights.download import resolve

SHAPES = (8, 16, 4096, 64), (1, 32, 16384, 128)  # batch, heads, positions, width of a head
TOLERANCE = 1e-4  # of the greatest magnitude, in float32
BATCH = 256


def on_card(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Rows and tables on the card; indices, and parameters of one axis, as operations take them."""
    from fastattn.ops.cuda import card

    return {
        name: card.upload(array) if array.ndim > 1 and array.dtype in (np.float32, np.uint16) else array
        for name, array in arrays.items()
    }


def attempt(call: Callable[..., Any], *arguments: Any, what: str = "") -> Any:
    """The call's result; if it raises, print the error and return None, so that later parts still run."""
    try:
        return call(*arguments)
    except Exception as error:  # noqa: BLE001 - a driver or a compiler may raise anything
        print(f"{what}{type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


def seconds_of(call: Callable[[], Any], rounds: int) -> float:
    """Median seconds of a call, the card's work included, after one untimed call."""
    from numba import cuda

    def once() -> float:
        start = time.perf_counter()
        call()
        cuda.synchronize()
        return time.perf_counter() - start

    once()
    return float(np.median([once() for _ in range(rounds)]))


def bandwidth(rounds: int) -> float:
    """Bytes a second of a copy on the card, read and written."""
    from numba import cuda

    from fastattn.ops.cuda import card

    source, target = (card.empty((1 << 28,), np.uint8) for _ in range(2))
    seconds = seconds_of(lambda: target.copy_to_device(source), rounds)
    cuda.synchronize()
    return 2 * source.size / seconds


def torch_on_card() -> Any:
    """PyTorch if it can use the card, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def peaks(torch: Any, rounds: int) -> dict[str, float]:
    """{precision: operations a second of cuBLAS in a product of 8,192 cubed}; empty without PyTorch."""
    rates: dict[str, float] = {}
    for precision in ("float32", "bfloat16", "float16") if torch is not None else ():
        a_t = torch.randn(8192, 8192, device="cuda", dtype=getattr(torch, precision))
        rates[precision] = 2 * 8192**3 / seconds_of(lambda a_t=a_t: a_t @ a_t, rounds)
    return rates


def is_equal(problem: Problem) -> bool:
    """Whether the card's results equal the reference's to float32's rounding."""
    from bench import cuda_on_host

    got = problem.call(cuda_on_host, problem.arrays)
    expected = problem.call(reference, problem.arrays)
    scale = max((np.abs(x[np.isfinite(x)]).max(initial=1) for x in expected if x.dtype.kind == "f"), default=1)
    return all(
        np.allclose(np.asarray(array), oracle, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
        for array, oracle in zip(got, expected, strict=True)
    )


def failures(named: Iterable[tuple[str, Callable[[], bool]]], what: str) -> int:
    """How many comparisons are false or raise; prints a line for each of them and a summary."""
    failed, listed = 0, list(named)
    for name, is_right in listed:
        equal = attempt(is_right, what=f"{what}: {name}: ")
        failed += not equal
        if not equal and equal is not None:
            print(f"{what}: {name}: differs", flush=True)
    print(f"{what}: {len(listed) - failed} of {len(listed)} equal", flush=True)
    return failed


def of_cards(only: str) -> dict[str, Operation]:
    """The operations whose names contain the text, without those on images, which only the CPU has."""
    return {name: operation for name, operation in OPERATIONS.items() if only in name and not hasattr(ImageOps, name)}


def check(only: str) -> int:
    """Compare the table of operations with the reference, without weights of 4 bits, which only the CPU has."""
    problems = [operation.problem(size) for operation in of_cards(only).values() for size in operation.awkward]
    problems = [problem for problem in problems if problem.form.get("precision") != "int4"]
    return failures(((problem.name, partial(is_equal, problem)) for problem in problems), "operations")


def capped(score, b, h, q, k):  # type: ignore[no-untyped-def]
    return 5.0 * np.tanh(score / 5.0)


def sloped(score, b, h, q, k):  # type: ignore[no-untyped-def]
    return score - 0.1 * (h + 1) * abs(q - k)


def in_window(b, h, q, k):  # type: ignore[no-untyped-def]
    return (q >= k) & (q - k < 7)


FUNCTIONS: dict[str, dict[str, Any]] = {
    "score_mod": {"score_mod": capped},
    "score_mod of positions": {"score_mod": sloped},
    "mask_mod": {"mask_mod": in_window},
    "both": {"score_mod": sloped, "mask_mod": in_window},
}


def check_functions(only: str) -> int:
    from fastattn.ops.cuda import card

    rng, shape = np.random.default_rng(1), (1, 9, 1, 8) if "simulator" in card.description() else (2, 133, 4, 64)
    query, key, value = (rng.standard_normal(shape, np.float32) for _ in range(3))

    def is_right(options: dict[str, Any]) -> bool:
        got, expected = (np.asarray(attention(query, key, value, device=d, **options)) for d in ("cuda", "cpu"))
        return np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE)

    named = ((name, lambda options=options: is_right(options)) for name, options in FUNCTIONS.items() if only in name)
    return failures(named, "functions")


def check_arrays(only: str) -> int:
    """Attention of PyTorch's and CuPy's arrays on the card, which another stream may still compute."""

    def of_torch(dtype: str) -> bool:
        import torch

        host = [torch.randn(2, 133, 4, 64, dtype=getattr(torch, dtype)) for _ in range(3)]
        expected = attention(*(array.float().numpy() for array in host))
        large, on_device = torch.randn(8192, 8192, device="cuda"), [array.cuda() for array in host]
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):  # half a second of work, after which the arrays have their numbers
                large = large @ large * 1e-4
            arrays = [array + large[0, 0].to(array.dtype) * 0 for array in on_device]
            got = torch.as_tensor(attention(*arrays, device="cuda"), device="cuda")
        got_BTHV = got.view(arrays[0].dtype).float().cpu().numpy() if got.dtype == torch.uint16 else got.float().cpu()
        return np.allclose(got_BTHV, expected, rtol=0, atol=1e-5 if dtype == "float32" else 2e-2)

    def of_cupy() -> bool:
        import cupy

        host = [np.random.default_rng(n).standard_normal((2, 133, 4, 64), np.float32) for n in range(3)]
        large, on_device = cupy.ones((8192, 8192), np.float32), [cupy.asarray(array) for array in host]
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(20):
                large = large @ large * 1e-4
            arrays = [array + 0 * large[0, 0].clip(0, 1) for array in on_device]
            got = cupy.asnumpy(cupy.asarray(attention(*arrays, device="cuda")))
        return np.allclose(got, attention(*host), atol=TOLERANCE)

    named = {f"torch, {dtype}": lambda dtype=dtype: of_torch(dtype) for dtype in ("float32", "float16", "bfloat16")}
    named |= {"cupy": of_cupy}
    return failures(((name, call) for name, call in named.items() if only in name), "arrays")


def check_models(only: str) -> int:
    def translated(device: str) -> list[str]:
        texts = ["今天天气很好。", "我们明天去北京开会，你去吗？", "好"]
        return Translator("zh-en", "float32", device=device).translate(texts, beam_size=2)

    def encoded(device: str) -> np.ndarray:
        return Encoder("minilm", "float32", device=device).encode(["A man eats.", "Rain fell all night."])

    def generated(device: str) -> list[str]:
        model = Generator("smollm2", "float32", device=device)
        return model.generate(["The capital of France is", "One, two,"], max_new_tokens=12, beam_size=1)

    named = {
        "zh-en": lambda: translated("cuda") == translated("cpu"),
        "minilm": lambda: np.allclose(encoded("cuda"), encoded("cpu"), atol=TOLERANCE),
        "smollm2": lambda: generated("cuda") == generated("cpu"),
    }
    return failures(((name, call) for name, call in named.items() if only in name), "models")


def time_kernels(only: str, rounds: int, torch: Any) -> None:
    limit, peak = bandwidth(rounds), peaks(torch, rounds)
    print(f"a copy moves {limit / 1e9:.0f} GB/s; cuBLAS: {', '.join(f'{n} {p / 1e12:.1f} T' for n, p in peak.items())}")

    def time_problem(problem: Problem, precision: str) -> None:
        seconds = seconds_of(problem.bind(backend("cuda"), on_card(problem.arrays)), rounds)
        shares = [f"{problem.work.bytes / seconds / limit:.2f} of the bandwidth"]
        if problem.work.flops is not None and precision in peak:
            shares.append(f"{problem.work.flops / seconds / peak[precision]:.2f} of cuBLAS' peak")
        print(f"{problem.work.title}, {precision}: {seconds * 1e3:.3f} ms, {', '.join(shares)}", flush=True)

    for operation in of_cards(only).values():
        for size in operation.large:
            for precision in filter("int4".__ne__, operation.precisions):  # only the CPU has it
                problem = operation.problem(size, **{"precision": precision} if len(operation.precisions) > 1 else {})
                if problem.work is not None:
                    attempt(time_problem, problem, precision)


def time_attention(shape: tuple[int, int, int, int], rounds: int, torch: Any) -> None:
    from fastattn.ops.cuda import card

    B, H, T, K = shape
    x_BTHK = np.random.default_rng(0).standard_normal((B, T, H, K)).astype(np.float16)
    query, out = card.upload(x_BTHK), card.empty(x_BTHK.shape, np.float16)
    seconds = seconds_of(lambda: attention(query, query, query, out=out, device="cuda"), rounds)
    line = f"attention {shape}, float16: {seconds * 1e3:.2f} ms"
    if torch is not None:
        x_t = torch.from_numpy(x_BTHK).cuda().transpose(1, 2)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        line += f", {seconds_of(lambda: sdpa(x_t, x_t, x_t), rounds) / seconds:.2f} of PyTorch's speed"
    print(line)


def print_speeds(
    what: str, unit: str, ours: Callable[[int], Any], theirs: Callable[[int], Any] | None, peer: str, rounds: int
) -> None:
    """Print the speed of one text and of a batch; ``ours`` and ``theirs`` take the number of texts."""
    for n in (1, BATCH):
        seconds, line = seconds_of(lambda n=n: ours(n), rounds), f"{what}, {n} {unit}:"
        remark = f", {seconds_of(lambda n=n: theirs(n), rounds) / seconds:.2f} x {peer} in float16" if theirs else ""
        print(f"{line} {n / seconds:.1f} a second{remark}")


def time_encoder(rounds: int, torch: Any, data: Path | None) -> None:
    english = sentences("en", BATCH, data)
    encoder, on_cpu = Encoder("minilm", "float32", device="cuda"), Encoder("minilm", "float32")
    error = np.abs(encoder.encode(english) - on_cpu.encode(english)).max()
    print(f"minilm: vectors within {error:.1e} of the CPU's")
    theirs = None
    if torch is not None:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(resolve("minilm")), device="cuda", model_kwargs={"dtype": "float16"})
        theirs = partial(model.encode, show_progress_bar=False)
    print_speeds(
        "minilm", "texts", lambda n: encoder.encode(english[:n]),
        theirs and (lambda n: theirs(english[:n], batch_size=n)), "sentence-transformers", rounds,
    )  # fmt: skip


def time_translator(rounds: int, torch: Any, data: Path | None) -> None:
    chinese = sentences("zh", BATCH, data)
    translator, on_cpu = Translator("zh-en", device="cuda"), Translator("zh-en")
    results = [model.translate(chinese, beam_size=1) for model in (translator, on_cpu)]
    equal = sum(a == b for a, b in zip(*results))
    print(f"zh-en: {equal} of {len(chinese)} translations equal to the CPU's")
    theirs = None
    if torch is not None:
        from bench import torch_marian

        theirs = torch_marian.translator(resolve("zh-en"), "cuda", "float16")
    print_speeds(
        "zh-en, greedy", "sentences", lambda n: translator.translate(chinese[:n], beam_size=1),
        theirs and (lambda n: theirs(chinese[:n])), "transformers", rounds,
    )  # fmt: skip


CHECKS = {"operations": check, "functions": check_functions, "arrays": check_arrays, "models": check_models}
PARTS = (*CHECKS, "attention", "kernels", "speed")


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m bench.gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="one of them; may be given again (all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="what is named so in part")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    backend("cuda")
    from fastattn.ops.cuda import card

    print(card.description(), flush=True)
    parts, failed = options.part or PARTS, 0
    for part in (name for name in CHECKS if name in parts):
        failed += CHECKS[part](options.only)
    torch = torch_on_card() if {"attention", "kernels", "speed"} & {*parts} else None
    for shape in SHAPES if "attention" in parts else ():
        attempt(time_attention, shape, options.rounds, torch)
    if "kernels" in parts:
        time_kernels(options.only, options.rounds, torch)
    if "speed" in parts:
        attempt(time_encoder, options.rounds, torch, options.data)
        attempt(time_translator, options.rounds, torch, options.data)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
