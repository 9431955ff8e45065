"""Attention on NumPy arrays, without a model: checks of shapes and types, then the kernels."""

from fastattn.functional.attention import attention, attention_ragged
from fastattn.functional.block_mask import BlockMask
from fastattn.functional.cache import KVCache

__all__ = ["BlockMask", "KVCache", "attention", "attention_ragged"]
