"""Attention: over whole sentences in one pass over the keys, and of queries over tables of keys."""

from fastattn.ops.cpu.attention.distance_tile import pack_distances
from fastattn.ops.cpu.attention.sentences import attention, seen_around
from fastattn.ops.cpu.attention.step import attention_step

__all__ = ["attention", "attention_step", "pack_distances", "seen_around"]
