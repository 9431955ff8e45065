"""Marian's Transformer as marian-dev's src/models/transformer.h has it: naive, float64, from a model's own arrays."""

from collections.abc import Mapping, Sequence

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


class Oracle:
    """The log-probabilities that a model gives to a target."""

    def __init__(self, arrays: Mapping[str, np.ndarray], options: Mapping):
        self.arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self.options = options

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """Of each token of ``target``, the last of which is the end."""
        memory = self.encode(source)
        hidden = self.decode(memory, target[:-1])
        logits = hidden @ self._projection().T
        if "decoder_ff_logit_out_b" in self.arrays:
            logits = logits + self.arrays["decoder_ff_logit_out_b"]
        logits -= logits.max(axis=1, keepdims=True)
        every = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return every[np.arange(len(target)), list(target)]

    def encode(self, source: Sequence[int]) -> np.ndarray:
        x = self._embed("encoder", self._table("encoder")[list(source)])
        for i in range(1, self.options["enc-depth"] + 1):
            x = self._attend(f"encoder_l{i}_self", x, None, causal=False)
            x = self._feed_forward(f"encoder_l{i}_ffn", x)
        return self._norm("encoder_top", x, "") if self.options["transformer-postprocess-top"] else x

    def decode(self, memory: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        table = self._table("decoder")
        x = self._embed("decoder", np.concatenate([np.zeros((1, table.shape[1])), table[list(tokens)]]))
        layers = self.options["transformer-tied-layers"] or range(1, self.options["dec-depth"] + 1)
        for i in layers:
            match self.options["transformer-decoder-autoreg"]:
                case "rnn":
                    x = self._recur(f"decoder_l{i}_rnn", x)
                case "average-attention":
                    x = self._average(f"decoder_l{i}_aan", x)
                case _:
                    x = self._attend(f"decoder_l{i}_self", x, None, causal=True)
            x = self._attend(f"decoder_l{i}_context", x, memory, causal=False)
            x = self._feed_forward(f"decoder_l{i}_ffn", x)
        return self._norm("decoder_top", x, "") if self.options["transformer-postprocess-top"] else x

    def _embed(self, stack: str, x: np.ndarray) -> np.ndarray:
        width = x.shape[1]
        if "Wpos" in self.arrays:
            x = x + self.arrays["Wpos"][: len(x)]
        elif not self.options.get("transformer-disable-position-embeddings"):
            angles = np.arange(len(x))[:, None] * 1e-4 ** (np.arange(width // 2) / (width // 2 - 1))
            x = x * width**0.5 + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return self._steps(f"{stack}_emb", self.options["transformer-postprocess-emb"], x, None, "_pre")

    def _steps(self, name: str, steps: str, x: np.ndarray, before: np.ndarray | None, end: str = "") -> np.ndarray:
        for step in steps:
            if step == "a":
                x = x + before
            elif step in "nr":
                x = self._norm(name, x, end)
        return x

    def _norm(self, name: str, x: np.ndarray, end: str) -> np.ndarray:
        if f"{name}_rms_scale{end}" in self.arrays:
            return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * self.arrays[f"{name}_rms_scale{end}"]
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
        return x * self.arrays[f"{name}_ln_scale{end}"] + self.arrays[f"{name}_ln_bias{end}"]

    def _pre(self, name: str, x: np.ndarray) -> np.ndarray:
        return self._steps(name, self.options["transformer-preprocess"], x, None, "_pre")

    def _post(self, name: str, x: np.ndarray, before: np.ndarray) -> np.ndarray:
        return self._steps(name, self.options["transformer-postprocess"], x, before)

    def _dense(self, name: str, end: str, x: np.ndarray) -> np.ndarray:
        return x @ self.arrays[f"{name}_W{end}"] + self.arrays[f"{name}_b{end}"]

    def _attend(self, name: str, x: np.ndarray, memory: np.ndarray | None, causal: bool) -> np.ndarray:
        queries = self._pre(f"{name}_Wo", x)
        keys = queries if memory is None else memory
        heads = self.options["transformer-heads"]
        q, k, v = (
            np.stack(np.split(self._dense(name, end, rows), heads, axis=1))
            for end, rows in (("q", queries), ("k", keys), ("v", keys))
        )
        scores = q @ k.transpose(0, 2, 1) / q.shape[2] ** 0.5
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        joined = np.concatenate(list(weights / weights.sum(axis=2, keepdims=True) @ v), axis=1)
        out = joined if self.options["transformer-no-projection"] else self._dense(name, "o", joined)
        return self._post(f"{name}_Wo", out, x)

    def _feed_forward(self, name: str, x: np.ndarray) -> np.ndarray:
        inner = ACTIVATIONS[self.options["transformer-ffn-activation"]](
            self._dense(name, "1", self._pre(f"{name}_ffn", x))
        )
        return self._post(f"{name}_ffn", self._dense(name, "2", inner), x)

    def _recur(self, name: str, x: np.ndarray) -> np.ndarray:
        inputs = self._pre(name, x)
        values, gates = inputs @ self.arrays[f"{name}_W"], ACTIVATIONS["sigmoid"](self._dense(name, "f", inputs))
        cell, out = np.zeros(x.shape[1]), np.empty_like(x)
        for t in range(len(x)):
            cell = gates[t] * cell + (1 - gates[t]) * values[t]
            out[t] = np.maximum(cell, 0)
        return self._post(f"{name}_ffn", out, x)

    def _average(self, name: str, x: np.ndarray) -> np.ndarray:
        y = self._pre(f"{name}_ffn", np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None])
        if self.options["transformer-aan-depth"] == 2:
            y = ACTIVATIONS[self.options["transformer-aan-activation"]](self._dense(name, "1", y))
            if y.shape[1] != x.shape[1]:
                y = self._dense(name, "2", y)
        if not self.options["transformer-aan-nogate"]:
            sigmoid = ACTIVATIONS["sigmoid"]
            y = sigmoid(self._dense(name, "i", x)) * x + sigmoid(self._dense(name, "f", y)) * y
        return self._post(f"{name}_ffn", y, x)

    def _table(self, stack: str) -> np.ndarray:
        return self.arrays["Wemb"] if "Wemb" in self.arrays else self.arrays[f"{stack}_Wemb"]

    def _projection(self) -> np.ndarray:
        if self.options["tied-embeddings-all"] or self.options["tied-embeddings"]:
            return self._table("decoder")
        if "decoder_ff_logit_out_W" in self.arrays:
            return self.arrays["decoder_ff_logit_out_W"].T
        return self.arrays["decoder_ff_logit_out_Wt"]
