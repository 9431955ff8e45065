"""Multi-head attention with its projections and positions: over whole sequences, or over a key-value cache."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fastattn.arguments.attention import Heads, PositionBias, RaggedBatch
from fastattn.errors import CheckpointError
from fastattn.layers.attention_inputs import CachedRows, RecordedRows, Rows, WholeRows
from fastattn.layers.blocks import GrowingTable, Linear, Norm, Sublayer
from fastattn.layers.parameters import Parameters
from fastattn.ops.protocol import Ops
from fastattn.spec.architecture import Alibi, AttentionSpec, Disentangled, PositionSpec, Rotary, StackSpec, Stretch

# From a number of positions to the bias of queries and keys there.
Bias = Callable[[int], PositionBias | None]
ANY_LENGTH = 1 << 62  # more rows than any sequence has
LEAST_LENGTH = 128  # positions whose distances are packed at first; a longer sequence at least doubles their number


@lru_cache(16)  # layers with the same positions share tables
def rotary_tables(rotary: Rotary, positions: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """(cos_PK, sin_PK) of the first positions; K counts the pairs that turn."""
    frequency_K = rotary.base ** (-np.arange(0, rotary.width, 2) / rotary.width)
    size = 1.0
    if (stretch := rotary.stretch) is not None:
        size = stretch.size
        if stretch.kind == "longrope":
            frequency_K = frequency_K / stretch.divisors
        else:
            share_K = (_yarn_shares if stretch.kind == "yarn" else _llama3_shares)(rotary, stretch, frequency_K)
            frequency_K = frequency_K * (share_K + (1 - share_K) / stretch.factor)
    angle_PK = (np.arange(positions) / rotary.scale)[:, None] * frequency_K
    return (np.cos(angle_PK) * size).astype(dtype), (np.sin(angle_PK) * size).astype(dtype)


def _yarn_shares(rotary: Rotary, stretch: Stretch, frequency_K: np.ndarray) -> np.ndarray:
    """The share of each frequency that stays unstretched: 1 up to the pair of ``fast`` turns, 0 from ``slow`` on."""

    def pair_of(turns: float) -> float:
        return rotary.width * math.log(stretch.length / (turns * 2 * math.pi)) / (2 * math.log(rotary.base))

    first, last = pair_of(stretch.fast), pair_of(stretch.slow)
    if stretch.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary.width - 1)
    ramp_K = (np.arange(len(frequency_K)) - first) / ((last - first) or 0.001)
    return 1 - np.clip(ramp_K, 0, 1)


def _llama3_shares(rotary: Rotary, stretch: Stretch, frequency_K: np.ndarray) -> np.ndarray:
    """The share of each frequency that stays unstretched, from 0 at ``slow`` turns to 1 at ``fast``."""
    turns_K = stretch.length / (2 * np.pi) * frequency_K
    return np.clip((turns_K - stretch.slow) / (stretch.fast - stretch.slow), 0, 1)


class RotaryPositions:
    """Rotary positions (Su 2021): rotates the query and key heads of fused QKV rows; the tables grow by doubling."""

    def __init__(self, ops: Ops, spec: AttentionSpec, rotary: Rotary):
        self.ops, self.rotary, self.table_rows = ops, rotary, 512
        # Queries and keys lie side by side, so one call rotates both.
        self.heads, self.head_width = spec.heads + spec.key_heads, spec.head_width

    def __call__(self, qkv_NE: np.ndarray, positions_N: np.ndarray) -> None:
        longest = int(positions_N.max()) + 1 if len(positions_N) else 0
        if longest > self.table_rows:
            self.table_rows = max(longest, 2 * self.table_rows)
        tables = rotary_tables(self.rotary, max(self.table_rows, longest), qkv_NE.dtype)
        self.ops.rotate(qkv_NE, positions_N, *tables, 0, self.heads, self.head_width, self.rotary.interleaved)


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of Press 2022: a geometric sequence from 2^(-8/n) for n a power of two; for another n the sequence of
    the power below n, then every second slope of the power above."""
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    slopes_above = 2.0 ** (-4.0 / power * np.arange(1, 2 * (heads - power) + 1, 2))
    return np.concatenate([slopes, slopes_above])


