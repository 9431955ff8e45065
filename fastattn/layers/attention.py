"""Multi-head attention with its projections: over whole sequences, or over a key-value cache."""

from collections.abc import Callable

import numpy as np

from fastattn.layers.attention_inputs import CachedRows, RecordedRows, Rows, WholeRows
from fastattn.layers.attention_positions import RotaryPositions
from fastattn.layers.distances import DistanceRows
from fastattn.layers.linear import Linear
from fastattn.layers.norm import Sublayer
from fastattn.layers.parameters import Parameters
from fastattn.ops.attention import Heads, RaggedBatch
from fastattn.spec.architecture import AttentionSpec, Rotary, StackSpec


def cached_heads(spec: AttentionSpec) -> Heads:
    """Heads of cached rows: keys and values side by side; queries are separate, or first in fused rows."""
    return Heads(spec.heads, spec.key_heads, spec.head_width, value_column=spec.key_width, scale=spec.query_scale)


def fused_heads(spec: AttentionSpec) -> Heads:
    """Heads of the rows of a fused projection: queries, keys, values side by side."""
    value_column = spec.query_width + spec.key_width
    return cached_heads(spec)._replace(key_column=spec.query_width, value_column=value_column)


class HeadNorms:
    """Root mean square norms (Henry 2020 has norms there; Gemma 3 and Qwen 3 these) of ``name.{query,key}_norm``."""

    def __init__(self, parameters: Parameters, name: str, spec: StackSpec):
        self.ops, self.epsilon = parameters.ops, spec.norms.epsilon
        query_K, key_K = (parameters.tensor(f"{name}.{part}_norm.weight") for part in ("query", "key"))
        counts = spec.attention.heads, spec.attention.key_heads
        # Queries and keys lie side by side, so one call does them all.
        self.weight_HK = np.repeat(np.stack([query_K, key_K]), counts, axis=0)

    def __call__(self, qkv_NE: np.ndarray) -> None:
        self.ops.normalize_heads(qkv_NE, self.weight_HK, self.epsilon)


class SelfAttention(Sublayer):
    """Attention of a stack's rows over themselves, from ``layer.self_attention.{norm,qkv,output}``.

    row_width  the width of a cached row: its keys, then its values
    rounded    whether a decoder caches them as bfloat16: if its products are narrower than float32
    """

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.self_attention"
        super().__init__(parameters, name, spec.norms, first=number == 0)
        self.number, self.rounded = number, parameters.precision != "float32" and not spec.causal
        self.qkv, self.output = Linear(parameters, f"{name}.qkv"), Linear(parameters, f"{name}.output")
        self.fused_heads, self.cached_heads = fused_heads(spec.attention), cached_heads(spec.attention)
        self.row_width = 2 * spec.attention.key_width
        self.head_norms = HeadNorms(parameters, name, spec) if spec.attention.head_norms else None
        local = spec.local if spec.local is not None and number in spec.local.layers else None
        self.window = None if local is None else (local.before, local.after)
        self.distances = None
        if spec.positions.kind == "disentangled":
            self.distances = DistanceRows(parameters, name, spec, self.qkv)
        self.rotary = None
        if spec.positions.kind == "rotary":
            rotary = (local and local.rotary) or spec.positions.rotary or Rotary(spec.attention.head_width)
            self.rotary = RotaryPositions(self.ops, spec.attention, rotary)

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        # No names for intermediate rows: freed ones leave their memory, still in the CPU's caches, to the next.
        # MiniLM in int8 takes 5 to 10% longer if queries and keys live until the norm is done.
        attend: Callable = self._attend_whole if isinstance(rows, WholeRows) else self._attend_cached
        y_ND = self.output(attend(self.qkv(self.entering(x_ND)), rows), residual_NF=self.residual(x_ND))
        return self.leaving(x_ND, y_ND)

    def _add_positions(self, qkv_NE: np.ndarray, positions_N: np.ndarray) -> None:
        """Norms of heads and rotary positions, in place."""
        if self.head_norms is not None:
            self.head_norms(qkv_NE)
        if self.rotary is not None:
            self.rotary(qkv_NE, positions_N)

    def _attend_cached(self, qkv_NE: np.ndarray, rows: CachedRows | RecordedRows) -> np.ndarray:
        self._add_positions(qkv_NE, rows.positions_N)
        keys_values_ME = rows.cache.target.layers[self.number]
        self.ops.write_rows(keys_values_ME, rows.rows_N, qkv_NE, self.fused_heads.key_column)
        seen, bias = rows.history
        if self.window is not None:
            seen = seen._replace(firsts_N=rows.firsts(self.window))
        return self.ops.attention_step(
            qkv_NE, keys_values_ME, keys_values_ME, seen, self.cached_heads, position_bias=bias
        )

    def _attend_whole(self, qkv_NE: np.ndarray, rows: WholeRows) -> np.ndarray:
        self._add_positions(qkv_NE, rows.positions_N)
        if self.rounded and rows.causal:  # as a later step reads them
            self.ops.round_rows(qkv_NE, self.fused_heads.key_column)
        if rows.cache is not None:
            self.ops.write_rows(rows.cache.target.layers[self.number], rows.rows_N, qkv_NE, self.fused_heads.key_column)
        return self.ops.attention(
            qkv_NE,
            qkv_NE,
            qkv_NE,
            rows.batch(self.window),
            self.fused_heads,
            position_bias=rows.bias,
            distances=None if self.distances is None else self.distances(rows.longest),
        )


class CrossAttention(Sublayer):
    """Attention of a decoder's rows over their memory, from ``layer.cross_attention.{norm,query,key_value,output}``."""

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.cross_attention"
        super().__init__(parameters, name, spec.norms)
        self.number = number
        self.query, self.output = Linear(parameters, f"{name}.query"), Linear(parameters, f"{name}.output")
        self.key_value = Linear(parameters, f"{name}.key_value")
        self.heads = cached_heads(spec.attention)
        self.aligned = number == spec.alignment.layer % spec.layers
        self.alignment_heads = spec.alignment.heads or spec.attention.heads

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        attend: Callable = self._attend_whole if isinstance(rows, WholeRows) else self._attend_cached
        return self.leaving(x_ND, self.output(attend(self.query(self.entering(x_ND)), rows), residual_NF=x_ND))

    def _attend_cached(self, query_NF: np.ndarray, rows: CachedRows | RecordedRows) -> np.ndarray:
        keys_values_ME = rows.cache.memory.layers[self.number]
        weights_NHS = None
        if rows.wants_attention and self.aligned:
            weights_NHS = self.ops.empty(
                (len(query_NF), self.heads.query_heads, rows.memory.index_RS.shape[1]), query_NF.dtype
            )
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
        weights_BHTS = None
        if rows.wants_attention and self.aligned:
            T, S = int(lengths_B.max(initial=0)), int(np.diff(memory.starts_B1).max(initial=0))
            weights_BHTS = self.ops.empty((len(lengths_B), self.heads.query_heads, T, S), query_NF.dtype)
        context_NF = self.ops.attention(
            query_NF,
            keys_values_NE,
            keys_values_NE,
            RaggedBatch(rows.starts_B1, memory.starts_B1),
            self.heads,
            weights_BHTS=weights_BHTS,
        )
        if weights_BHTS is not None:
            attention_BTS = np.asarray(self.ops.average_heads(weights_BHTS, self.alignment_heads))
            rows.attention_NS = np.concatenate([attention_BTS[b, :length] for b, length in enumerate(lengths_B)])
        return context_NF
