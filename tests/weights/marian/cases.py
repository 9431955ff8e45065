"""Little random Marian models and what is asked of them: what goldens/marian.json was made from."""

import numpy as np

from tests.weights.marian import writer

# Every place where Marian's models differ that CTranslate2's converter reads too.
MODELS: dict[str, dict] = {
    "post-norm, swish, all tied": {},
    "post-norm, relu, source and target tied": {
        "tied_embeddings_all": False, "tied_embeddings_src": True, "transformer_ffn_activation": "relu",
    },
    "post-norm, gelu, target tied": {
        "tied_embeddings_all": False, "tied_embeddings": True, "transformer_ffn_activation": "gelu",
        "transformer_guided_alignment_layer": 1,
    },
    "pre-norm, untied, embeddings normed": {
        "tied_embeddings_all": False, "transformer_preprocess": "n", "transformer_postprocess": "da",
        "transformer_postprocess_top": "n", "transformer_postprocess_emb": "nd", "enc_depth": 3, "transformer_heads": 2,
    },
}  # fmt: skip


def build(name: str) -> tuple[writer.Arrays, dict[str, object]]:
    return writer.random_model(list(MODELS).index(name), **MODELS[name])


def sinusoids(width: int, positions: int) -> np.ndarray:
    """Marian's table of positions, in float32 as it computes it (src/tensors/cpu/tensor_operators.cpp)."""
    half = width // 2
    step = np.log(np.float32(10000)) / np.float32(half - 1)
    rates = np.exp(np.arange(half, dtype=np.float32) * -step)
    angles = np.arange(positions, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def inputs() -> tuple[list[list[str]], list[list[str]]]:
    """(sources, targets to score), as tokens."""
    rng = np.random.default_rng(7)
    tokens = writer.vocabulary()

    def draw(length: int) -> list[str]:
        return [tokens[i] for i in rng.integers(2, len(tokens), length)]

    return [draw(length) for length in (1, 2, 3, 6, 11)], [draw(length) for length in (3, 1, 7, 4, 9)]