def distance_bias(make_table: Callable[[np.ndarray], np.ndarray]) -> Bias:
    """A bias by distance, which all layers share; ``make_table``: distance_L -> table_HL."""

    def make_bias(positions: int) -> PositionBias:
        return PositionBias(table_HL=np.ascontiguousarray(make_table(np.arange(1 - positions, positions))))

    return GrowingTable(make_bias, 512)


def relative_buckets(distance: np.ndarray, buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """T5's bucket of each distance, key position less query position (Raffel 2020, section 2.1).

    Half the buckets are exact distances, the rest grow logarithmically up to ``max_distance``; ``bidirectional``: half
    of all buckets are for keys ahead of the query. Where exact distances reach ``max_distance``, all farther ones have
    the last bucket.
    """
    bucket = np.zeros(distance.shape, np.int64)
    if bidirectional:
        buckets //= 2
        bucket += np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    # In float32, as in all implementations: rounding decides the bucket of a distance where a bucket may begin.
    log, max_log = np.float32(np.log(np.maximum(distance, exact) / exact)), np.float32(np.log(max_distance / exact))
    far = (log / max_log if max_log else np.ones_like(log)) * np.float32(buckets - exact)
    return bucket + np.where(distance < exact, distance, np.minimum(exact + far.astype(np.int64), buckets - 1))


def _alibi_bias(parameters: Parameters, stack: str, spec: StackSpec) -> Bias:
    dtype, alibi = parameters.tensor(f"{stack}.embedding.weight").dtype, spec.positions.alibi or Alibi()
    scale = (spec.attention.query_scale or spec.attention.head_width**-0.5) if alibi.scaled else 1.0
    slopes_H = alibi_slopes(spec.attention.heads) * scale
    if alibi.symmetric:  # Günther 2023
        return distance_bias(lambda distance_L: (-slopes_H[:, None] * np.abs(distance_L)).astype(dtype))
    bias = PositionBias(slopes_H=slopes_H.astype(dtype), from_start=alibi.positive_positions)
    return lambda longest: bias


def _relative_bias(parameters: Parameters, scope: str, spec: StackSpec) -> Bias:
    positions, bidirectional = spec.positions, scope.startswith("encoder")
    least = 4 if bidirectional else 2
    if not 0 < positions.buckets // least <= positions.max_distance:
        raise CheckpointError(
            f"relative positions need {least} buckets or more and a maximum distance not below the exact ones, got "
            f"{positions.buckets} buckets and distance {positions.max_distance}"
        )
    bias_HU = parameters.tensor(f"{scope}.relative_bias").T

    def make_table(distance_L: np.ndarray) -> np.ndarray:
        return bias_HU[:, relative_buckets(distance_L, positions.buckets, positions.max_distance, bidirectional)]

    return distance_bias(make_table)


def position_bias(parameters: Parameters, stack: str, spec: StackSpec) -> Bias:
    """The bias of all layers' self-attention by ALiBi (Press 2022), by T5's relative positions, or none."""
    if spec.positions.kind in ("alibi", "relative") and not spec.positions.of_each_layer:
        return (_alibi_bias if spec.positions.kind == "alibi" else _relative_bias)(parameters, stack, spec)
    return lambda longest: None


def distance_numbers(distance: np.ndarray, spec: PositionSpec) -> np.ndarray:
    """The row of each distance, query position less key position, in the table of distances.

    With buckets, as in DeBERTa-v2, half the buckets are exact distances and the rest grow logarithmically; the last
    bucket ends below ``max_distance``.
    """
    half, bucket = spec.distance_rows // 2, distance
    if spec.buckets:
        exact = spec.buckets // 2
        far = np.log(np.maximum(np.abs(distance), exact) / exact) / np.log((spec.max_distance - 1) / exact)
        far_bucket = np.sign(distance) * (np.ceil(far * (exact - 1)).astype(np.int64) + exact)
        bucket = np.where(np.abs(distance) <= exact, distance, far_bucket)
    return np.clip(bucket + half, 0, 2 * half - 1)


class DistanceRows:
    """Keys and queries of distances, for disentangled attention (He 2021), packed for ``ops.attention``.

    The table ``stack.distances``, perhaps after ``.distance_norm``, is projected by ``layer.self_attention.distances``
    or, where the projection is shared, by ``qkv``. The rows are made when a sequence first needs them.
    """

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec, qkv: Callable[..., np.ndarray]):
        self.ops, self.positions, attention = parameters.ops, spec.positions, spec.attention
        self.settings = spec.positions.disentangled or Disentangled()
        stack = name.partition(".")[0]
        self.table_LD = parameters.tensor(f"{stack}.distances")
        self.norm = Norm(parameters, f"{stack}.distance_norm", spec.norms) if self.settings.norm else None
        self.projection = qkv if self.settings.shared else Linear(parameters, f"{name}.distances")
        self.key_column = attention.query_width if self.settings.shared or self.settings.to_content else 0
        self.heads = Heads(attention.heads, attention.key_heads, attention.head_width, scale=attention.query_scale)
        # (length up to which the rows serve, packed rows); another thread sees either the old pair or the new one
        self._packed: tuple[int, Any] = 0, None

    def __call__(self, longest: int) -> Any:
        """The packed rows for sequences of up to ``longest`` positions, or more."""
        pair = self._packed
        if longest > pair[0]:
            pair = self._packed = self._pack(max(longest, 2 * pair[0], LEAST_LENGTH))
        return pair[1]

    def _pack(self, longest: int) -> tuple[int, Any]:
        """``_packed`` for ``longest``; the length is ANY_LENGTH where all farther distances share their table rows."""
        numbers_L = distance_numbers(np.arange(longest - 1, -longest, -1), self.positions)
        behind_P, ahead_P = numbers_L[longest - 1 :: -1], numbers_L[longest - 1 :]
        is_shared_P = (behind_P == len(self.table_LD) - 1) & (ahead_P == 0)
        if is_shared_P.any():
            farthest = int(np.argmax(is_shared_P))
            numbers_L, longest = numbers_L[longest - 1 - farthest : longest + farthest], ANY_LENGTH
        first = int(numbers_L[-1])  # the numbers fall as keys move ahead
        rows_LE, width = self._projected_rows(first, int(numbers_L[0]) + 1), self.heads.query_heads * self.heads.width
        numbers_L = numbers_L - first
        key_LE = rows_LE[numbers_L, self.key_column : self.key_column + width] if self.settings.to_position else None
        query_LE = rows_LE[numbers_L, :width] if self.settings.to_content else None
        return longest, self.ops.pack_distances(key_LE, query_LE, self.heads)

    def _projected_rows(self, first: int, stop: int) -> np.ndarray:
        x_LD = self.ops.embed(np.arange(first, stop, dtype=np.int32), self.table_LD)
        return np.asarray(self.projection(x_LD if self.norm is None else self.norm(x_LD)))


