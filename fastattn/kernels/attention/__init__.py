"""Attention: over whole sentences, in one pass over the keys, and over tables of keys and values."""
