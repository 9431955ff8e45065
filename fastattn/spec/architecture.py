"""Architectures as plain data, which loaders write and models read; ``spec.tensors`` has their tensors."""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from fastattn.errors import CheckpointError
from fastattn.system.records import dataclass

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "gelu_sigmoid", "swish", "tanh", "sigmoid", "relu_squared", "mish")
NORMS = ("layer", "rms")
# "sinusoid": sines, then cosines, of p + start for position p; exponents are divided by d/2 - 1 (tensor2tensor).
POSITIONS = ("none", "table", "sinusoid", "rotary", "alibi", "relative", "disentangled")
# Replacements of a decoder's self-attention: a simpler simple recurrent unit (Kim 2019), or the average attention
# network (Zhang 2018).
RECURRENCES = ("ssru", "average-attention")
# What a head takes of a sentence: the first row, the last row, the mean of all rows, or each row.
HEAD_ROWS = ("first", "last", "mean", "each")
MAX_TOKEN_TYPES = 16  # no model has more; a table in memory has the sum of each position and each token type
MAX_INT32 = 2**31 - 1  # the greatest distance between positions
STRETCHES = ("yarn", "llama3", "longrope")  # kinds of Stretch


def check_known(label: str, name: str, choices: Iterable[str]) -> None:
    """Raise a CheckpointError that lists ``choices`` unless ``name`` is one of them."""
    if name not in choices:
        raise CheckpointError(f"unknown {label} {name!r}; known: {', '.join(choices)}")


def check_counts(least: int, **counts: int) -> None:
    expected = f"be at least {least}" if least else "not be negative"
    for name, count in counts.items():
        if count < least:
            raise CheckpointError(f"{name} should {expected}, is {count}")


def check_cap(name: str, cap: float) -> None:
    if not (cap == 0 or 1e-30 < cap < 1e30):
        raise CheckpointError(f"{name} should be 0 or between 1e-30 and 1e30, is {cap:g}")


def check_layers(action: str, numbers: Sequence[int], layers: int) -> None:
    """Raise CheckpointError unless ``numbers``, of layers that should do ``action``, are 0 to ``layers`` - 1."""
    for number in numbers:
        if not 0 <= number < layers:
            raise CheckpointError(f"layer {number} should {action}, but there are {layers} layers")


@dataclass(frozen=True)
class AttentionSpec:
    """Attention, the same in all layers: H heads, G key heads, K the width of a head."""

    heads: int
    key_heads: int
    head_width: int
    query_scale: float | None = None  # of the scores; None: 1 / sqrt(K)
    scale_by_layer: bool = False  # layer n, counted from 1, has the scale divided by n (GPT-2)
    head_norms: bool = False  # root mean square norms of each query's and key's head (Henry 2020), before positions
    norms_after_positions: bool = False  # head_norms come after positions (HunYuan)
    norms_of_all_heads: bool = False  # head_norms are one norm over all queries and one over all keys (OLMo 2)
    softcap: float = 0.0  # a scaled score s becomes softcap * tanh(s / softcap) (Gemma Team 2024); 0: no cap

    def __post_init__(self) -> None:
        check_counts(1, heads=self.heads, key_heads=self.key_heads, head_width=self.head_width)
        check_cap("softcap", self.softcap)
        if self.heads % self.key_heads:
            raise CheckpointError(f"{self.heads} heads cannot share {self.key_heads} key heads evenly")
        if self.query_scale is not None and not abs(self.query_scale) < 1e30:
            raise CheckpointError(f"the scores' scale should be below 1e30, is {self.query_scale:g}")

    def of_layer(self, number: int) -> "AttentionSpec":
        if not self.scale_by_layer:
            return self
        scale = self.head_width**-0.5 if self.query_scale is None else self.query_scale
        return replace(self, query_scale=scale / (number + 1), scale_by_layer=False)

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """The width of all keys together, and of all values."""
        return self.key_heads * self.head_width


