"""Attention: whole sentences in one pass over their keys, and one query a row over a table of keys."""

from fastattn.kernels.attention.sentences import attend_between, attention
from fastattn.kernels.attention.step import attention_step

__all__ = ["attend_between", "attention", "attention_step"]
