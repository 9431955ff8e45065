"""Attention: over whole sentences in one pass over the keys, and of queries over tables of keys."""

from fastattn.kernels.attention.sentences import attend_counting, attention, seen_keys
from fastattn.kernels.attention.step import attention_step

__all__ = ["attend_counting", "attention", "attention_step", "seen_keys"]