@dataclass(frozen=True)
class FeedForwardSpec:
    """Two linear layers, an activation between them; gated: a third layer's output multiplies it (Shazeer 2020)."""

    inner_width: int
    activation: str = "relu"
    gated: bool = False

    def __post_init__(self) -> None:
        check_counts(1, inner_width=self.inner_width)
        check_known("activation", self.activation, ACTIVATIONS)


@dataclass(frozen=True)
class NormSpec:
    """The kind of norms and where they stand: before or after each sublayer, after all blocks, after the embedding."""

    kind: str = "layer"
    epsilon: float = 1e-5
    biases: bool = True  # of layer norms
    before: bool = True  # x + f(norm(x)), else norm(x + f(x))
    final: bool = True
    embedding: bool = False
    first: bool = True  # False: the embedding's norm serves the first block's self-attention; needs ``before``
    output: bool = False  # x + norm(f(norm(x))), a norm of a sublayer's output too (Ding 2021); needs ``before``
    input: bool = True  # False: x + norm(f(x)), a norm of a sublayer's output alone (OLMo 2); needs ``output``

    def __post_init__(self) -> None:
        check_known("norm", self.kind, NORMS)
        if not self.before and (self.output or not self.first):
            raise CheckpointError("norms after each sublayer go with no other norms of sublayers")
        if not (self.input or self.output):
            raise CheckpointError("a sublayer has a norm of its input, its output or both")


@dataclass(frozen=True)
class Stretch:
    """Rotary positions for texts longer than in training: slow pairs of dimensions rotate slower still."""

    kind: str  # from STRETCHES: YaRN (Peng 2023, section 3.2), Llama 3's, LongRoPE (Ding 2024) with a divisor a pair
    factor: float  # divides the rotation of slow pairs
    length: int  # positions of the longest texts in training
    slow: float  # pairs with fewer rotations within ``length`` get the whole factor
    fast: float  # pairs with more rotations get none of the factor; pairs between ``slow`` and ``fast`` get a part
    whole: bool = True  # yarn: the range of pairs that get a part of the factor is rounded outwards to whole numbers
    size: float = 1.0  # multiplies sines and cosines
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_known("stretch of rotary positions", self.kind, STRETCHES)
        numbers = (self.factor, self.length, self.slow, self.fast, self.size, *self.divisors)
        if not (all(1e-30 < number < 1e30 for number in numbers) and self.slow < self.fast):
            raise CheckpointError(
                f"stretched rotary positions need numbers above zero and below 1e30, the slow turns fewer than the "
                f"fast, got factor {self.factor:g}, length {self.length:g}, turns {self.slow:g} and {self.fast:g}, "
                f"size {self.size:g}"
            )


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su 2021) on the first ``width`` of a head's dimensions."""

    width: int
    base: float = 10000.0
    interleaved: bool = True  # pairs (0,1), (2,3), ... ; else a pair has a dimension of each half
    scale: float = 1.0  # divides positions (linear scaling)
    stretch: Stretch | None = None

    def __post_init__(self) -> None:
        kind, divisors = ("", ()) if self.stretch is None else (self.stretch.kind, self.stretch.divisors)
        if kind == "longrope" and len(divisors) != self.width // 2:
            raise CheckpointError(f"LongRoPE needs {self.width // 2} factors, got {len(divisors)}")
        if kind == "yarn" and self.base <= 1:
            raise CheckpointError(f"stretched rotary positions need a base above 1, got {self.base:g}")
        if not all(1e-30 < number < 1e30 for number in (self.base, self.scale)):
            pair = f"{self.base:g} and {self.scale:g}"
            raise CheckpointError(f"rotary positions need a base and a scale above zero and below 1e30, got {pair}")


