"""What an architecture is, as plain data: the one description that loaders write and models read.

``tensors`` has the names and shapes of what a checkpoint of it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError, InputError
from fastattn.warned import warn

# Of the products. "intgemm" is int8 with the checkpoint's own scales of inputs, where it has them, in place of each
# row's: what Marian computes, a little farther from float32. "auto" is int8 where the checkpoint holds int8, else
# float32.
PRECISIONS = ("float32", "bfloat16", "int8", "intgemm", "auto")
# CTranslate2's other names -> what they run as, never less exact than what was asked for: bfloat16 has 8 significant
# bits, float16 has 11. What is not a product is float32 here, so those in _MORE_EXACT are not quite what they say.
_FOREIGN_PRECISIONS = {
    "default": "auto",
    "float16": "float32",
    "int16": "float32",
    "int8_float32": "int8",
    "int8_float16": "int8",
    "int8_bfloat16": "int8",
}
_MORE_EXACT = ("float16", "int16", "int8_float16", "int8_bfloat16")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "gelu_sigmoid", "swish", "tanh", "sigmoid")
NORMS = ("layer", "rms")
# From a sentence's rows to one vector, by sentence-transformers' names; two of them are one.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# "sinusoid": position p is encoded as p + sinusoid_start, sines then cosines, exponent d/2 - 1 (tensor2tensor).
POSITIONS = ("none", "table", "sinusoid", "rotary", "alibi", "relative")
# How a decoder's block looks back at its own past: attention, a simpler simple recurrent unit (Kim 2019), or the
# average attention network (Zhang 2018).
AUTOREGRESSIONS = ("self-attention", "ssru", "average-attention")


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su 2021) on the first ``width`` of a head's dimensions."""

    width: int
    base: float = 10000.0
    interleaved: bool = True  # pairs (0,1), (2,3), ... ; else the halves are paired
    scale: float = 1.0  # positions are divided by it (linear scaling)


@dataclass(frozen=True)
class Alibi:
    """Attention with linear biases (Press 2022): slope_h * (s - t), or slope_h * s."""

    positive_positions: bool = False
    scaled: bool = False  # the bias is divided by sqrt(K) too


@dataclass(frozen=True)
class StackSpec:
    """An encoder's or a decoder's stack of blocks. D width, H heads, G key heads, K head width, F inner width."""

    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    inner_width: int
    vocabulary: int
    activation: str = "relu"
    gated: bool = False
    norm: str = "layer"
    norm_epsilon: float = 1e-5
    pre_norm: bool = True
    final_norm: bool = True
    embedding_norm: bool = False
    embedding_scale: float = 1.0
    positions: str = "sinusoid"
    max_positions: int = 0  # 0: no limit of its own
    sinusoid_start: int = 1  # what the sinusoids encode the first position as
    rotary: Rotary | None = None
    alibi: Alibi | None = None
    relative_buckets: int = 0
    relative_max_distance: int = 0
    query_scale: float | None = None  # None: 1 / sqrt(K)
    biases: bool = True  # of the linear layers
    norm_biases: bool = True
    start_from_zero_embedding: bool = False  # decoder: the first input embeds to zero
    autoregression: str = "self-attention"  # of a decoder
    average_inner_width: int = 0  # average attention: A of the feed-forward after the average; 0: none
    average_activation: str = "swish"  # of that feed-forward
    average_gates: bool = True  # input and average are weighed before they are added, else the average stands alone
    cross_attention: bool = False
    projection_bias: bool = False
    output_scale: float = 1.0  # multiplies the hidden state before the projection
    alignment_layer: int = -1  # whose cross-attention is "the attention"; negative counts from the end
    alignment_heads: int = 1  # the first so many heads are averaged; 0: all

    def __post_init__(self) -> None:
        for name, value, known in (
            ("activation", self.activation, ACTIVATIONS),
            ("average_activation", self.average_activation, ACTIVATIONS),
            ("norm", self.norm, NORMS),
            ("positions", self.positions, POSITIONS),
            ("autoregression", self.autoregression, AUTOREGRESSIONS),
        ):
            if value not in known:
                raise CheckpointError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        for name in ("layers", "width", "heads", "key_heads", "head_width", "inner_width", "vocabulary"):
            if getattr(self, name) < 1:
                raise CheckpointError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("average_inner_width", "sinusoid_start"):
            if getattr(self, name) < 0:
                raise CheckpointError(f"{name} should not be negative, is {getattr(self, name)}")
        if self.heads % self.key_heads:
            raise CheckpointError(f"{self.heads} heads cannot share {self.key_heads} key heads evenly")
        if self.autoregression != "self-attention" and self.positions not in ("none", "table", "sinusoid"):
            raise CheckpointError(f"{self.positions} positions act inside an attention, {self.autoregression} has none")


