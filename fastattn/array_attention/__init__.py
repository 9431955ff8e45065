"""Attention on NumPy arrays, without a model: checks of shapes and types, then the kernels."""
