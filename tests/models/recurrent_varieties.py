"""Random little recurrent encoder-decoders of every variety, and their twins."""

from typing import Any

import numpy as np

from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.recurrent import MemoryAttention, Readout
from tests.models.tiny_models import FROM_ENCODER, LSTM, random_checkpoint, recurrent

CHO = {"cell": "gru_reset_before"}
BOTH = {"bidirectional": True}
BRIDGE = {"initial": "bridge", "initial_activation": "tanh"}
LUONG = {**LSTM, **FROM_ENCODER, "readout": Readout(("context", "hidden"), 14, "tanh"), "feeds": True}
BAHDANAU = {**BRIDGE, "readout": Readout(("hidden", "embedding", "context"), 16, "tanh")}


def luong(score: str, after: int = 2, **others: Any) -> dict[str, Any]:
    return {**LUONG, "attention": MemoryAttention(score, after, **others)}


# Name -> what the encoder and the decoder have, beside what ``recurrent`` gives them.
RECURRENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sutskever": ({**LSTM, "backward": True}, {**LSTM, **FROM_ENCODER}),
    "cho": (CHO, {**BRIDGE, "readout": Readout(("hidden", "embedding"))}),
    "bahdanau": ({**CHO, **BOTH}, {**BAHDANAU, "attention": MemoryAttention("additive", 0, 9)}),
    "tutorial": ({}, {**FROM_ENCODER, "attention": MemoryAttention("additive", 0, 12)}),
    "luong dot": (LSTM, luong("dot")),
    "few words": (
        {**LSTM, **BOTH, "units": 8, "embedding_width": 19},
        luong("general") | {"embedding_width": 20, **BRIDGE},
    ),
    "luong general": ({**LSTM, "backward": True}, luong("general")),
    "luong concat": (LSTM, luong("additive", width=12)),
    "luong local-m": (LSTM, luong("general", window=2)),
    "luong local-p": (LSTM, luong("dot", window=2, predictive=7)),
    "local-p before the cell": ({}, {"attention": MemoryAttention("additive", 0, 8, window=3, predictive=5)}),
    "not fed": ({**LSTM, "units": 8, **BOTH}, luong("general") | {"feeds": False, **BRIDGE, "projection_bias": False}),
    "hard": (LSTM, luong("general", hard=True)),
    "multi-head": (
        {**BOTH, "readout": Readout(width=20, activation="tanh")},
        {"layers": 2, "attention": MemoryAttention("multi-head", 1, 16, heads=4)},
    ),
    "between, fed": (BOTH, {**LSTM, "feeds": True, "attention": MemoryAttention("additive", 1, 6)}),
    "of no history": (
        {**BOTH, "cell": "lstm", "units": 6},
        {**FROM_ENCODER, "carries": False, "attention": MemoryAttention("general", 0)},
    ),
    "gru of no history": ({}, {**BRIDGE, "carries": False, "attention": MemoryAttention("multi-head", 0, 8, heads=2)}),
}


def recurrent_checkpoint(variety: str, dtype: type = np.float32) -> Checkpoint:
    """Its weights are large, so that what it writes depends on what it reads."""
    encoder, decoder = RECURRENT[variety]
    checkpoint = random_checkpoint(3, dtype, sharpness=5.0, stacks=recurrent(decoder, **encoder))
    for name, tensor in checkpoint.tensors.items():
        if tensor.ndim == 2 and ".projection." not in name:
            tensor *= 2
    return checkpoint


def recurrent_model(variety: str, ops: Any = reference, precision: str = "float32", dtype: Any = np.float32) -> Any:
    return build_model(recurrent_checkpoint(variety, dtype), ops, precision)


def twin(variety: str, dtype: type = np.float32) -> Any:
    checkpoint = recurrent_checkpoint(variety, dtype)
    return Twin(checkpoint.spec, checkpoint.tensors)


ACTIVATIONS = {"none": lambda x: x, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores_S):
    powers_S = np.exp(scores_S - scores_S.max())
    return powers_S / powers_S.sum()


