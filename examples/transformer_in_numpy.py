"""A transformer in NumPy, from text to translation: "Attention Is All You Need" (Vaswani et al. 2017), top to bottom.

    python examples/transformer_in_numpy.py "The children cannot go to school because of the rain."

The weights are those of a real model, the arithmetic is the paper's. There are no batches, no caches, no beams: what
fastattn adds for speed is left out, and the translation is the same. Arrays carry their axes in their names:
T target positions, S source positions, N either, D width of the model, H heads, K width of a head, V vocabulary.
"""

import sys

import numpy as np

from fastattn import weights
from fastattn.ops import reference as ops
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.text.translation import TranslationTokenizer
from fastattn.weights.download.pull import pull

MOST_TOKENS = 256


class Transformer:
    """Encoder and decoder of a checkpoint whose norms follow its sublayers, as the paper's do (post-norm)."""

    def __init__(self, checkpoint: Checkpoint):
        self.encoder, self.decoder = checkpoint.spec.encoder, checkpoint.spec.decoder
        self.tokenizer = TranslationTokenizer(checkpoint.text)
        tensors = checkpoint.tensors.items()  # float32, or int8 with a scale for each row
        self.tensors = {name: one if isinstance(one, np.ndarray) else one.float32() for name, one in tensors}

    # What all layers are made of

    def linear(self, name: str, x_ND: np.ndarray, activation: str = "none") -> np.ndarray:
        """activation(x W' + b)."""
        bias_F = self.tensors.get(f"{name}.bias")
        return ops.linear(x_ND, ops.pack_linear(self.tensors[f"{name}.weight"], bias_F), activation)

    def add_and_norm(self, name: str, x_ND: np.ndarray, sublayer_ND: np.ndarray, stack: StackSpec) -> np.ndarray:
        """LayerNorm(x + Sublayer(x)), the residual connection around every sublayer (section 3.1)."""
        weight_D, bias_D = self.tensors[f"{name}.norm.weight"], self.tensors[f"{name}.norm.bias"]
        return ops.layer_norm(x_ND + sublayer_ND, weight_D, bias_D, stack.norms.epsilon)

    def embed(self, name: str, ids_N: np.ndarray, stack: StackSpec) -> np.ndarray:
        """Rows of the embedding matrix, times sqrt(D), plus the encoding of their positions (sections 3.4, 3.5)."""
        table_PD = self.tensors.get(f"{name}.positions")
        if table_PD is None:
            table_PD = positional_encoding(len(ids_N), stack.width, stack.positions.start)
        positions_N = np.arange(len(ids_N))
        return ops.embed(ids_N, self.tensors[f"{name}.embedding.weight"], stack.embedding_scale, positions_N, table_PD)

    def feed_forward(self, layer: str, x_ND: np.ndarray, stack: StackSpec) -> np.ndarray:
        """The position-wise feed-forward network (section 3.3): each row by itself, through a wider layer."""
        inner_NF = self.linear(f"{layer}.feed_forward.inner", x_ND, stack.feed_forward.activation)
        outer_ND = self.linear(f"{layer}.feed_forward.outer", inner_NF)
        return self.add_and_norm(f"{layer}.feed_forward", x_ND, outer_ND, stack)

    def self_attention(self, layer: str, x_ND: np.ndarray, stack: StackSpec, causal: bool) -> np.ndarray:
        """Every row looks at all rows of its sequence; in a decoder (causal) only at itself and those before it."""
        query_ND, key_ND, value_ND = np.split(self.linear(f"{layer}.self_attention.qkv", x_ND), 3, axis=1)
        attended_ND = multi_head_attention(query_ND, key_ND, value_ND, stack.attention.heads, causal)
        output_ND = self.linear(f"{layer}.self_attention.output", attended_ND)
        return self.add_and_norm(f"{layer}.self_attention", x_ND, output_ND, stack)

    # The encoder: once for a source text

    def encode(self, ids_S: np.ndarray) -> np.ndarray:
        """memory_SD: what the source's tokens mean beside each other."""
        x_SD = self.embed("encoder", ids_S, self.encoder)
        for number in range(self.encoder.layers):
            layer = f"encoder.layers.{number}"
            x_SD = self.self_attention(layer, x_SD, self.encoder, causal=False)
            x_SD = self.feed_forward(layer, x_SD, self.encoder)
        return x_SD

    # The decoder: once for each token of the translation

    def decode(self, ids_T: np.ndarray, memory_SD: np.ndarray) -> np.ndarray:
        """The probability of each token of the vocabulary to be the next one."""
        x_TD = self.embed("decoder", ids_T, self.decoder)
        for number in range(self.decoder.layers):
            layer = f"decoder.layers.{number}"
            if self.decoder.recurrence is None:
                x_TD = self.self_attention(layer, x_TD, self.decoder, causal=True)
            else:
                x_TD = self.recurrence(layer, x_TD)
            x_TD = self.cross_attention(layer, x_TD, memory_SD)
            x_TD = self.feed_forward(layer, x_TD, self.decoder)
        logits_V = self.linear("decoder.projection", x_TD[-1:])[0]
        return ops.softmax(logits_V[None])[0]

    def cross_attention(self, layer: str, x_TD: np.ndarray, memory_SD: np.ndarray) -> np.ndarray:
        """Every target row looks at the whole source: the paper's encoder-decoder attention (section 3.2.3)."""
        query_TD = self.linear(f"{layer}.cross_attention.query", x_TD)
        key_SD, value_SD = np.split(self.linear(f"{layer}.cross_attention.key_value", memory_SD), 2, axis=1)
        attended_TD = multi_head_attention(query_TD, key_SD, value_SD, self.decoder.attention.heads)
        output_TD = self.linear(f"{layer}.cross_attention.output", attended_TD)
        return self.add_and_norm(f"{layer}.cross_attention", x_TD, output_TD, self.decoder)

    def recurrence(self, layer: str, x_TD: np.ndarray) -> np.ndarray:
        """What small, fast models have in place of the decoder's self-attention: a recurrent unit (SSRU, Kim 2019).

        The cell of each row is a mixture of the cell before it and of the row: c_t = f_t c_t-1 + (1 - f_t) W x_t.
        """
        wx_TD, forget_TD = np.split(self.linear(f"{layer}.ssru.input", x_TD), 2, axis=1)
        forget_TD = 1 / (1 + np.exp(-forget_TD))
        cell_D, output_TD = np.zeros_like(x_TD[0]), np.empty_like(x_TD)
        for t in range(len(x_TD)):
            cell_D = forget_TD[t] * cell_D + (1 - forget_TD[t]) * wx_TD[t]
            output_TD[t] = np.maximum(cell_D, 0)
        return self.add_and_norm(f"{layer}.ssru", x_TD, output_TD, self.decoder)

    # From text to text

    def translate(self, text: str) -> str:
        """Greedy search: the most probable token each time, until that is the end of the sentence."""
        tokens = self.tokenizer.source_tokens(text)  # ["▁The", "▁children", "▁cannot", ...]
        memory_SD = self.encode(self.tokenizer.source_ids(tokens))
        ids = self.tokenizer.target_ids([])  # the token that starts a translation, and no other yet
        if self.decoder.start_from_zero_embedding:
            ids = [-1]  # whose embedding is zeros
        while ids[-1] != self.tokenizer.end_id and len(ids) <= MOST_TOKENS:
            ids.append(int(self.decode(np.array(ids), memory_SD).argmax()))
        return self.tokenizer.join(self.tokenizer.target_surfaces(ids[1:]))


