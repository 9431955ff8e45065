"""Weights drawn from a tensor's name and shape alone, whoever asks and in whatever order."""

import zlib
from collections.abc import Mapping

import numpy as np

# Tables of vectors, which no product sums over.
TABLES = ("embedding", "embed_tokens", "shared.weight", "relative_attention_bias")
NORMS = ("norm", "_ln")
FROZEN = ("position_ids", "token_type_ids")  # integers that old checkpoints hold


def draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A float32 tensor: matrices that keep the size of their input, norms about 1, biases and tables that matter."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    unit = (rng.random(shape) - 0.5) * np.sqrt(12)
    if len(shape) == 2:
        table = any(part in name for part in TABLES) and "project" not in name and "mapping" not in name
        drawn = unit if table else unit * (1.2 / np.sqrt(shape[1]))
    elif any(part in name.lower() for part in NORMS) and name.endswith("weight"):
        drawn = 1 + 0.2 * unit
    else:
        drawn = 0.3 * unit
    return drawn.astype(np.float32)


def draw_all(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    return {name: draw(name, tuple(shape), seed) for name, shape in shapes.items()}
