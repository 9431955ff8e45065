"""One table of operations at awkward sizes, for the tests and the benchmark alike."""

from typing import Any

import numpy as np

from fastattn.edits import Edits
from fastattn.position_bias import PositionBias
from fastattn.rounding import as_floats, bfloat16_bits
from fastattn.spec import ACTIVATIONS
from tests.kernels.case import Case, normal, starts_of
from tests.kernels.row_cases import ROW_CASES


def linear_case(
    rows: int, inputs: int, outputs: int, activation: str = "none", bias: bool = True, extras: bool = False
) -> Case:
    rng = np.random.default_rng(rows * 7919 + inputs * 31 + outputs)
    arrays = {"x": normal(rng, rows, inputs), "weight": normal(rng, outputs, inputs) / np.float32(inputs) ** 0.5}
    if bias:
        arrays["bias"] = normal(rng, outputs)
    if extras:
        arrays["residual"], arrays["multiply"] = normal(rng, rows, outputs), normal(rng, rows, outputs)

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        packed = ops.pack_linear(a["weight"], a.get("bias"))
        return (ops.linear(a["x"], packed, activation, a.get("residual"), a.get("multiply")),)

    return Case(f"linear-{rows}x{inputs}x{outputs}-{activation}-{bias}-{extras}", "linear", arrays, call)


def norm_case(operation: str, rows: int, width: int, residual: bool = False, mean: float = 0.0) -> Case:
    rng = np.random.default_rng(rows * 7919 + width)
    arrays = {"x": normal(rng, rows, width) + np.float32(mean), "weight": normal(rng, width)}
    if operation == "layer_norm":
        arrays["bias"] = normal(rng, width)
    if residual:
        arrays["residual"] = normal(rng, rows, width)

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        if operation == "layer_norm":
            return (ops.layer_norm(a["x"], a["weight"], a["bias"], 1e-5, a.get("residual")),)
        return (ops.rms_norm(a["x"], a["weight"], 1e-6, a.get("residual")),)

    return Case(f"{operation}-{rows}x{width}-{residual}-{mean}", operation, arrays, call)


