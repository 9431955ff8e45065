"""Attention on NumPy arrays, without a model: checks of shapes and types, then the kernels."""

from fastattn.functional.attention import additive_attention, attention, attention_ragged
from fastattn.functional.block_mask import BlockMask
from fastattn.functional.cache import KVCache
from fastattn.functional.multi_head import MultiHeadAttention, ProjectionWeights, multi_head_attention

__all__ = [
    "BlockMask",
    "KVCache",
    "MultiHeadAttention",
    "ProjectionWeights",
    "additive_attention",
    "attention",
    "attention_ragged",
    "multi_head_attention",
]