def cached_heads(spec: AttentionSpec) -> Heads:
    """Heads of cached rows: keys, then values; queries are in rows of their own or at the beginning of fused rows."""
    shape = spec.heads, spec.key_heads, spec.head_width
    return Heads(*shape, value_column=spec.key_width, scale=spec.query_scale, softcap=spec.softcap)


def fused_heads(spec: AttentionSpec) -> Heads:
    """Heads of the rows of a fused projection: queries, keys, values side by side."""
    value_column = spec.query_width + spec.key_width
    return cached_heads(spec)._replace(key_column=spec.query_width, value_column=value_column)


class HeadNorms:
    """Root mean square norms of queries and keys (Henry 2020; Gemma 3, Qwen 3), of ``name.{query,key}_norm``."""

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec):
        self.ops, self.epsilon = parameters.ops, spec.norms.epsilon
        query_K, key_K = (parameters.tensor(f"{name}.{side}_norm.weight") for side in ("query", "key"))
        counts = spec.attention.heads, spec.attention.key_heads
        # The (weights, column) of each call: queries and keys lie side by side, so one call can normalize all heads.
        if spec.attention.norms_of_all_heads:
            self.calls = [(query_K[None], 0), (key_K[None], len(query_K))]
        else:
            self.calls = [(np.repeat(np.stack([query_K, key_K]), counts, axis=0), 0)]

    def __call__(self, qkv_NE: np.ndarray, positions_N: np.ndarray) -> None:
        for weight_HK, column in self.calls:
            self.ops.normalize_heads(qkv_NE, weight_HK, self.epsilon, column)


