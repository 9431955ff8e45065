"""Vectors of texts: similarity, search, quantization, sparse vectors."""
