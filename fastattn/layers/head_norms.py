"""Norms of the heads of queries and keys, before positions turn them."""

import numpy as np

from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import StackSpec


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
