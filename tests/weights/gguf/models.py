"""The small models of gguf_models.npz, as llama.cpp's converter wrote them."""

import numpy as np

from tests import GOLDENS

FILE = GOLDENS / "gguf_models.npz"


def names() -> list[str]:
    with np.load(FILE) as goldens:
        return [name.removesuffix(": file") for name in goldens.files if name.endswith(": file")]


def file(name: str) -> bytes:
    with np.load(FILE) as goldens:
        return goldens[f"{name}: file"].tobytes()


def expected(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(ids, log-probabilities after the last ones of them), by transformers."""
    with np.load(FILE) as goldens:
        return goldens[f"{name}: ids"], goldens[f"{name}: log probs"]
