"""Recurrent stacks as plain data: LSTM and GRU layers, their attention over a memory, the readout for a projection.

Sequence to sequence by recurrent networks: Sutskever 2014 and Cho 2014 without attention, Bahdanau 2015 and Luong 2015
with attention, Vinyals 2015 with attention's weights as output. ``spec.tensors`` has their tensors.
"""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ACTIVATIONS, check_counts, check_known
from fastattn.system.records import dataclass

# Cell -> (its gates, the numbers of its state for each unit). The rows of weights are those of the gates in turn:
# lstm              input, forget, cell, output (Hochreiter 1997, Gers 2000), as PyTorch has them
# gru               reset, update, new; reset multiplies the product with the state and the product's bias (PyTorch)
# gru_reset_before  the same gates; reset multiplies the state before the product (Cho 2014)
CELLS = {"lstm": (4, 2), "gru": (3, 1), "gru_reset_before": (3, 1)}
# dot: q . k. general: q . W k. additive: v . tanh(W q + U k). multi-head: scaled dot products of projected heads.
MEMORY_SCORES = ("dot", "general", "additive", "multi-head")
READOUTS = ("hidden", "context", "embedding")
# A decoder's first state: zeros, the encoder's last states s, or activation(W s + b).
INITIAL_STATES = ("zero", "encoder", "bridge")


@dataclass(frozen=True)
class MemoryAttention:
    """A recurrent decoder's attention over the encoder's rows.

    after       how many layers come before the attention: the last one's state is the query, and the context joins the
                next layer's input, or the readout; 0: the query is the stack's last state in the step before
    predictive  above 0: the window lies around a position that a layer of this width predicts from the state, with a
                Gaussian of deviation D / 2
    hard        the context is the value of a single key (Xu 2015, section 4.1): the most probable key or, where tokens
                are sampled, a key that is drawn by its weight
    """

    score: str
    after: int
    width: int = 0  # of queries and keys, for additive and multi-head scores
    heads: int = 1
    window: int = 0  # D > 0: local attention (Luong 2015, section 3.2), to keys at most D from the step's number
    predictive: int = 0
    hard: bool = False

    def __post_init__(self) -> None:
        check_known("score of a recurrent decoder's attention", self.score, MEMORY_SCORES)
        check_counts(0, after=self.after, width=self.width, window=self.window, predictive=self.predictive)
        check_counts(1, heads=self.heads)
        if self.projects_query != bool(self.width) or self.width % self.heads:
            heads = f"{self.score} attention of {self.heads} heads"
            raise CheckpointError(f"{heads} cannot have queries of width {self.width}")
        if self.heads > 1 and self.score != "multi-head":
            raise CheckpointError(f"{self.score} attention has one head, not {self.heads}")
        if (self.predictive and not self.window) or (self.hard and self.heads > 1):
            raise CheckpointError("predicted positions go with a window, hard attention with one head")

    @property
    def projects_query(self) -> bool:
        return self.score in ("additive", "multi-head")


@dataclass(frozen=True)
class Readout:
    """The rows of a stack: x, the parts side by side in order; with a width, activation(W x + b)."""

    parts: tuple[str, ...] = ("hidden",)
    width: int = 0
    activation: str = "none"

    def __post_init__(self) -> None:
        for part in self.parts:
            check_known("part of a readout", part, READOUTS)
        check_counts(0, width=self.width)
        check_known("activation", self.activation, ("none", *ACTIVATIONS))