class SelfAttention(Sublayer):
    """Attention of a stack's rows over themselves, from ``layer.self_attention.{norm,qkv,output}``.

    row_width    of a cached row: keys, then values
    rounds_rows  whether a decoder caches rows as bfloat16: where its products are narrower than float32
    """

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.self_attention"
        super().__init__(parameters, name, spec.norms, first=number == 0)
        self.number, self.rounds_rows = number, parameters.precision != "float32" and not spec.causal
        self.qkv, self.output = Linear(parameters, f"{name}.qkv"), Linear(parameters, f"{name}.output")
        attention = spec.attention.of_layer(number)
        self.fused_heads, self.cached_heads = fused_heads(attention), cached_heads(attention)
        self.narrow_heads = self.fused_heads._replace(narrow=True)
        self.row_width = 2 * spec.attention.key_width
        # Only a feed-forward layer follows the last attention, so it may compute fewer rows.
        self.is_last = number == spec.layers - 1 and not spec.parallel and (number > 0 or spec.convolution is None)
        local = spec.local if spec.local is not None and number in spec.local.layers else None
        self.window = None if local is None else (local.before, local.after)
        self.layer_bias = _relative_bias(parameters, name, spec) if spec.positions.of_each_layer else None
        has_distances = spec.positions.kind == "disentangled"
        self.distances = DistanceRows(parameters, name, spec, self.qkv) if has_distances else None
        # These functions change queries and keys in place before attention, in this order.
        self.transforms: list[Callable[[np.ndarray, np.ndarray], None]] = []
        if spec.positions.kind == "rotary" and number not in spec.positions.layers_without:
            rotary = (local and local.rotary) or spec.positions.rotary or Rotary(spec.attention.head_width)
            self.transforms.append(RotaryPositions(self.ops, spec.attention, rotary))
        if spec.attention.head_norms:
            index = len(self.transforms) if spec.attention.norms_after_positions else 0
            self.transforms.insert(index, HeadNorms(parameters, name, spec))

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        # Intermediate rows have no names, so that they are freed at once and the next rows get their memory while it is
        # in the CPU's caches. MiniLM in int8 takes 5 to 10% longer if queries and keys live until the norm is done.
        attend: Callable = self._attend_whole if isinstance(rows, WholeRows) else self._attend_cached
        context_NF = attend(self.qkv(self.input_of(x_ND)), rows)
        if len(context_NF) < len(x_ND):
            assert isinstance(rows, WholeRows)
            x_ND = self.ops.take_rows(x_ND, rows.starts_B1[:-1])
        return self.output_of(x_ND, self.output(context_NF, residual_NF=self.residual(x_ND)))

    def _attend_cached(self, qkv_NE: np.ndarray, rows: CachedRows | RecordedRows) -> np.ndarray:
        for transform in self.transforms:
            transform(qkv_NE, rows.positions_N)
        keys_values_ME = rows.cache.target.layers[self.number]
        heads = self.fused_heads
        self.ops.write_rows(keys_values_ME, rows.rows_N, qkv_NE, heads.key_column, heads.width)
        keys, bias = rows.history
        if self.layer_bias is not None:
            bias = self.layer_bias(keys.index_RS.shape[1])
        if self.window is not None:
            keys = keys._replace(window=self.window[0] + 1)
        return self.ops.attention_step(
            qkv_NE, keys_values_ME, keys_values_ME, keys, self.cached_heads, position_bias=bias
        )

    def _attend_whole(self, qkv_NE: np.ndarray, rows: WholeRows) -> np.ndarray:
        for transform in self.transforms:
            transform(qkv_NE, rows.positions_N)
        if self.rounds_rows and rows.causal:  # later steps read rounded keys and values too
            self.ops.round_rows(qkv_NE, self.fused_heads.key_column)
        if rows.cache is not None:
            self.ops.write_rows(rows.cache.target.layers[self.number], rows.rows_N, qkv_NE, self.fused_heads.key_column)
        query_NE, batch = qkv_NE, rows.batch(self.window)
        if self.is_last and rows.first_only:
            firsts_B = batch.query_starts_B1[:-1]
            query_NE = self.ops.take_rows(qkv_NE, firsts_B)
            seen_B2 = None if batch.seen_N2 is None else batch.seen_N2[firsts_B]
            batch = batch._replace(query_starts_B1=np.arange(len(rows.starts_B1)), seen_N2=seen_B2)
        heads = self.narrow_heads if rows.narrow else self.fused_heads
        bias = rows.bias if self.layer_bias is None else self.layer_bias(rows.longest)
        distances = None if self.distances is None else self.distances(rows.longest)
        return self.ops.attention(query_NE, qkv_NE, qkv_NE, batch, heads, position_bias=bias, distances=distances)