@dataclass(frozen=True)
class ModelSpec:
    """kind "encoder-decoder" (both stacks) or "encoder" (encoder only)."""

    kind: str
    encoder: StackSpec
    decoder: StackSpec | None = None

    def __post_init__(self) -> None:
        if self.encoder.autoregression != "self-attention":
            raise CheckpointError(f"an encoder's autoregression is self-attention, not {self.encoder.autoregression}")
        if self.decoder is not None and self.decoder.cross_attention and self.decoder.width != self.encoder.width:
            raise CheckpointError(
                f"the decoder takes rows of its own width {self.decoder.width}, the encoder gives {self.encoder.width}"
            )


@dataclass(frozen=True, eq=False)
class Shortlist:
    """A lexical shortlist: which target ids a sentence may choose from, by its source ids (int32 ids throughout).

    always     the ids that every sentence may choose
    starts_V1  where the ids of each source id start in ``targets``; [source vocabulary + 1]
    targets    the ids that a source id adds
    copied     whether a sentence may choose the ids of its own source too (a shared vocabulary)
    """

    always: np.ndarray
    starts_V1: np.ndarray
    targets: np.ndarray
    copied: bool = False


@dataclass(frozen=True)
class DecodingSettings:
    """How a checkpoint's own files want it to be searched, by the names of DecodingOptions; None: they do not say.

    suppress_sequences  ids
    forced_tokens       what every target begins with, behind the start token; they are no part of the translation
    not_followed        what else the files say and no search here can do, as a reader is to be told of it
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    word_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    min_decoding_length: int | None = None
    max_decoding_length: int | None = None
    max_length_factor: float | None = None
    sampling_topk: int | None = None
    sampling_topp: float | None = None
    sampling_temperature: float | None = None
    suppress_sequences: tuple[tuple[int, ...], ...] = ()
    forced_tokens: tuple[str, ...] = ()
    not_followed: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """What the files say, as DecodingOptions takes it."""
        apart = ("forced_tokens", "not_followed")
        return {name: value for name, value in vars(self).items() if name not in apart and value not in (None, ())}


@dataclass(frozen=True)
class TranslationText:
    """How a translation model's text becomes ids: vocabularies by surface, special tokens, sentencepiece files."""

    source_vocabulary: tuple[str, ...]
    target_vocabulary: tuple[str, ...]
    unk_token: str = "<unk>"
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"  # None: the caller's target prefix begins with it
    add_source_bos: bool = False
    add_source_eos: bool = False
    source_model: bytes | None = None  # a .spm file; None: tokens are separated by spaces
    target_model: bytes | None = None  # None: pieces are joined by the sentencepiece convention
    source_language: str = ""
    target_language: str = ""
    writes_unknowns: bool = True  # else <unk> is never chosen unless the caller wants it
    vocabulary_map: bytes | None = None  # CTranslate2's vmap.txt: source n-grams and the target tokens they make likely
    single_sentences: bool = False  # made for them: longer text is split at sentences unless the caller wants otherwise
    decoding: DecodingSettings = DecodingSettings()