@dataclass(frozen=True)
class LocalSpec:
    """Layers whose rows see a window of keys (Beltagy 2020): ``before`` the row and, in an encoder, ``after`` it."""

    layers: tuple[int, ...]
    before: int
    after: int
    rotary: Rotary | None = None  # of these layers; None: the rotary positions of the stack

    def __post_init__(self) -> None:
        check_counts(0, before=self.before, after=self.after, **{"a local layer": min(self.layers, default=0)})
        if max(self.before, self.after) > MAX_INT32:
            raise CheckpointError(f"local layers should reach at most {MAX_INT32} keys")


@dataclass(frozen=True)
class Alibi:
    """Attention with linear biases (Press 2022): slope_h * (s - t), or slope_h * s."""

    positive_positions: bool = False  # slope_h * s
    scaled: bool = False  # the bias is divided by sqrt(K), as scores are
    symmetric: bool = False  # -slope_h * |s - t|

    def __post_init__(self) -> None:
        if self.symmetric and self.positive_positions:
            raise CheckpointError("ALiBi that counts from the start has no symmetric form")


@dataclass(frozen=True)
class Disentangled:
    """Attention to learned rows of distances (He 2021, section 3.1), by one term of the score or both."""

    to_position: bool = True  # tokens' queries . distances' keys
    to_content: bool = True  # tokens' keys . distances' queries
    shared: bool = False  # the projections of tokens' queries and keys project distances too
    norm: bool = False  # the table of distances has a norm

    def __post_init__(self) -> None:
        if not (self.to_position or self.to_content):
            ways = "from content to positions, or from positions to content"
            raise CheckpointError(f"disentangled attention looks {ways}")


@dataclass(frozen=True)
class Convolution:
    """norm(first block(x) + activation(convolution of x)), x an encoder's embedded rows (He 2021, larger sizes)."""

    width: int  # of the kernel: how many rows it sees, an odd number
    activation: str = "tanh"

    def __post_init__(self) -> None:
        check_counts(1, width_of_the_convolution=self.width)
        check_known("activation", self.activation, ACTIVATIONS)
        if self.width % 2 == 0:
            width = f"which a width of {self.width} is not"
            raise CheckpointError(f"a convolution sees as many rows before as after, {width}")


@dataclass(frozen=True)
class PositionSpec:
    """Positions of a stack; the fields for other kinds than ``kind`` keep their defaults."""

    kind: str = "sinusoid"
    limit: int = 0  # the most positions; 0: no limit
    start: int = 1  # sinusoid: the number that encodes the first position
    rotary: Rotary | None = None  # None: on the whole head
    layers_without: tuple[int, ...] = ()  # rotary: the layers that have no positions (Yang 2025)
    alibi: Alibi | None = None
    buckets: int = 0  # relative: of distances (T5); disentangled: of distances each way, 0: a bucket for each distance
    max_distance: int = 0  # about where the last bucket begins; all farther distances share a bucket
    of_each_layer: bool = False  # relative: each layer has buckets of its own (UMT5); else all layers share them
    learned: bool = False  # relative, disentangled: a table is added to the embedding too (MPNet)
    padding: int = -1  # an encoder's padding id, which has the table's first row, not a position (RoBERTa); -1: none
    disentangled: Disentangled | None = None  # None: the defaults of ``Disentangled``

    def __post_init__(self) -> None:
        check_known("positions", self.kind, POSITIONS)
        check_counts(0, start=self.start)
        if self.max_distance > MAX_INT32:
            raise CheckpointError(f"max_distance should be at most {MAX_INT32}")
        if self.of_each_layer and self.kind != "relative":
            raise CheckpointError(f"each layer has buckets of its own where positions are relative, not {self.kind}")
        is_valid = self.buckets + 2 < 2 * self.max_distance and (self.buckets > 1 or self.buckets == 0)
        if self.kind == "disentangled" and not is_valid:
            raise CheckpointError(
                f"disentangled attention needs a greatest distance and, if any, at least 2 buckets, half of them below "
                f"it, got distance {self.max_distance} and {self.buckets} buckets"
            )

    @property
    def has_table(self) -> bool:
        """Whether learned positions are added to the embedding."""
        return self.kind == "table" or (self.kind in ("relative", "disentangled") and self.learned)

    @property
    def table_rows(self) -> int:
        return self.limit + (self.padding >= 0)

    @property
    def inside_attention(self) -> bool:
        """Whether positions act on queries, keys or scores, not on the embedding."""
        return self.kind in ("rotary", "alibi", "relative", "disentangled")

    @property
    def distance_rows(self) -> int:
        """disentangled: how many rows the table of distances has, half of them for keys behind the query."""
        return 2 * (self.buckets or self.max_distance)


