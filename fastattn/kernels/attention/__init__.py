"""Attention: over whole sentences in one pass over the keys, and of queries over tables of keys."""
