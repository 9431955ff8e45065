"""The description of an encoder-decoder's architecture, and what several of them share."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fastattn.spec.architecture import FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.encoders.architecture import activation, count_layers, even_heads
from fastattn.weights.tensor_mapping import FirstRow, TensorSources, sources, zeros

# The most rows of a position table that is computed, not stored: only the config limits the number.
MOST_POSITIONS = 1 << 13
# The most tokens of a vocabulary, which is read before the weights that its size could be compared with.
MOST_TOKENS = 1 << 22


@dataclass(frozen=True)
class TranslatorArchitecture:
    """An encoder-decoder in a Hugging Face directory."""

    classes: tuple[str, ...]  # those of ``architectures`` that are read; a config.json that names none has the first
    # (config.json) -> its stacks; raises CheckpointError for what is not supported
    spec: Callable[[JsonObject], ModelSpec]
    # (config.json, its stacks) -> where its tensors come from, whose names have no ``model.`` before them
    table: Callable[[JsonObject, ModelSpec], Mapping[str, TensorSources]]
    # (the folder, config.json, the special ids of generation, its stacks) -> how text becomes ids; its weights may
    # not be downloaded yet
    text: Callable[[Folder, JsonObject, JsonObject, ModelSpec], TranslationText]
    # (config.json) -> names of tensors that are one tensor, which the file may have under any of them. One that it
    # has under its own name is kept, as in transformers
    tied: Callable[[JsonObject], tuple[str, ...]]
    # (the special ids of generation, its stacks) -> ids that are never produced. They and those that the settings
    # name are out of the output layer, so that the others share the whole probability; None: a search leaves out
    # what the settings name, as in transformers
    never: Callable[[JsonObject, ModelSpec], list[int]] | None = None

    def names_class(self, config: JsonObject) -> bool:
        """Whether config.json names a class that is read here, or none."""
        named = config.values.get("architectures") or [self.classes[0]]
        return isinstance(named, list) and any(name in self.classes for name in named)


SHARED, HEAD = "shared.weight", "lm_head.weight"
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


def sinusoids(shape: tuple[int, ...]) -> np.ndarray:
    """[positions, width]: sines in the first half of a row and cosines in the second, of p / 10000^(2i/D).

    In float64, then rounded, as transformers computes it.
    """
    positions, width = shape
    half = (width + 1) // 2
    angles_PH = np.arange(positions)[:, None] / np.power(10000, 2 * np.arange(half) / width)
    table_PD = np.empty((positions, width), np.float32)
    table_PD[:, :half] = np.sin(angles_PH)
    table_PD[:, half:] = np.cos(angles_PH[:, : width - half])
    return table_PD


def count_tokens(config: JsonObject, name: str = "vocab_size", default: int | None = None) -> int:
    tokens = config.integer(name, default, minimum=1)
    if tokens > MOST_TOKENS:
        raise config.error(name, f"at most {MOST_TOKENS}", tokens)
    return tokens


def bart_stack(
    config: JsonObject, name: str, norms: NormSpec, positions: PositionSpec, vocabulary: int | None = None
) -> StackSpec:
    """The encoder or decoder that BART's names of settings describe; of ``vocabulary`` tokens, None: of vocab_size."""
    attention = even_heads(config, "d_model", f"{name}_attention_heads")
    width = attention.query_width
    inner = config.integer(f"{name}_ffn_dim", minimum=1)
    return StackSpec(
        layers=count_layers(config, f"{name}_layers"),
        width=width,
        vocabulary=count_tokens(config) if vocabulary is None else vocabulary,
        attention=attention,
        feed_forward=FeedForwardSpec(inner, activation(config, "activation_function")),
        norms=norms,
        positions=positions,
        embedding_scale=math.sqrt(width) if config.boolean("scale_embedding", False) else 1.0,
        cross_attention=name == "decoder",
        projection_bias=name == "decoder",
    )


def tied(config: JsonObject) -> tuple[str, ...]:
    """Embeddings that are one tensor, and the output layer where config.json does not say otherwise."""
    return (SHARED, TARGET, SOURCE, *((HEAD,) * config.boolean("tie_word_embeddings", True)))


# The names that BART gave, and Marian and many others have.
TABLE = {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.positions": sources("STACK.embed_positions.weight", absent=sinusoids),
    "STACK.embedding_norm.*": sources("STACK.layernorm_embedding.*"),
    "STACK.final_norm.*": sources("STACK.layer_norm.*"),
    "STACK.layers.#.self_attention.qkv.*": sources(*(f"STACK.layers.#.self_attn.{part}_proj.*" for part in "qkv")),
    "STACK.layers.#.self_attention.output.*": sources("STACK.layers.#.self_attn.out_proj.*"),
    "STACK.layers.#.self_attention.norm.*": sources("STACK.layers.#.self_attn_layer_norm.*"),
    "decoder.layers.#.cross_attention.query.*": sources("decoder.layers.#.encoder_attn.q_proj.*"),
    "decoder.layers.#.cross_attention.key_value.*": sources(
        *(f"decoder.layers.#.encoder_attn.{part}_proj.*" for part in "kv")
    ),
    "decoder.layers.#.cross_attention.output.*": sources("decoder.layers.#.encoder_attn.out_proj.*"),
    "decoder.layers.#.cross_attention.norm.*": sources("decoder.layers.#.encoder_attn_layer_norm.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK.layers.#.fc1.*"),
    "STACK.layers.#.feed_forward.outer.*": sources("STACK.layers.#.fc2.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("STACK.layers.#.final_layer_norm.*"),
    "decoder.projection.weight": sources(HEAD),
    "decoder.projection.bias": sources(None, plus=FirstRow("final_logits_bias", rows=1), absent=zeros),
}