def lstm(x_G, weight_GH, bias_G, state):
    """Hochreiter 1997 with the forget gate of Gers 2000."""
    h_H, c_H = state
    enter_H, forget_H, new_H, leave_H = np.split(x_G + weight_GH @ h_H + bias_G, 4)
    c_H = sigmoid(forget_H) * c_H + sigmoid(enter_H) * np.tanh(new_H)
    return sigmoid(leave_H) * np.tanh(c_H), c_H


def gru(x_G, weight_GH, bias_G, state):
    """As PyTorch and cuDNN have it: the reset gate multiplies the product."""
    (h_H,) = state
    (r_H, z_H, n_H), (r_of_h, z_of_h, n_of_h) = np.split(x_G, 3), np.split(weight_GH @ h_H + bias_G, 3)
    z_H, new_H = sigmoid(z_H + z_of_h), np.tanh(n_H + sigmoid(r_H + r_of_h) * n_of_h)
    return ((1 - z_H) * new_H + z_H * h_H,)


def gru_reset_before(x_G, weight_GH, bias_G, state):
    """Cho 2014, equations 5 to 8: the reset gate multiplies the state."""
    (h_H,) = state
    (x_r, x_z, x_n), (u_r, u_z, u_n) = np.split(x_G, 3), np.split(weight_GH, 3)
    b_r, b_z, b_n = np.split(bias_G, 3)
    r_H, z_H = sigmoid(x_r + u_r @ h_H + b_r), sigmoid(x_z + u_z @ h_H + b_z)
    return ((1 - z_H) * np.tanh(x_n + u_n @ (r_H * h_H) + b_n) + z_H * h_H,)


CELLS = {"lstm": (lstm, 2), "gru": (gru, 1), "gru_reset_before": (gru_reset_before, 1)}