def embed_case(rows: int, vocabulary: int, width: int, positions: bool = True, tied: bool = False) -> Case:
    rng = np.random.default_rng(rows * 7919 + vocabulary * 31 + width)
    arrays = {
        "ids": rng.integers(-1, vocabulary, rows).astype(np.int32),
        "table": normal(rng, vocabulary, width),
        "positions": rng.integers(0, 9, rows).astype(np.int32),
        "position_table": normal(rng, 9, width),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        where = (a["positions"], a["position_table"]) if positions else ()
        table = ops.pack_linear(a["table"]) if tied else a["table"]
        return (ops.embed(a["ids"], table, 3.5, *where),)

    return Case(f"embed-{rows}x{vocabulary}x{width}-{positions}-{tied}", "embed", arrays, call)


def rotate_case(rows: int, heads: int, head_width: int, rotary_width: int, interleaved: bool) -> Case:
    rng = np.random.default_rng(rows * 7919 + heads * 31 + head_width)
    angle = np.arange(11)[:, None] * 10000.0 ** (-np.arange(0, rotary_width, 2) / rotary_width)
    arrays = {
        "x": normal(rng, rows, heads * head_width + 5),
        "positions": rng.integers(0, 11, rows).astype(np.int32),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        x = a["x"].copy()
        ops.rotate(x, a["positions"], a["cos"], a["sin"], 3, heads, head_width, interleaved)
        return (x,)

    return Case(f"rotate-{rows}x{heads}x{head_width}-{rotary_width}-{interleaved}", "rotate", arrays, call)


def _distances(rng: np.random.Generator, positions: str, heads: int, longest: int) -> dict[str, np.ndarray]:
    """What is added to a score by the distance of its key."""
    if positions == "table":
        return {"table": normal(rng, heads, 2 * longest + 3)}
    return {"slopes": normal(rng, heads)} if positions else {}


def attention_case(
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    heads: int,
    key_heads: int,
    head_width: int,
    causal: bool = False,
    offset: tuple[int, ...] | None = None,
    bias: tuple[bool, bool] | None = None,
    hidden: float = 0.0,
    size: float = 1.0,
    window: int = 0,
    sinks: int = 0,
    value_width: int = 0,
    positions: str = "",
) -> Case:
    """bias: whether its batch axis and its query axis are of full length; hidden: the share of it that is -inf.

    positions  adds a bias by distance: "slopes", "from start" or "table"
    """
    rng = np.random.default_rng(sum(queries) * 7919 + sum(keys) * 31 + heads * head_width)
    longest_query, longest_key = max(queries, default=0), max(keys, default=0)
    # Rows as a fused projection lays them out, with columns that belong to no head.
    arrays = {
        "query": normal(rng, sum(queries), heads * head_width + 3) * np.float32(size),
        "key_value": normal(rng, sum(keys), key_heads * (head_width + (value_width or head_width)) + 2),
        "query_starts": starts_of(queries),
        "key_starts": starts_of(keys),
    }
    if offset is not None:
        arrays["offset"] = np.array(offset, np.int64)
    arrays |= _distances(rng, positions, heads, max(longest_query, longest_key))
    if bias is not None:
        shape = (len(queries) if bias[0] else 1, heads, longest_query if bias[1] else 1, longest_key)
        arrays["bias"] = normal(rng, *shape)
        arrays["bias"][rng.random(shape) < hidden] = -np.inf

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        weights = np.full((len(queries), heads, longest_query, longest_key), np.nan, a["query"].dtype)
        common: dict[str, Any] = {
            "heads": heads,
            "key_heads": key_heads,
            "head_width": head_width,
            "query_column": 2,
            "key_column": 1,
            "value_column": 1 + key_heads * head_width,
            "seen_N2": ops.seen_keys(a["query_starts"], np.diff(a["key_starts"]), causal, a.get("offset"), window)
            if causal or window
            else None,
            "sinks": sinks,
            "value_width": value_width,
            "positions": PositionBias(a.get("slopes"), a.get("table"), positions == "from start"),
            "bias_BHTS": a.get("bias"),
        }
        rows = a["query"], a["key_value"], a["key_value"], a["query_starts"], a["key_starts"]
        plain = ops.attention(*rows, **common)
        watched = ops.attention(*rows, **common, weights_BHTS=weights)
        return plain, watched, weights

    form = f"{queries}-{keys}-{heads}/{key_heads}x{head_width}-{causal}-{offset}-{bias}-{hidden}-{size}"
    form += f"-{window}-{sinks}-{value_width}-{positions}" if window or value_width or positions else ""
    return Case(f"attention-{form}".replace(" ", ""), "attention", arrays, call)


def attention_step_case(
    lengths: tuple[int, ...],
    heads: int,
    key_heads: int,
    head_width: int,
    bias: bool = False,
    size: float = 1.0,
    narrow: bool = False,
    chunk: int = 1,
    window: int = 0,
    value_width: int = 0,
    positions: str = "",
) -> Case:
    """chunk: how many queries each row of the index has, the last of which sees all of its keys."""
    rng = np.random.default_rng(sum(lengths) * 7919 + heads * head_width)
    longest, rows = max(lengths, default=0), len(lengths)
    arrays = {
        "query": normal(rng, rows * chunk, heads * head_width + 3) * np.float32(size),
        "key_value": normal(rng, 50, key_heads * (head_width + (value_width or head_width)) + 2),
        "index": rng.integers(0, 50, (rows, longest)).astype(np.int32),
        "stops": np.repeat(np.array(lengths, np.int64), chunk) - np.tile(np.arange(chunk)[::-1], rows),
    }
    if chunk > 1:
        arrays["rows"] = np.repeat(np.arange(rows), chunk)
    if window:
        arrays["firsts"] = np.maximum(arrays["stops"] - window, 0)
    if bias:
        arrays["bias"] = normal(rng, rows * chunk, heads, longest)
    if narrow:
        arrays["key_value"] = bfloat16_bits(arrays["key_value"])
    arrays |= _distances(rng, positions, heads, longest)

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        weights = np.full((rows * chunk, heads, longest), np.nan, a["query"].dtype)
        common: dict[str, Any] = {
            "heads": heads,
            "key_heads": key_heads,
            "head_width": head_width,
            "value_width": value_width,
            "query_column": 2,
            "key_column": 1,
            "value_column": 1 + key_heads * head_width,
            "rows_N": a.get("rows"),
            "firsts_N": a.get("firsts"),
            "bias_NHS": a.get("bias"),
            "positions": PositionBias(a.get("slopes"), a.get("table"), positions == "from start"),
        }
        inputs = a["query"], a["key_value"], a["key_value"], a["index"], a["stops"]
        return (
            ops.attention_step(*inputs, **common),
            ops.attention_step(*inputs, **common, weights_NHS=weights),
            weights,
        )

    name = f"attention_step-{lengths}-{heads}/{key_heads}x{head_width}-{bias}-{size}-{narrow}".replace(" ", "")
    name += f"-{chunk}-{window}-{value_width}-{positions}" if chunk > 1 or window or value_width or positions else ""
    return Case(name, "attention_step", arrays, call)


def write_rows_case(rows: int, width: int, column: int, narrow: bool) -> Case:
    rng = np.random.default_rng(rows * 31 + width)
    arrays = {
        "values": normal(rng, rows, column + width),
        "rows": rng.permutation(2 * rows)[:rows].astype(np.int32),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        # in bfloat16 both sides round the same float32, whatever the oracle's own width
        dtype = np.dtype(np.uint16) if narrow else a["values"].dtype
        table = np.full((2 * rows, width + 3), 7, dtype)
        ops.write_rows(table, a["rows"], a["values"], column)
        rounded = a["values"].astype(np.float32)
        ops.round_rows(rounded, column)
        return (as_floats(table) if narrow else table, rounded)

    return Case(f"write_rows-{rows}-{width}-{column}-{narrow}", "write_rows", arrays, call, exact=(0, 1))


def recurrence_case(operation: str, lengths: tuple[int, ...], width: int, size: float = 1.0) -> Case:
    """Whole sequences, then a step that continues each of them; a table of states in no order, wider than the rows."""
    rng = np.random.default_rng(sum(lengths) * 7919 + width)
    starts, rows = starts_of(lengths), sum(lengths)
    lasts = starts[1:] - 1
    order = rng.permutation(rows + len(lengths)).astype(np.int32)
    previous = np.concatenate([[-1], order[: rows - 1]]).astype(np.int32)[:rows]
    previous[starts[:-1]] = -1
    positions = (np.arange(rows) - np.repeat(starts[:-1], lengths)).astype(np.int32)
    inputs = (2 if operation == "ssru" else 1) * width
    arrays = {
        "x": normal(rng, rows, inputs) * np.float32(size),
        "next": normal(rng, len(lengths), inputs) * np.float32(size),
        "residual": normal(rng, rows, width),
        "states": np.full((len(order), width + 3), np.nan, np.float32),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        states = a["states"].copy()
        if operation == "ssru":
            whole = ops.ssru(a["x"], a["residual"], states, previous, order[:rows])
            step = ops.ssru(a["next"], a["residual"][lasts], states, order[lasts], order[rows:])
        else:
            whole = ops.running_average(a["x"], states, previous, order[:rows], positions)
            after = positions[lasts] + np.int32(1)
            step = ops.running_average(a["next"], states, order[lasts], order[rows:], after)
        return whole, step, states

    return Case(f"{operation}-{lengths}x{width}-{size}".replace(" ", ""), operation, arrays, call)


def _edits(rng: np.random.Generator, rows: int, vocabulary: int, edited: bool) -> dict[str, np.ndarray]:
    """Ids to suppress and to penalise; every id of the latter once a row, as the operations ask for."""
    if not edited:
        return {}
    penalised = np.stack([rng.permutation(vocabulary)[:5] for _ in range(rows)]).astype(np.int32)
    penalised[:, 3] = -1
    return {"suppressed": rng.integers(-1, vocabulary, (rows, 3)).astype(np.int32), "penalised": penalised}


def project_top_k_case(rows: int, width: int, vocabulary: int, k: int, edited: bool = False) -> Case:
    """Small whole numbers: the logits are exact in float32, tie often, and the ids must be those of the oracle."""
    rng = np.random.default_rng(rows * 7919 + width * 31 + vocabulary)
    arrays = {
        "x": rng.integers(-1, 2, (rows, width)).astype(np.float32),
        "weight": rng.integers(-1, 2, (vocabulary, width)).astype(np.float32),
        "bias": rng.integers(-1, 2, vocabulary).astype(np.float32),
        **_edits(rng, rows, vocabulary, edited),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        edits = Edits(a.get("suppressed"), a.get("penalised"), 2.0)
        return ops.project_top_k(a["x"], ops.pack_linear(a["weight"], a["bias"]), k, edits)

    name = f"project_top_k-{rows}x{width}x{vocabulary}-{k}-{edited}"
    return Case(name, "project_top_k", arrays, call, exact=(1,))


def log_probs_case(rows: int, width: int, vocabulary: int, size: float = 1.0, edited: bool = False) -> Case:
    """Targets' log-probabilities, and all of them."""
    rng = np.random.default_rng(rows * 7919 + width * 31 + vocabulary)
    arrays = {
        "x": normal(rng, rows, width) * np.float32(size),
        "weight": normal(rng, vocabulary, width),
        "targets": rng.integers(0, vocabulary, rows).astype(np.int32),
        **_edits(rng, rows, vocabulary, edited),
    }

    def call(ops: Any, a: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        packed, edits = ops.pack_linear(a["weight"]), Edits(a.get("suppressed"), a.get("penalised"), 1.7)
        return ops.log_probs(a["x"], packed, a["targets"], edits), ops.project_all(a["x"], packed, edits)

    return Case(f"log_probs-{rows}x{width}x{vocabulary}-{size}-{edited}", "log_probs", arrays, call)


# One, primes, one below, at and above widths of vectors and tiles; no rows at all.
MATRIX_SIZES = (
    (0, 8, 8),
    (1, 1, 1),
    (1, 7, 13),
    (2, 16, 1),
    (3, 8, 16),
    (5, 31, 17),
    (6, 64, 15),
    (13, 33, 47),
    (16, 64, 48),
    (17, 65, 49),
    (31, 128, 97),
    (64, 127, 100),
    (129, 257, 131),
)

CASES: list[Case] = [
    *ROW_CASES,
    *(linear_case(*size) for size in MATRIX_SIZES),
    *(linear_case(*size, bias=False, extras=True) for size in MATRIX_SIZES[1::3]),
    *(linear_case(7, 19, 37, activation, extras=extras) for activation in ACTIVATIONS for extras in (False, True)),
    *(
        norm_case(operation, rows, width, residual)
        for operation in ("layer_norm", "rms_norm")
        for rows, width, residual in ((0, 8, False), (1, 1, False), (3, 7, True), (2, 16, False), (5, 129, True))
    ),
    norm_case("layer_norm", 4, 384, mean=1000.0),
    *(embed_case(*size) for size in ((0, 3, 8), (1, 1, 1), (7, 11, 13), (20, 5, 64))),
    embed_case(9, 4, 17, positions=False),
    *(embed_case(*size, tied=True) for size in ((1, 1, 1), (7, 11, 13), (20, 50, 64))),
    *(
        rotate_case(rows, heads, width, turned, interleaved)
        for rows, heads, width, turned in ((0, 1, 8, 8), (1, 1, 2, 2), (5, 3, 10, 6), (9, 4, 16, 16))
        for interleaved in (False, True)
    ),
    attention_case((), (), 2, 2, 8),
    attention_case((1,), (1,), 1, 1, 1),
    attention_case((3, 0, 5), (3, 0, 5), 2, 2, 8),
    attention_case((2, 3), (0, 7), 2, 1, 7),
    attention_case((1, 17, 16, 15), (1, 17, 16, 15), 4, 2, 16),
    attention_case((33, 2), (65, 64), 3, 3, 24),
    attention_case((7, 13), (7, 13), 2, 2, 40, causal=True),
    attention_case((5, 4, 3), (9, 4, 2), 2, 1, 8, causal=True, offset=(4, -2, -9)),
    attention_case((130,), (130,), 1, 1, 80, causal=True),
    attention_case((4, 6), (5, 3), 2, 2, 8, bias=(True, True)),
    attention_case((4, 6), (5, 3), 2, 2, 8, bias=(False, True), causal=True),
    attention_case((4, 6), (5, 3), 4, 2, 8, bias=(False, False)),
    attention_case((4, 6), (5, 3), 2, 2, 8, bias=(True, False), hidden=0.6),
    attention_case((4, 6), (5, 3), 2, 2, 8, bias=(True, True), hidden=1.0),
    attention_case((6, 19), (6, 19), 2, 2, 64, size=1e4),
    attention_case((6, 19), (6, 19), 2, 2, 64, causal=True, size=1e4),
    attention_case((130,), (130,), 2, 1, 16, causal=True, window=37),
    attention_case((330, 9), (330, 9), 1, 1, 24, causal=True, window=20, sinks=3),
    attention_case((600,), (600,), 1, 1, 8, causal=True, window=17),
    attention_case((280,), (590,), 1, 1, 8, causal=True, offset=(310,), window=40, sinks=270),
    attention_case((5, 4), (700, 300), 2, 2, 8, causal=True, offset=(650, -2), window=50, sinks=4),
    attention_case((33, 2), (65, 64), 2, 1, 24, value_width=40),
    attention_case((33, 2), (65, 64), 2, 2, 40, causal=True, value_width=7),
    *(attention_case((19, 33), (40, 33), 4, 2, 16, positions=form) for form in ("slopes", "from start", "table")),
    *(
        attention_case((290,), (290,), 2, 2, 8, causal=True, window=100, sinks=2, positions=form)
        for form in ("slopes", "from start", "table")
    ),
    *(write_rows_case(*form, False) for form in ((0, 8, 0), (1, 1, 2), (33, 53, 5), (70, 64, 0))),
    *(write_rows_case(*form, True) for form in ((0, 8, 0), (1, 1, 2), (33, 53, 5), (70, 64, 0))),
    attention_step_case((), 2, 2, 8),
    attention_step_case((1,), 1, 1, 1),
    attention_step_case((3, 0, 5, 17), 2, 2, 8),
    attention_step_case((31, 32, 33), 4, 2, 24, bias=True),
    attention_step_case((64, 1, 65), 3, 1, 80),
    attention_step_case((3, 0, 5, 17), 2, 2, 8, narrow=True),
    attention_step_case((31, 32, 33), 4, 2, 24, bias=True, narrow=True),
    attention_step_case((64, 1, 65), 3, 1, 80, narrow=True),
    attention_step_case((9, 16), 2, 2, 64, size=1e4),
    attention_step_case((9, 40, 17), 4, 2, 16, chunk=6),
    attention_step_case((33, 18), 2, 2, 24, bias=True, chunk=17, narrow=True),
    attention_step_case((64, 1, 65), 2, 1, 8, window=20),
    attention_step_case((40, 35), 2, 2, 16, chunk=5, window=9, value_width=33, positions="table"),
    *(attention_step_case((31, 0, 33), 4, 2, 24, positions=form) for form in ("slopes", "from start", "table")),
    *(
        recurrence_case(operation, *size)
        for operation in ("ssru", "running_average")
        for size in (((), 8), ((1,), 1), ((3, 1, 7), 13), ((40, 2), 64), ((5, 9), 65), ((97, 31), 200), ((4,), 8, 1e4))
    ),
    project_top_k_case(0, 8, 20, 2),
    project_top_k_case(1, 1, 1, 1),
    project_top_k_case(3, 8, 5, 5),
    project_top_k_case(4, 9, 131, 1),
    project_top_k_case(5, 16, 257, 10, edited=True),
    project_top_k_case(17, 33, 1000, 7, edited=True),
    *(log_probs_case(*size) for size in ((0, 4, 7), (1, 1, 1), (5, 17, 131), (18, 64, 500))),
    log_probs_case(6, 16, 100, size=1e3),
    log_probs_case(7, 19, 130, edited=True),
]