class CrossAttention(Sublayer):
    """Attention of a decoder's rows over their memory, from ``layer.cross_attention.{norm,query,key_value,output}``."""

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.cross_attention"
        super().__init__(parameters, name, spec.norms)
        self.number = number
        self.query, self.output = Linear(parameters, f"{name}.query"), Linear(parameters, f"{name}.output")
        self.key_value = Linear(parameters, f"{name}.key_value")
        self.heads = cached_heads(spec.attention)
        # whether calls return this layer's attention
        self.is_aligned = number == spec.alignment.layer % spec.layers
        self.alignment_heads = spec.alignment.heads or spec.attention.heads

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        attend: Callable = self._attend_whole if isinstance(rows, WholeRows) else self._attend_cached
        return self.output_of(x_ND, self.output(attend(self.query(self.input_of(x_ND)), rows), residual_NF=x_ND))

    def _attend_cached(self, query_NF: np.ndarray, rows: CachedRows | RecordedRows) -> np.ndarray:
        keys_values_ME = rows.cache.memory.layers[self.number]
        weights_NHS = None
        if rows.wants_attention and self.is_aligned:
            shape = len(query_NF), self.heads.query_heads, rows.memory.index_RS.shape[1]
            weights_NHS = self.ops.empty(shape, query_NF.dtype)
        context_NF = self.ops.attention_step(
            query_NF, keys_values_ME, keys_values_ME, rows.memory, self.heads, weights_NHS=weights_NHS
        )
        if weights_NHS is not None:
            rows.attention_NS = np.asarray(self.ops.average_heads(weights_NHS, self.alignment_heads))
        return context_NF

    def _attend_whole(self, query_NF: np.ndarray, rows: WholeRows) -> np.ndarray:
        memory = rows.memory
        assert memory is not None
        lengths_B, keys_values_NE = np.diff(rows.starts_B1), memory.keys_values[self.number]
        weights_BHTS, is_aligned = None, rows.wants_attention and self.is_aligned
        if is_aligned or rows.cross_attentions is not None:
            T, S = int(lengths_B.max(initial=0)), int(np.diff(memory.starts_B1).max(initial=0))
            weights_BHTS = self.ops.empty((len(lengths_B), self.heads.query_heads, T, S), query_NF.dtype)
        batch = RaggedBatch(rows.starts_B1, memory.starts_B1)
        context_NF = self.ops.attention(
            query_NF, keys_values_NE, keys_values_NE, batch, self.heads, weights_BHTS=weights_BHTS
        )
        if rows.cross_attentions is not None:
            rows.cross_attentions.append(np.array(weights_BHTS))
        if is_aligned and weights_BHTS is not None:
            attention_BTS = np.asarray(self.ops.average_heads(weights_BHTS, self.alignment_heads))
            rows.attention_NS = np.concatenate([attention_BTS[b, :length] for b, length in enumerate(lengths_B)])
        return context_NF