@dataclass(frozen=True)
class RecurrenceSpec:
    """The replacement of a decoder's self-attention; all fields but ``kind`` are for average attention."""

    kind: str
    inner_width: int = 0  # A, of the feed-forward layers behind the average; 0: none
    activation: str = "swish"  # of those feed-forward layers
    gates: bool = True  # input and average are gated and added; else the result is the average alone

    def __post_init__(self) -> None:
        check_known("recurrence", self.kind, RECURRENCES)
        check_known("activation of a recurrence", self.activation, ACTIVATIONS)
        check_counts(0, inner_width=self.inner_width)


@dataclass(frozen=True)
class AlignmentSpec:
    """The attention that is returned as alignment: the mean of a layer's first heads; layer -1 is the last."""

    layer: int = -1
    heads: int = 1  # 0: all


@dataclass(frozen=True)
class StackSpec:
    """An encoder's or a decoder's stack of attention blocks, of width D.

    Another kind of stack has a class of its own, with kind (a name in ``STACKS`` of ``spec.tensors`` and
    ``models.stacks``), layers, width, vocabulary, max_positions, cross_attention, projection_bias and ``check_role``.
    """

    kind = "attention"
    layers: int
    width: int
    vocabulary: int  # 0: the inputs are not ids
    attention: AttentionSpec
    feed_forward: FeedForwardSpec
    norms: NormSpec = NormSpec()
    positions: PositionSpec = PositionSpec()
    recurrence: RecurrenceSpec | None = None  # of a decoder; None: self-attention
    biases: bool = True  # of the linear layers
    embedding_scale: float = 1.0
    start_from_zero_embedding: bool = False  # decoder: the first input embeds to zero
    token_types: int = 0  # how many have an embedding; 0: none
    embedding_width: int = 0  # of a table whose rows a linear layer projects to width D (Lan 2020); 0: D
    norm_after_projection: bool = False  # the embedding's norm follows its projection, which then has no bias
    convolution: Convolution | None = None
    causal: bool = False  # encoder: rows see only themselves and rows before them
    local: LocalSpec | None = None
    parallel: bool = False  # a block is x + attention(norm(x)) + feed-forward(norm(x)) (Wang and Komatsuzaki 2021)
    cross_attention: bool = False
    projection_bias: bool = False
    output_scale: float = 1.0  # multiplies the hidden state before the projection
    output_cap: float = 0.0  # a logit z becomes output_cap * tanh(z / output_cap) (Gemma Team 2024); 0: no cap
    alignment: AlignmentSpec = AlignmentSpec()

    def __post_init__(self) -> None:
        check_counts(1, layers=self.layers, width=self.width)
        check_counts(0, vocabulary=self.vocabulary, token_types=self.token_types, embedding_width=self.embedding_width)
        if self.token_types > MAX_TOKEN_TYPES:
            raise CheckpointError(f"token_types should be at most {MAX_TOKEN_TYPES}, is {self.token_types}")
        if self.positions.kind == "disentangled" and (self.attention.heads != self.attention.key_heads or self.causal):
            raise CheckpointError("disentangled attention looks both ways, and each of its heads has keys of its own")
        check_cap("output_cap", self.output_cap)
        check_layers("be local", self.local.layers if self.local is not None else (), self.layers)
        check_layers("have no positions", self.positions.layers_without, self.layers)
        if self.parallel and (not self.norms.before or self.norms.output or self.cross_attention):
            raise CheckpointError("parallel sublayers have norms before them alone, and no cross-attention")
        if self.norms.output and (self.cross_attention or self.recurrence is not None):
            raise CheckpointError("norms of outputs go with self-attention alone")
        if self.recurrence is not None and self.positions.inside_attention:
            kind = self.recurrence.kind
            raise CheckpointError(f"{self.positions.kind} positions act inside an attention, {kind} has none")

    @property
    def max_positions(self) -> int:
        return self.positions.limit

    def check_role(self, name: str) -> None:
        """Raise CheckpointError unless the stack may be the ``encoder`` or ``decoder`` of a model."""
        if name == "encoder":
            if self.recurrence is not None:
                raise CheckpointError(f"an encoder looks both ways by self-attention, not by {self.recurrence.kind}")
            return
        if self.causal or (self.local is not None and self.local.after):
            raise CheckpointError("a decoder is causal by itself, and its local layers look back alone")
        if self.local is not None and self.recurrence is not None:
            raise CheckpointError(f"local layers have an attention, {self.recurrence.kind} has none")
        if self.positions.padding >= 0:
            raise CheckpointError("an id that does not count among the positions is an encoder's")
        if self.positions.kind == "disentangled" or self.convolution is not None:
            raise CheckpointError("disentangled attention and convolutions are an encoder's")