@dataclass(frozen=True)
class EncoderText:
    """How an encoder's text becomes ids, and what happens to its rows afterwards (sentence-transformers' modules)."""

    tokenizer: bytes  # tokenizer.json
    max_length: int  # in ids, special ones included
    lowercase: bool = False
    pooling: tuple[str, ...] = ("mean",)  # several are concatenated
    include_prompt: bool = True  # whether the prompt's ids take part in pooling
    normalize: bool = False
    dense: tuple[tuple[np.ndarray, np.ndarray | None, str], ...] = ()  # weight [out, in], bias, activation
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A weight matrix or embedding table as int8 with one factor a row, and perhaps one a column.

    It stands for float32 values_FD[f, d] * multipliers_F[f] * input_factors_D[d].

    values_FD        int8 [F, D], C-contiguous; may be a view of a mapped file, which it then keeps open
    multipliers_F    float32 [F]
    input_scale      by what the checkpoint wants inputs multiplied before they are rounded to int8 and cut at +-127;
                     None: 127 / max |x| of each row; an embedding's rows are not inputs
    input_factors_D  float32 [D], by what inputs are multiplied before they are rounded to int8, which leaves the
                     product with values_FD[f] * multipliers_F[f]; None: ones. Not with an input scale, nor for an
                     embedding
    """

    values_FD: np.ndarray
    multipliers_F: np.ndarray
    input_scale: float | None = None
    input_factors_D: np.ndarray | None = None
    dtype = np.dtype(np.float32)  # of what it stands for
    ndim = 2

    def __post_init__(self) -> None:
        if self.input_scale is not None and not 1e-30 < self.input_scale < 1e30:  # its reciprocal is a float32 too
            raise CheckpointError(f"an input scale should be a number from 1e-30 to 1e30, is {self.input_scale}")
        factors_D = self.input_factors_D
        if factors_D is not None:
            if self.input_scale is not None:
                raise CheckpointError("inputs have a scale or factors, not both")
            if factors_D.shape != self.shape[1:]:
                raise CheckpointError(f"input factors should be {list(self.shape[1:])}, are {list(factors_D.shape)}")
            if not ((factors_D > 1e-30) & (factors_D < 1e30)).all():
                raise CheckpointError("input factors should be numbers from 1e-30 to 1e30")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values_FD.shape

    @property
    def size(self) -> int:
        return self.values_FD.size

    def float32(self) -> np.ndarray:
        """The matrix that it stands for, a new array each time."""
        # NumPy converts block by block in its own buffer: no float copy of the whole comes between.
        weight_FD = np.multiply(self.values_FD, self.multipliers_F[:, None], dtype=np.float32)
        if self.input_factors_D is not None:
            weight_FD *= self.input_factors_D
        return weight_FD


Tensor = np.ndarray | QuantizedTensor


@dataclass
class Checkpoint:
    """What a loader returns: the architecture, its tensors by canonical name, and what its text side needs.

    ``tensors`` are float32 arrays, linear weights and embedding tables perhaps QuantizedTensors; tied weights are the
    same object under both names. ``precision`` is how the file stored its weights.
    """

    spec: ModelSpec
    tensors: Mapping[str, Tensor]
    text: TranslationText | EncoderText
    precision: str = "float32"
    format: str = ""
    details: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that it was read from
    shortlist: Shortlist | None = None


def check_poolings(modes: tuple[str, ...]) -> None:
    """Raise an InputError that lists the known poolings unless ``modes`` names some of them."""
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown or not modes:
        raise InputError(f"unknown pooling {unknown[0] if unknown else ''!r}; known: {', '.join(POOLINGS)}")


def resolve_precision(precision: str, checkpoint: Checkpoint) -> str:
    """What products run in: ``precision``, with "auto" decided by the checkpoint. Raises InputError for another.

    CTranslate2's names of others are taken too; a UserWarning says what they run as.
    """
    asked = precision
    if asked in tuple(_FOREIGN_PRECISIONS):
        precision = _FOREIGN_PRECISIONS[asked]
    if asked in _MORE_EXACT:
        rest = "" if precision == "float32" else ", all but its products as float32"
        warn(f"precision {asked!r} runs as {precision!r}{rest}, which is no less exact")
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if precision != "auto":
        return precision
    return "int8" if checkpoint.precision == "int8" else "float32"


def without_input_scales(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are, but for their scales of inputs; tied ones stay tied."""
    plain: dict[int, Tensor] = {}
    for tensor in tensors.values():
        scaled = isinstance(tensor, QuantizedTensor) and tensor.input_scale is not None
        plain[id(tensor)] = replace(tensor, input_scale=None) if scaled else tensor  # type: ignore[type-var]
    return {name: plain[id(tensor)] for name, tensor in tensors.items()}