def multi_head_attention(
    query_TD: np.ndarray, key_SD: np.ndarray, value_SD: np.ndarray, heads: int, causal: bool = False
) -> np.ndarray:
    """softmax(Q K' / sqrt(K)) V of each head, side by side (equation 1, section 3.2.2); with causal, T is S."""
    query_HTK, key_HSK, value_HSK = (
        x_ND.reshape(len(x_ND), heads, -1).transpose(1, 0, 2) for x_ND in (query_TD, key_SD, value_SD)
    )
    scores_HTS = query_HTK @ key_HSK.transpose(0, 2, 1) / np.float32(np.sqrt(query_HTK.shape[2]))
    if causal:
        scores_HTS[:, np.triu(np.ones(scores_HTS.shape[1:], bool), k=1)] = -np.inf
    weights_HTS = ops.softmax(scores_HTS.reshape(-1, len(key_SD))).reshape(scores_HTS.shape)
    return (weights_HTS @ value_HSK).transpose(1, 0, 2).reshape(query_TD.shape)


def positional_encoding(positions: int, width: int, first: int) -> np.ndarray:
    """Sines, then cosines, whose wavelengths grow from 2 pi to 10000 * 2 pi (section 3.5, as tensor2tensor has it)."""
    rate_K = 10000.0 ** (-np.arange(width // 2) / (width // 2 - 1))
    angle_PK = np.arange(first, first + positions)[:, None] * rate_K
    return np.concatenate([np.sin(angle_PK), np.cos(angle_PK)], axis=1).astype(np.float32)


if __name__ == "__main__":
    model = Transformer(weights.read(pull("en-pt")))
    for line in sys.argv[1:] or ["The children cannot go to school because of the rain."]:
        print(model.translate(line))