class Twin:
    """A model of two recurrent stacks by the formulas of their papers, in float64, a word after the other.

    Nothing is batched, cached or shared with the product: it reads a ModelSpec and canonical tensors, and is the oracle
    of what they mean. A state is h, and of an LSTM c.
    """

    def __init__(self, spec, tensors):
        self.encoder, self.decoder = spec.encoder, spec.decoder
        self.tensors = {name: np.float64(tensor) for name, tensor in tensors.items()}
        # of hard attention: the keys of the steps, the most probable ones where there are none; what each is drawn by
        self.drawn, self.laws = [], []

    def linear(self, name, x_D):
        return self.tensors[name + ".weight"] @ x_D + self.tensors.get(name + ".bias", 0.0)

    def cell(self, spec, layer, x_I, state, direction=0):
        x_G = np.split(self.linear(f"{layer}.input", x_I), spec.directions)[direction]
        own = f"{layer}.{('state', 'backward')[direction]}"
        return CELLS[spec.cell][0](x_G, self.tensors[own + ".weight"], self.tensors[own + ".bias"], state)

    def readout(self, name, spec, **parts):
        row_D = np.concatenate([parts[part] for part in spec.readout.parts])
        activate = ACTIVATIONS[spec.readout.activation]
        return activate(self.linear(f"{name}.readout", row_D)) if spec.readout.width else row_D

    def encode(self, source):
        """The encoder's rows (S, width), and the last states: of each layer h of all directions, then c."""
        spec, ends, parts = self.encoder, [], CELLS[self.encoder.cell][1]
        x = embedded = [self.tensors["encoder.embedding.weight"][word] for word in source]
        order = range(len(source))[:: -1 if spec.backward else 1]
        for i in range(spec.layers):
            rows, states = [np.zeros(0) for _ in source], []
            for d in range(spec.directions):
                state = (np.zeros(spec.units),) * parts
                for s in order if d == 0 else reversed(order):
                    state = self.cell(spec, f"encoder.layers.{i}", x[s], state, d)
                    rows[s] = np.concatenate([rows[s], state[0]])
                states.append(state)
            x = rows
            ends += [state[part] for part in range(parts) for state in states]
        rows = [self.readout("encoder", spec, hidden=h, embedding=e) for h, e in zip(x, embedded)]
        return np.array(rows), np.concatenate(ends)

    def first(self, last):
        """The state of each layer of the decoder before the first word."""
        spec, numbers = self.decoder, last
        if spec.initial == "zero":
            numbers = np.zeros(spec.states)
        elif spec.initial == "bridge":
            numbers = ACTIVATIONS[spec.initial_activation](self.linear("decoder.bridge", last))
        split = iter(np.split(numbers, spec.layers * CELLS[spec.cell][1]))
        return list(zip(*[split] * CELLS[spec.cell][1]))

    def step(self, word, states, fed_D, rows_SD, t):
        """(the decoder's row, the weights (S,), the states) of its t-th word."""
        spec, attention = self.decoder, self.decoder.attention
        parts = {"embedding": self.tensors["decoder.embedding.weight"][word], "hidden": states[-1][0]}
        inputs, weights_S, after = [parts["embedding"], *[fed_D] * spec.feeds], np.zeros(len(rows_SD)), []
        for i in range(spec.layers + 1):
            if attention is not None and attention.after == i:
                parts["context"], weights_S = self.attend(attention, parts["hidden"], rows_SD, t)
                inputs.append(parts["context"])
            if i < spec.layers:
                start = states[i] if spec.carries else tuple(np.zeros_like(part) for part in states[i])
                after.append(self.cell(spec, f"decoder.layers.{i}", np.concatenate(inputs), start))
                parts["hidden"] = after[i][0]
                inputs = [parts["hidden"]]
        return self.readout("decoder", spec, **parts), weights_S, after

    def decode(self, source, words):
        """The logits (T, V) after each word, and what each step attended to (T, S), its heads' mean."""
        rows_SD, last = self.encode(source)
        states, row_D, logits, weights = self.first(last), np.zeros(self.decoder.width), [], []
        for t, word in enumerate(words):
            row_D, weights_S, states = self.step(word, states, row_D, rows_SD, t)
            logits.append(self.linear("decoder.projection", row_D))
            weights.append(weights_S)
        return np.array(logits), np.array(weights)

    def attend(self, attention, h_H, rows_SD, t):
        if attention.score == "multi-head":
            return self.attend_by_heads(attention.heads, h_H, rows_SD)
        scores_S, S, p = self.scores(attention.score, h_H, rows_SD), np.arange(len(rows_SD)), float(t)
        if attention.predictive:
            hidden_P = np.tanh(self.linear("decoder.attention.position", h_H))
            p = len(S) * sigmoid(self.linear("decoder.attention.position_score", hidden_P))[0]
        near = np.abs(S - p) <= attention.window if attention.window else S >= 0
        weights_S = np.zeros(len(S))
        if near.any():
            weights_S[near] = softmax(scores_S[near])
        if attention.hard:
            self.laws.append(weights_S)
            weights_S = np.where(S == (self.drawn[t] if self.drawn else weights_S.argmax()), 1.0 * near, 0.0)
        if attention.predictive:
            weights_S *= np.exp(-((S - p) ** 2) / (2 * (attention.window / 2) ** 2))
        return weights_S @ rows_SD, weights_S

    def scores(self, score, h_H, rows_SD):
        """Luong 2015, section 3.1; "additive" is Bahdanau 2015, section A.1.2, and Luong's concat."""
        if score == "dot":
            return rows_SD @ h_H
        keys = [self.linear("decoder.attention.key", row_D) for row_D in rows_SD]
        if score == "general":
            return np.array(keys) @ h_H
        query_A = self.linear("decoder.attention.query", h_H)
        return np.array([self.linear("decoder.attention.score", np.tanh(query_A + key_A))[0] for key_A in keys])

    def attend_by_heads(self, heads, h_H, rows_SD):
        """Vaswani 2017, section 3.2.2."""
        query_HK = np.split(self.linear("decoder.attention.query", h_H), heads)
        keys, values = (
            [np.split(self.linear(f"decoder.attention.{name}", row_D), heads) for row_D in rows_SD]
            for name in ("key", "value")
        )
        weights, contexts = [], []
        for head, query_K in enumerate(query_HK):
            weights.append(softmax(np.array([query_K @ key[head] for key in keys]) / np.sqrt(len(query_K))))
            contexts.append(sum(weight * value[head] for weight, value in zip(weights[-1], values)))
        return self.linear("decoder.attention.output", np.concatenate(contexts)), np.mean(weights, axis=0)
