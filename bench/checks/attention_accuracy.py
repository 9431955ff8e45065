"""Random calls of fastattn.attention, held against its formula in NumPy, in float64 and in float32."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fastattn
from bench.attention_cases import Arrays
from bench.checks import Data, Findings, check

LARGE = 1e4  # of scores
LENGTHS = (1, 2, 3, 7, 16, 17, 33, 64, 65, 128, 130, 257, 300)
# Where few scores count, float32 may be right by luck: its error is the largest of several orders of summation, and at
# least one unit in the last place of the largest value.
ORDERS = 8
UNIT = 2.0**-23


@dataclass
class Call:
    """A call's arrays [B, T, H, K], its options, and what they mean: seen [B, H, T, S], bias that broadcasts to it."""

    arrays: Arrays
    options: dict[str, Any] = field(default_factory=dict)
    seen: np.ndarray = field(default_factory=lambda: np.empty(0))
    bias: np.ndarray | None = None

    def naive(self, dtype: type, order: np.ndarray | None = None) -> np.ndarray:
        """The result [B, T, H, V], with all that is between stored and computed in ``dtype``.

        order  in which a score's products are summed up; None: as they are
        """
        query, key, value = (np.moveaxis(array.astype(dtype), 2, 1) for array in self.arrays)
        if order is not None:
            query, key = query[..., order], key[..., order]
        group = query.shape[1] // key.shape[1]
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        scores = query @ key.swapaxes(2, 3) * dtype(query.shape[3] ** -0.5)
        if "softcap" in self.options:
            scores = dtype(self.options["softcap"]) * np.tanh(scores / dtype(self.options["softcap"]))
        if self.bias is not None:
            scores = scores + self.bias.astype(dtype)
        scores = np.where(self.seen, scores, dtype(-np.inf))
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        return np.moveaxis(weights / np.where(total == 0, 1, total) @ value, 1, 2)

    def ours(self, layout: str) -> np.ndarray:
        if layout == "BTHK":
            return fastattn.attention(*self.arrays, **self.options)
        swapped = [array.swapaxes(1, 2) for array in self.arrays]
        return fastattn.attention(*swapped, layout=layout, **self.options).swapaxes(1, 2)


def ratio(call: Call, layout: str) -> float:
    """Our largest error over naive float32's."""
    exact = call.naive(np.float64)
    if not exact.size:
        return 0.0 if call.ours(layout).shape == exact.shape else np.inf
    least = UNIT * float(np.abs(call.arrays[2]).max(initial=0))
    rng, width = np.random.default_rng(0), call.arrays[0].shape[3]
    rounded = (call.naive(np.float32, rng.permutation(width)) for _ in range(ORDERS))
    naive = max(float(np.abs(result - exact).max()) for result in rounded)
    error = float(np.abs(call.ours(layout) - exact).max())
    if not np.isfinite(error):
        return np.inf
    return error / max(naive, least) if error else 0.0


def draw(rng: np.random.Generator) -> tuple[Call, str]:
    B, G, group = (int(rng.integers(1, most)) for most in (4, 3, 4))
    T, S = (int(rng.choice(LENGTHS)) for _ in range(2))
    if rng.random() < 0.05:
        T, S = (T, 0) if rng.random() < 0.5 else (0, S)
    K, V = (int(rng.choice((1, 5, 8, 16, 24, 32, 64, 80))) for _ in range(2))
    shapes = (B, T, G * group, K), (B, S, G, K), (B, S, G, V)
    call = Call([_strided(rng, shape) for shape in shapes], seen=np.ones((B, G * group, T, S), bool))
    kinds = rng.choice(list(OPTIONS), size=rng.integers(0, 4), replace=False)
    for kind in sorted(kinds):
        OPTIONS[kind](call, rng)
    return call, str(rng.choice(("BTHK", "BHTK")))


