"""jina-embeddings-v2's BERT in NumPy, float64: no transformers has it, its authors publish it as remote code.

BERT with symmetric linear biases (Günther et al. 2023, section 4; slopes by Press 2022) instead of positions, and a
gated feed-forward (Shazeer 2020): act(first half) * second half of one product without a bias.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray
_erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS = {
    "original": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "geglu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "reglu": lambda x: np.maximum(x, 0),
}


def tensor_shapes(config: Mapping[str, Any], task: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model with a pooler; ``bert.`` before them and a classifier after it, where it has one."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    linear = {"pooler.dense": (width, width)}
    norms = ["embeddings.LayerNorm"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
    }
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        linear |= {f"{layer}.attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        linear[f"{layer}.attention.output.dense"] = (width, width)
        norms.append(f"{layer}.attention.output.LayerNorm")
        if config["feed_forward_type"] == "original":
            linear |= {f"{layer}.intermediate.dense": (inner, width), f"{layer}.output.dense": (width, inner)}
            norms.append(f"{layer}.output.LayerNorm")
        else:
            shapes[f"{layer}.mlp.gated_layers.weight"] = (2 * inner, width)
            linear[f"{layer}.mlp.wo"] = (width, inner)
            norms.append(f"{layer}.mlp.layernorm")
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes |= {f"{name}.{kind}": (width,) for name in norms for kind in ("weight", "bias")}
    if task == "encoder":
        return shapes
    labels = len(config["id2label"])
    return {f"bert.{name}": shape for name, shape in shapes.items()} | {
        "classifier.weight": (labels, width),
        "classifier.bias": (labels,),
    }


def slopes(heads: int) -> Array:
    """2^(-8 i / H) where H is a power of two; else those of the power below, then every second of twice as many."""
    power = 2 ** math.floor(math.log2(heads))
    first = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    twice = 2.0 ** (-8 * np.arange(1, 2 * power + 1) / (2 * power))
    return np.concatenate([first, twice[::2][: heads - power]])


class JinaBert:
    """Rows and logits from tensors by their published names."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, Array]):
        self.config = config
        self.tensors = {name.removeprefix("bert."): x.astype(np.float64) for name, x in tensors.items()}

    def rows(self, ids: Array, types: Array | None) -> Array:
        """The last hidden states [T, D] of a sentence."""
        tables = self.tensors
        x_TD = tables["embeddings.word_embeddings.weight"][ids]
        x_TD = x_TD + tables["embeddings.token_type_embeddings.weight"][0 if types is None else types]
        x_TD = self._norm("embeddings.LayerNorm", x_TD)
        for i in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{i}"
            attended_TD = self._linear(f"{layer}.attention.output.dense", self._attend(f"{layer}.attention.self", x_TD))
            x_TD = self._norm(f"{layer}.attention.output.LayerNorm", x_TD + attended_TD)
            x_TD = self._feed_forward(layer, x_TD)
        return x_TD

    def logits(self, ids: Array, types: Array | None) -> Array:
        """Of the first row, through the pooler."""
        pooled_D = np.tanh(self._linear("pooler.dense", self.rows(ids, types)[0]))
        return self._linear("classifier", pooled_D)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, name: str, x_TD: Array) -> Array:
        centered_TD = x_TD - x_TD.mean(axis=1, keepdims=True)
        variance_T1 = (centered_TD**2).mean(axis=1, keepdims=True)
        unit_TD = centered_TD / np.sqrt(variance_T1 + self.config["layer_norm_eps"])
        return unit_TD * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _attend(self, name: str, x_TD: Array) -> Array:
        heads = self.config["num_attention_heads"]
        query_HTK, key_HTK, value_HTK = (
            self._linear(f"{name}.{part}", x_TD).reshape(len(x_TD), heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        distance_TS = np.abs(np.arange(len(x_TD))[:, None] - np.arange(len(x_TD)))
        scores_HTS = query_HTK @ key_HTK.swapaxes(1, 2) / math.sqrt(query_HTK.shape[2])
        scores_HTS = scores_HTS - slopes(heads)[:, None, None] * distance_TS
        weights_HTS = np.exp(scores_HTS - scores_HTS.max(axis=2, keepdims=True))
        weights_HTS /= weights_HTS.sum(axis=2, keepdims=True)
        return (weights_HTS @ value_HTK).swapaxes(0, 1).reshape(x_TD.shape)

    def _feed_forward(self, layer: str, x_TD: Array) -> Array:
        kind = self.config["feed_forward_type"]
        if kind == "original":
            inner_TF = ACTIVATIONS[kind](self._linear(f"{layer}.intermediate.dense", x_TD))
            return self._norm(f"{layer}.output.LayerNorm", x_TD + self._linear(f"{layer}.output.dense", inner_TF))
        gate_TF, rest_TF = np.split(x_TD @ self.tensors[f"{layer}.mlp.gated_layers.weight"].T, 2, axis=1)
        inner_TF = ACTIVATIONS[kind](gate_TF) * rest_TF
        return self._norm(f"{layer}.mlp.layernorm", x_TD + self._linear(f"{layer}.mlp.wo", inner_TF))
