"""Attention on NumPy arrays, without a model: checks of shapes and types, then the kernels."""

from fastattn.functional.attention import additive_attention, attention, attention_ragged
from fastattn.functional.block_mask import BlockMask

__all__ = ["BlockMask", "additive_attention", "attention", "attention_ragged"]