@dataclass(frozen=True)
class HeadSpec:
    """The layers behind an encoder's last hidden states x: perhaps norm(activation(linear(x))), then a linear layer."""

    rows: str  # which rows of a sentence the head takes, a name in HEAD_ROWS
    outputs: int  # labels, a vocabulary, or a vector's width
    bias: bool = True  # of the last layer
    inner_width: int = 0  # of the first layer; 0: there is no first layer, activation or norm
    inner_bias: bool = True
    activation: str = "tanh"
    norm: NormSpec | None = None  # only its kind, epsilon and biases count
    padding: int = -1  # rows "last": the id that does not count at a text's end

    def __post_init__(self) -> None:
        check_known("rows of a head", self.rows, HEAD_ROWS)
        check_known("activation of a head", self.activation, ACTIVATIONS)
        check_counts(1, outputs=self.outputs)
        check_counts(0, inner_width=self.inner_width)
        if self.norm is not None and not self.inner_width:
            raise CheckpointError("a head has a norm after its first layer, not without one")


@dataclass(frozen=True)
class ModelSpec:
    """An architecture: its kind, a name in ``fastattn.models.kinds.MODELS``, its stacks, of any kinds, and a head."""

    kind: str
    encoder: StackSpec | None = None
    decoder: StackSpec | None = None
    head: HeadSpec | None = field(default=None, kw_only=True)  # of an encoder alone
    images: StackSpec | None = field(default=None, kw_only=True)  # beside an encoder of texts (Radford 2021)

    def __post_init__(self) -> None:
        encoder, decoder = self.encoder, self.decoder
        if self.head is not None and (encoder is None or decoder is not None):
            raise CheckpointError("a head follows an encoder without a decoder")
        if encoder is None and decoder is None:
            raise CheckpointError(f"{self.kind} has neither an encoder nor a decoder")
        for name, stack in self.stacks.items():
            stack.check_role(name)
        if decoder is None or not decoder.cross_attention:
            return
        if encoder is None:
            raise CheckpointError("cross-attention needs an encoder")
        memory_width = getattr(decoder, "memory", decoder.width)
        if memory_width != encoder.width:
            raise CheckpointError(f"the decoder takes rows of width {memory_width}, the encoder gives {encoder.width}")

    @property
    def stacks(self) -> dict[str, StackSpec]:
        """The stacks by name, which is also the prefix of their tensors' names."""
        stacks = {"encoder": self.encoder, "decoder": self.decoder, "images": self.images}
        return {name: stack for name, stack in stacks.items() if stack is not None}
