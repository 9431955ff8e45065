"""The sources' own formulas in NumPy, by their names of tensors: the log-probabilities of a target's tokens.

e2k: its ``inference.py``. thai2rom: the graphs of its ONNX files, and PyThaiNLP's ``thai2rom_onnx.py``. PyTorch's
tutorial: EncoderRNN, DecoderRNN and AttnDecoderRNN. OpenNMT-py: ``rnn_encoder.py``, ``decoder.py``, ``stacked_rnn.py``
and ``global_attention.py``. Each function takes source ids as the encoder reads them and returns ``step``, which is
given an id and returns logits.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.weights.recurrent.writer import Weights

Step = Callable[[int], np.ndarray]
State = tuple[np.ndarray, ...]


def log_probs(step: Step, start: int, targets: Sequence[int]) -> np.ndarray:
    """Of each target behind those before it."""
    found = []
    for before, target in zip((start, *targets), targets):
        logits = step(before)
        found.append(logits[target] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
    return np.array(found)


def greedy(step: Step, start: int, end: int, most: int) -> list[int]:
    """The best ids, without the end."""
    ids = [start]
    while len(ids) <= most and ids[-1] != end:
        ids.append(int(step(ids[-1]).argmax()))
    return [index for index in ids[1:] if index != end]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


class Network:
    """Tensors in float64 by name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.weights[name]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        product = x @ self[f"{name}.weight"].T
        return product + self.weights.get(f"{name}.bias", 0)

    def cell(self, prefix: str, end: str, x: np.ndarray, state: State) -> State:
        """torch.nn.GRUCell or LSTMCell, by the number of gates."""
        given = self[f"{prefix}weight_ih{end}"] @ x + self[f"{prefix}bias_ih{end}"]
        kept = self[f"{prefix}weight_hh{end}"] @ state[0] + self[f"{prefix}bias_hh{end}"]
        if len(given) == 3 * len(state[0]):
            (r, z, n), (hr, hz, hn) = np.split(given, 3), np.split(kept, 3)
            update, new = sigmoid(z + hz), np.tanh(n + sigmoid(r + hr) * hn)
            return ((1 - update) * new + update * state[0],)
        i, f, g, o = np.split(given + kept, 4)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def zeros(self, prefix: str, end: str) -> State:
        rows, units = self[f"{prefix}weight_hh{end}"].shape
        return (np.zeros(units),) * (rows // units - 2)

    def sequence(
        self, prefix: str, x_TD: np.ndarray, ends: Sequence[str], layers: int
    ) -> tuple[np.ndarray, list[State]]:
        """(rows of the last layer, last states by layer and direction) of torch.nn.LSTM or GRU."""
        last = []
        for layer in range(layers):
            both = []
            for end in ends:
                state, rows = self.zeros(prefix, f"_l{layer}{end}"), []
                for x_D in x_TD[::-1] if end else x_TD:
                    state = self.cell(prefix, f"_l{layer}{end}", x_D, state)
                    rows.append(state[0])
                both.append(np.array(rows[::-1] if end else rows))
                last.append(state)
            x_TD = np.concatenate(both, 1)
        return x_TD, last


def e2k(weights: Weights, source: Sequence[int]) -> Step:
    net = Network(weights)
    rows, _ = net.sequence("encoder.", net["e_emb.weight"][list(source)], ("", "_reverse"), 1)
    memory = np.tanh(net.linear("encoder_fc.0", rows))
    (query_w, key_w, value_w), biases = np.split(net["attn.in_proj_weight"], 3), np.split(net["attn.in_proj_bias"], 3)
    heads = [np.split(memory @ w.T + b, 4, 1) for w, b in ((key_w, biases[1]), (value_w, biases[2]))]
    states = [net.zeros("pre_decoder.", "_l0"), net.zeros("post_decoder.", "_l0")]

    def step(index: int) -> np.ndarray:
        states[0] = net.cell("pre_decoder.", "_l0", net["k_emb.weight"][index], states[0])
        queries = np.split(query_w @ states[0][0] + biases[0], 4)
        found = [softmax(key @ query / len(query) ** 0.5) @ value for query, key, value in zip(queries, *heads)]
        attended = net.linear("attn.out_proj", np.concatenate(found))
        states[1] = net.cell("post_decoder.", "_l0", np.concatenate([states[0][0], attended]), states[1])
        return net.linear("fc", states[1][0])

    return step


def thai2rom(weights: Weights, source: Sequence[int]) -> Step:
    net = Network(weights)
    embedded = net["encoder.character_embedding.weight"][list(source)]
    rows, last = net.sequence("encoder.lstm.", embedded, ("", "_reverse"), 1)
    keys = net.linear("decoder.attn.attn", rows)
    hidden = [np.concatenate([last[0][0], last[1][0]])]

    def step(index: int) -> np.ndarray:
        context = softmax(keys @ hidden[0]) @ rows
        x = np.concatenate([context, net["decoder.character_embedding.weight"][index]])
        hidden[0], _ = net.cell("decoder.lstm.", "_l0", x, net.zeros("decoder.lstm.", "_l0"))
        return net.linear("decoder.linear", hidden[0])

    return step


def tutorial(weights: Weights, source: Sequence[int]) -> Step:
    net = Network(weights)
    rows, (state,) = net.sequence("encoder.gru.", net["encoder.embedding.weight"][list(source)], ("",), 1)
    states = [state]

    def step(index: int) -> np.ndarray:
        x = net["decoder.embedding.weight"][index]
        if "decoder.attention.Wa.weight" in net.weights:
            query, keys = (
                net.linear(f"decoder.attention.{name}", of) for name, of in (("Wa", states[0][0]), ("Ua", rows))
            )
            scores = net.linear("decoder.attention.Va", np.tanh(query + keys))[:, 0]
            x = np.concatenate([x, softmax(scores) @ rows])
        else:
            x = np.maximum(x, 0)
        states[0] = net.cell("decoder.gru.", "_l0", x, states[0])
        return net.linear("decoder.out", states[0][0])

    return step


def opennmt(weights: Weights, source: Sequence[int], layers: int = 2) -> Step:
    net, embedding = Network(weights), "embeddings.make_embedding.emb_luts.0.weight"
    ends = ("", "_reverse") if "encoder.rnn.weight_ih_l0_reverse" in weights else ("",)
    rows, last = net.sequence("encoder.rnn.", net[f"encoder.{embedding}"][list(source)], ends, layers)
    feeds = "decoder.rnn.layers.0.weight_ih" in weights
    directions = [last[i : i + len(ends)] for i in range(0, len(last), len(ends))]
    states = [tuple(np.concatenate(parts) for parts in zip(*both)) for both in directions]
    fed = [np.zeros(len(states[0][0]))]

    def attend(hidden: np.ndarray) -> np.ndarray:
        if "decoder.attn.linear_out.weight" not in weights:
            return hidden
        query, additive = hidden, "decoder.attn.v.weight" in weights
        if additive:
            both = net.linear("decoder.attn.linear_query", hidden) + net.linear("decoder.attn.linear_context", rows)
            scores = net.linear("decoder.attn.v", np.tanh(both))[:, 0]
        else:
            if "decoder.attn.linear_in.weight" in weights:
                query = net.linear("decoder.attn.linear_in", hidden)
            scores = rows @ query
        joined = net.linear("decoder.attn.linear_out", np.concatenate([softmax(scores) @ rows, hidden]))
        return joined if additive else np.tanh(joined)

    def step(index: int) -> np.ndarray:
        x = net[f"decoder.{embedding}"][index]
        x = np.concatenate([x, fed[0]]) if feeds else x
        for layer in range(layers):
            prefix, end = (f"decoder.rnn.layers.{layer}.", "") if feeds else ("decoder.rnn.", f"_l{layer}")
            states[layer] = net.cell(prefix, end, x, states[layer])
            x = states[layer][0]
        fed[0] = attend(x)
        return net.linear("generator", fed[0])

    return step
