"""The formulas of ``fastattn.mechanisms`` in plain NumPy, one line of the papers a line of code, whole arrays at once.

In the dtype of the inputs: in float64 they are the oracle of the tests, in float32 the naive side of the benchmark.
Arrays have all axes: queries (B, T, H, K), keys (B, S, H, K), values (B, S, H, V), scores and weights (B, H, T, S).
"""
