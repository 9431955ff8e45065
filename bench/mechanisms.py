"""Each attention mechanism against its formula in plain NumPy, as bench/__main__.py's command ``mechanisms``.

Both compute in float32 from the same arrays and alternate in one process; times are medians. Where the two results
differ by more than rounding, the run fails.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.document import Section
from bench.machine import conditions
from bench.operations.table import normal
from bench.timing import alternate, limited_to
from fastattn import mechanisms
from fastattn.mechanisms import attend
from fastattn.mechanisms.attend import Normalizer
from fastattn.ops.reference import mechanisms as formulas

ROUNDS, SECONDS = 7, 4.0


class Case(NamedTuple):
    name: str
    size: str
    ours: Callable[[], np.ndarray]
    plain: Callable[[], np.ndarray]


class Sizes(NamedTuple):
    """One sentence of T queries and S keys, H heads of width K; nodes of a graph; places of a memory."""

    T: int
    S: int
    H: int
    K: int
    nodes: int
    memory: int

    def __str__(self) -> str:
        return f"{self.T} x {self.S}, {self.H} heads of {self.K}"


SIZES = {
    "full": Sizes(1024, 1024, 8, 64, 20000, 2048),
    "quick": Sizes(512, 512, 8, 64, 5000, 1024),
    "toy": Sizes(9, 11, 2, 8, 20, 16),
}


def _scores(sizes: Sizes, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Iterator[Case]:
    (T, S, H, K), rng = sizes[:4], np.random.default_rng(1)
    weight, places = normal(rng, H, K, K) / np.float32(K**0.5), normal(rng, H, S, K) / np.float32(K**0.5)
    vector = normal(rng, H, 2 * K) / np.float32(K**0.5)
    alibi, table = mechanisms.alibi_bias(H, T, S), normal(rng, 32, H)

    def formula(score: Callable[..., np.ndarray], *arguments: object) -> np.ndarray:
        return formulas.soft(formulas.weights(score(*arguments)), value)

    def t5() -> mechanisms.ScaledDot:
        return mechanisms.ScaledDot(bias=mechanisms.t5_bias(table, T, S))

    def plain_t5() -> np.ndarray:
        return formula(formulas.scaled_dot, query, key, None, 0.0, mechanisms.t5_bias(table, T, S))

    def case(name: str, score: mechanisms.scores.Score, plain: Callable[..., np.ndarray], *arguments: object) -> Case:
        ours = partial(attend, query, key, value, score=score)
        return Case(name, str(sizes), ours, partial(formula, plain, *arguments))

    yield case("dot", mechanisms.Dot(), formulas.dot, query, key)
    yield case("scaled dot", mechanisms.ScaledDot(), formulas.scaled_dot, query, key)
    yield case("content", mechanisms.Content(9.0), formulas.content, query, key, 9.0)
    yield case("general", mechanisms.General(weight), formulas.general, query, key, weight)
    yield case("location", mechanisms.Location(places), formulas.location, query, places, S)
    yield case("ALiBi", mechanisms.ScaledDot(bias=alibi), formulas.scaled_dot, query, key, None, 0.0, alibi)
    yield Case("T5's buckets", str(sizes), lambda: attend(query, key, value, score=t5()), plain_t5)
    yield case("soft cap", mechanisms.ScaledDot(softcap=9.0), formulas.scaled_dot, query, key, None, 9.0)
    yield case("graph's score", mechanisms.Graph(vector), formulas.graph, query, key, vector)


def _additive(sizes: Sizes, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Iterator[Case]:
    """At fewer positions and heads: the plain form stores the sum of each query and each key."""
    T, S, H, K = sizes.T // 2, sizes.S // 2, max(sizes.H // 4, 1), sizes.K
    rng = np.random.default_rng(2)
    query, key, value = (np.ascontiguousarray(x[:, :n, :H]) for x, n in ((query, T), (key, S), (value, S)))
    both = tuple(normal(rng, H, K, K) / np.float32(K**0.5) for _ in range(2))
    parameters = *both, normal(rng, H, K)

    def plain() -> np.ndarray:
        return formulas.soft(formulas.weights(formulas.additive(query, key, *parameters)), value)

    ours = partial(attend, query, key, value, score=mechanisms.Additive(*parameters))
    yield Case("additive", str(sizes._replace(T=T, S=S, H=H)), ours, plain)


def _seen(sizes: Sizes, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Iterator[Case]:
    (T, S, H, K), rng = sizes[:4], np.random.default_rng(3)
    starts = np.linspace(0, min(T, S), 9).astype(np.int64)
    starts[-1] = T
    near = np.sort(rng.integers(0, S, (T, 16)), axis=1)
    neighbours = [np.unique(row) for row in near]
    graph_starts = np.concatenate([[0], np.cumsum([len(row) for row in neighbours])])
    indices, distance = np.concatenate(neighbours), 10
    weight, vector = normal(rng, H, K, K) / np.float32(K**0.5), normal(rng, H, K) / np.float32(K**0.5)
    anything = rng.random((T, S)) < 0.5

    def case(name: str, rule: mechanisms.seen.Seen, mask: Callable[[], np.ndarray]) -> Case:
        def plain() -> np.ndarray:
            return formulas.soft(formulas.weights(formulas.scaled_dot(query, key), mask()), value)

        return Case(name, str(sizes), partial(attend, query, key, value, seen=rule), plain)

    def predictive() -> np.ndarray:
        places = formulas.predicted_positions(query, weight, vector, np.array([S]))
        weights = formulas.weights(formulas.scaled_dot(query, key), formulas.local_predictive(places, S, distance))
        return formulas.soft(weights * formulas.gaussian(places, S, distance), value)

    yield case("padded", mechanisms.Padded(S // 2), lambda: formulas.padded(np.array([S // 2]), S))
    yield case("causal", mechanisms.Causal(), lambda: formulas.causal(T, S))
    yield case("restricted to 64", mechanisms.Restricted(64), lambda: formulas.restricted(T, S, 64))
    yield case("local-m, 10", mechanisms.LocalMonotonic(distance), lambda: formulas.local_monotonic(T, S, distance))
    yield case("any mask", mechanisms.Mask(anything), lambda: anything)
    if T == S:
        yield case("8 sentences end to end", mechanisms.Sentences(starts), lambda: formulas.sentences(starts, starts))
    sparse = mechanisms.Neighbours(graph_starts, indices)
    yield case("16 neighbours", sparse, lambda: formulas.neighbours(graph_starts, indices, S))
    places = mechanisms.LocalPredictive(weight, vector, distance)
    yield Case("local-p, 10", str(sizes), partial(attend, query, key, value, seen=places), predictive)


def _normalizers(sizes: Sizes, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Iterator[Case]:
    def weights() -> np.ndarray:
        return formulas.weights(formulas.scaled_dot(query, key))

    def ours(normalizer: Normalizer) -> Callable[[], np.ndarray]:
        return partial(attend, query, key, value, normalizer=normalizer)

    yield Case("hard, most probable", str(sizes), ours(mechanisms.Hard()), lambda: formulas.hard(weights(), value))
    yield Case("pointer", str(sizes), ours(mechanisms.Pointer()), weights)
    yield Case("saliency", str(sizes), ours(mechanisms.Saliency()), lambda: formulas.saliency(weights(), (sizes.S,)))


def _others(sizes: Sizes) -> Iterator[Case]:
    rng = np.random.default_rng(4)
    B, H, N, M = 16, 4, sizes.memory, 32
    key, memory = normal(rng, B, H, M), normal(rng, B, N, M)
    previous = rng.dirichlet(np.ones(N), (B, H)).astype(np.float32)
    numbers = {name: rng.uniform(low, high, (B, H)).astype(np.float32) for name, low, high in NUMBERS}
    shifts = rng.dirichlet(np.ones(3), (B, H)).astype(np.float32)
    strength, gate, exponent = numbers.values()

    def plain_address() -> np.ndarray:
        focus = formulas.content_weights(key, memory, strength)
        mixed = formulas.interpolate(focus, previous, gate)
        moved = sum(np.roll(mixed, by, axis=-1) * shifts[..., by + 1, None] for by in (-1, 0, 1))
        return formulas.sharpen(moved, exponent)

    ours = partial(mechanisms.address, key, memory, previous, shifts=shifts, **numbers)
    yield Case("NTM addressing", f"{B} x {H} heads, {N} places of {M}", ours, plain_address)

    nodes, F, H, V = sizes.nodes, 64, 8, 8
    near = mechanisms.Neighbours.from_edges(rng.integers(0, nodes, (8 * nodes, 2)), nodes)
    features, weight = normal(rng, nodes, F), normal(rng, H, V, F) / np.float32(F**0.5)
    vectors = normal(rng, 2, H, 2 * V)
    size = f"{nodes} nodes, {len(near.indices)} neighbours, {H} heads of {V}"

    def plain_layer(vector: np.ndarray) -> np.ndarray:
        return formulas.graph_attention_by_edges(features, weight, vector, near.starts, near.indices).reshape(nodes, -1)

    def plain_levels() -> np.ndarray:
        levels = np.stack([plain_layer(vector) for vector in vectors])
        levels = np.where(levels > 0, levels, np.expm1(np.minimum(levels, 0)))
        return formulas.semantic_attention(levels, *semantic)[0]

    semantic = normal(rng, 32, H * V) / np.float32(8), normal(rng, 32), normal(rng, 32)
    layer = partial(mechanisms.graph_attention, features, weight, vectors[0], near)
    yield Case("GAT", size, layer, partial(plain_layer, vectors[0]))
    yield Case(
        "HAN, 2 meta-paths",
        size,
        lambda: mechanisms.heterogeneous_attention(features, weight, vectors, [near, near], *semantic)[0],
        plain_levels,
    )


NUMBERS = (("strength", 0, 9), ("gate", 0, 1), ("exponent", 1, 4))


def cases(sizes: Sizes) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    arrays = [normal(rng, 1, n, sizes.H, sizes.K) for n in (sizes.T, sizes.S, sizes.S)]
    for family in (_scores, _additive, _seen, _normalizers):
        yield from family(sizes, *arrays)
    yield from _others(sizes)


def measure(size: str, threads: int, only: str = "") -> tuple[str, bool]:
    """(the table in Markdown, whether all results agree)."""
    rows, agree = [], True
    with limited_to(threads):
        for case in cases(SIZES[size]):
            if only not in case.name:
                continue
            ours, plain = case.ours(), case.plain()
            if not np.allclose(ours, plain, rtol=1e-3, atol=1e-4):
                print(f"{case.name}: the results differ by {np.abs(ours - plain).max()}", file=sys.stderr)
                agree = False
            rounds, seconds = (3, 0.1) if size == "toy" else (ROUNDS, SECONDS)
            times = alternate({"fastattn": case.ours, "NumPy": case.plain}, rounds, seconds)
            ratio = times["NumPy"] / times["fastattn"]
            our_ms, plain_ms = (f"{seconds * 1e3:.2f}" for seconds in times.values())
            rows.append(f"| {case.name} | {case.size} | {our_ms} | {plain_ms} | {ratio:.1f} |")
            print(rows[-1], file=sys.stderr, flush=True)
    head = (
        "| mechanism | queries x keys | fastattn, ms | NumPy, ms | times as fast |\n| --- | --- | --- | --- | --- |\n"
    )
    lines = f"{conditions(threads)}float32, medians of alternating runs:\n\n"
    return lines + head + "\n".join(rows) + "\n", agree


def run(size: str, threads: int, only: str, document: Path | None) -> int:
    section = Section(document, "cost", "mechanisms")
    if section.is_missing():
        return 2
    table, agree = measure(size, threads, only)
    section.show(table)
    return int(not agree)