def _strided(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """An array whose axes lie in some order in memory, with gaps, or backwards."""
    order = rng.permutation(4)
    steps = [int(rng.choice((1, 1, 1, 2, -1))) for _ in shape]
    lying = [shape[axis] * abs(steps[axis]) for axis in order]
    array = rng.standard_normal(lying).astype(np.float32).transpose(np.argsort(order))
    return array[tuple(slice(None, None, step) for step in steps)]


def _large(call: Call, rng: np.random.Generator) -> None:
    query, key, value = call.arrays
    most = np.abs(query).max(initial=1e-3) * np.abs(key).max(initial=1e-3) * query.shape[3] ** 0.5
    query *= np.float32(LARGE / most)


def _causal(call: Call, rng: np.random.Generator) -> None:
    T, S = call.seen.shape[2:]
    offset = int(rng.integers(-T, S + 1))
    call.options |= {"causal": True, "offset": offset}
    call.seen &= np.arange(S) <= np.arange(T)[:, None] + offset


def _window(call: Call, rng: np.random.Generator) -> None:
    T, S = call.seen.shape[2:]
    offset = call.options.get("offset", 0)  # options are applied in the order of their names
    left, right = (int(rng.integers(0, 40)) for _ in range(2))
    call.options["window"] = (left, right)
    distance = np.arange(S) - np.arange(T)[:, None] - offset
    call.seen &= (-left <= distance) & (distance <= right)


def _lengths(call: Call, rng: np.random.Generator) -> None:
    B, _, _, S = call.seen.shape
    lengths = rng.integers(0, S + 1, B)
    lengths[0] = rng.integers(0, min(1, S) + 1)
    call.options["lengths"] = lengths
    call.seen &= np.arange(S) < lengths[:, None, None, None]


def _mask(call: Call, rng: np.random.Generator) -> None:
    """Of any axes, with rows that see nothing."""
    shape = tuple(size if rng.random() < 0.5 else 1 for size in call.seen.shape)
    mask = (rng.random(shape) < 0.7) & (rng.random((*shape[:3], 1)) < 0.8)
    call.options["mask"] = mask
    call.seen &= mask


def _bias(call: Call, rng: np.random.Generator) -> None:
    shape = tuple(size if rng.random() < 0.5 else 1 for size in call.seen.shape)
    call.bias = rng.standard_normal(shape).astype(np.float32)
    call.bias[rng.random(shape) < 0.3] = -np.inf
    call.options["bias"] = call.bias


def _softcap(call: Call, rng: np.random.Generator) -> None:
    call.options["softcap"] = float(rng.choice((0.5, 5.0, 50.0)))


OPTIONS: dict[str, Callable[[Call, np.random.Generator], None]] = {
    "bias": _bias,
    "causal": _causal,
    "large": _large,
    "lengths": _lengths,
    "mask": _mask,
    "softcap": _softcap,
    "window": _window,
}


CALLS, SEED = 600, 0


@check(
    "attention-accuracy",
    f"{CALLS} random calls: at most twice the error of naive float32, both against float64; sizes, strides, scores of "
    "10,000, rows that see nothing, biases of -inf, lengths 0 and 1",
)
def accuracy(findings: Findings, data: Data) -> None:
    rng = np.random.default_rng(SEED)
    found: dict[str, list[tuple[float, str]]] = {"without a soft cap": [], "with one": []}
    for number in range(CALLS):
        call, layout = draw(rng)
        shapes = " ".join(str(array.shape).replace(" ", "") for array in call.arrays)
        which = f"the worst is call {number}: {layout}, {shapes}, {', '.join(call.options) or 'no options'}"
        found["with one" if "softcap" in call.options else "without a soft cap"].append((ratio(call, layout), which))
    for what, ratios in found.items():
        worst, which = max(ratios)
        middle = float(np.median([one for one, _ in ratios]))
        remark = f"{which}, of {len(ratios)}, median {middle:.2f}"
        findings.at_most(f"{what}:", worst, "x the error of float32", 2.0, remark)