@dataclass(frozen=True)
class RecurrentSpec:
    """An encoder's or a decoder's stack of recurrent layers of H ``units`` in each direction.

    points   decoder: its rows are the logarithms of the weights of its attention (Vinyals 2015). The words of the
             vocabulary are the encoder's rows; the last columns of a row, the encoder's input, embed the word
    carries  whether a layer continues from its last state; else a step starts from zeros, and only the attention reads
             the last state
    """

    kind = "recurrent"
    cell: str
    layers: int
    units: int
    vocabulary: int  # 0: the inputs are rows of ``embedding_width`` numbers
    embedding_width: int
    bidirectional: bool = False  # encoder: layers read both ways; a row has the forward state, then the backward one
    backward: bool = False  # encoder: the sentence is read from its end (Sutskever 2014)
    readout: Readout = Readout()
    memory: int = 0  # decoder: the width of the encoder's rows
    memory_states: int = 0  # decoder: numbers of the encoder's last states; of each layer h, then c, both ways
    initial: str = "zero"
    initial_activation: str = "none"
    attention: MemoryAttention | None = None
    feeds: bool = False  # decoder: the last step's readout joins the first layer's input (Luong 2015, section 3.3)
    points: bool = False
    carries: bool = True
    projection_bias: bool = True
    max_positions = 0

    def __post_init__(self) -> None:
        check_known("recurrent cell", self.cell, CELLS)
        check_known("initial state", self.initial, INITIAL_STATES)
        check_known("activation of the initial state", self.initial_activation, ("none", *ACTIVATIONS))
        check_counts(1, layers=self.layers, units=self.units, embedding_width=self.embedding_width)
        check_counts(0, vocabulary=self.vocabulary, memory=self.memory, memory_states=self.memory_states)
        attention = self.attention
        if attention is None and "context" in self.readout.parts:
            raise CheckpointError("a readout of a context needs an attention")
        if attention is not None and attention.after > self.layers:
            raise CheckpointError(f"attention after layer {attention.after}, but there are {self.layers} layers")
        if attention is not None and attention.score == "dot" and self.memory != self.units:
            raise CheckpointError(f"dot products of states of {self.units} and rows of {self.memory} numbers")
        if self.points and (attention is None or attention.after != self.layers or self.readout != Readout()):
            raise CheckpointError("a decoder that points has attention after its layers, and no other readout")
        if self.initial == "encoder" and self.memory_states != self.states:
            firsts = f"the decoder's first states are {self.states} numbers"
            raise CheckpointError(f"{firsts}, the encoder's last ones {self.memory_states}")

    @property
    def cross_attention(self) -> bool:
        """Whether the stack is a decoder behind an encoder, with attention or without."""
        return self.memory > 0

    @property
    def gates(self) -> int:
        return CELLS[self.cell][0]

    @property
    def directions(self) -> int:
        return 1 + self.bidirectional

    @property
    def hidden(self) -> int:
        """The width of a row of hidden states."""
        return self.directions * self.units

    @property
    def states(self) -> int:
        """How many numbers the states of all layers have, h and for some cells c."""
        return self.layers * self.hidden * CELLS[self.cell][1]

    @property
    def context(self) -> int:
        if self.attention is None:
            return 0
        return self.attention.width if self.attention.score == "multi-head" else self.memory

    @property
    def readout_inputs(self) -> int:
        widths = {"hidden": self.hidden, "context": self.context, "embedding": self.embedding_width}
        return sum(widths[part] for part in self.readout.parts)

    @property
    def width(self) -> int:
        return self.vocabulary if self.points else self.readout.width or self.readout_inputs

    def inputs(self, layer: int) -> int:
        """The width of a layer's input: embedding and fed readout, or the layer below; the context too if it joins."""
        context_joins = self.attention is not None and self.attention.after == layer
        width = self.hidden if layer else self.embedding_width + self.feeds * self.width
        return width + (self.context if context_joins else 0)

    def check_role(self, name: str) -> None:
        """Raise CheckpointError unless the stack may be the ``encoder`` or ``decoder`` of a model."""
        if name == "encoder" and (self.memory or self.attention is not None or self.feeds or not self.carries):
            raise CheckpointError("a recurrent encoder has no memory to attend to, and feeds nothing back")
        if name == "decoder" and (self.bidirectional or self.backward or not self.memory):
            raise CheckpointError("a recurrent decoder reads forward, behind an encoder")
