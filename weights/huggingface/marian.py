"""MarianMT models in Hugging Face directories: config.json, weights, vocab.json and .spm files -> a Checkpoint.

As in transformers' MarianMTModel and MarianTokenizer (without sacremoses). The padding token, with which a target
starts, is never produced: its logit is minus infinity, as in the models that these were converted from.
"""

import math
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.generation import are_ids, generation_values, id_lists, read_settings
from fastattn.weights.huggingface.marian_tensors import read_translator_tensors
from fastattn.weights.huggingface.marian_text import translation_text
from fastattn.weights.huggingface.weights import ACTIVATIONS, read_weights, stored_precision

NORM_EPSILON = 1e-5
# The most rows of a position table that is computed, not stored: only the config limits the number.
MOST_POSITIONS = 1 << 13
# The most tokens of a vocabulary, which is read before the weights that its size could be compared with.
MOST_TOKENS = 1 << 22
# Flags of config.json -> the only value for this architecture; early configs were BART's.
FLAGS = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
ARCHITECTURES = ("MarianMTModel", "MarianModel")


def read_translator(folder: Folder) -> Checkpoint:
    """Read a directory; raises CheckpointError if it is malformed, incomplete or not supported.

    Everything else is read before the weights, which may not be downloaded yet (``hub``).
    """
    config = read_object(folder, "config.json")
    generation = generation_values(folder, config)
    decoding = _special_ids(config, generation)
    spec = _model_spec(config)
    text = translation_text(folder, decoding, spec)
    settings = read_settings(generation, text.target_vocabulary, alone=generation is not config)
    text = replace(text, decoding=settings)
    never_produced = _never_produced(decoding, generation, spec)
    stored, where = read_weights(folder)
    stored = {name.removeprefix("model."): tensor for name, tensor in stored.items()}
    _check_sizes(config, spec, stored, where)
    shared, tied = (config.boolean(f"{name}_embeddings", True) for name in ("share_encoder_decoder", "tie_word"))
    tensors = read_translator_tensors(stored, spec, shared, tied, where)
    tensors["decoder.projection.bias"][never_produced] = -np.inf
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        input=text,
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.used),
    )


def _special_ids(config: JsonObject, generation: JsonObject) -> JsonObject:
    """The special tokens with which transformers decodes: of generation_config.json, else of config.json."""
    merged = config.values | {name: value for name, value in generation.values.items() if value is not None}
    end = merged.get("eos_token_id")
    if isinstance(end, list) and len(end) == 1:
        merged["eos_token_id"] = end[0]
    return JsonObject(merged, config.where)


def _model_spec(config: JsonObject) -> ModelSpec:
    problems = _find_unsupported(config)
    if problems:
        raise CheckpointError(f"{config.where}: not supported: {'; '.join(problems)}")
    width, vocabulary = config.integer("d_model", minimum=1), config.integer("vocab_size", minimum=1)
    target = vocabulary
    if not config.boolean("share_encoder_decoder_embeddings", True):
        target = config.integer("decoder_vocab_size", vocabulary, minimum=1)
    for name, rows in (("vocab_size", vocabulary), ("decoder_vocab_size", target)):
        if rows > MOST_TOKENS:
            raise config.error(name, f"at most {MOST_TOKENS}", rows)
    stacks = []
    for name, rows in (("encoder", vocabulary), ("decoder", target)):
        heads = config.integer(f"{name}_attention_heads", minimum=1)
        if width % heads:
            raise CheckpointError(
                f"{config.where}: d_model {width} is not a multiple of {name}_attention_heads {heads}"
            )
        stacks.append(
            StackSpec(
                layers=config.integer(f"{name}_layers", minimum=1),
                width=width,
                vocabulary=rows,
                attention=AttentionSpec(heads, key_heads=heads, head_width=width // heads),
                feed_forward=FeedForwardSpec(
                    config.integer(f"{name}_ffn_dim", minimum=1),
                    ACTIVATIONS[config.string("activation_function", "gelu")],
                ),
                norms=NormSpec("layer", NORM_EPSILON, before=False, final=False),
                positions=PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1)),
                embedding_scale=math.sqrt(width) if config.boolean("scale_embedding", False) else 1.0,
                cross_attention=name == "decoder",
                projection_bias=name == "decoder",
            )
        )
    return ModelSpec("encoder-decoder", *stacks)


def _check_sizes(config: JsonObject, spec: ModelSpec, stored: dict[str, StoredTensor], where: str) -> None:
    for name, stack in spec.stacks.items():  # more layers than tensors would only fill memory with names
        if stack.layers > len(stored):
            found = counted(len(stored), "tensor")
            raise CheckpointError(f"{config.where}: {name}_layers is {stack.layers}, but {where} has {found}")
    assert spec.encoder is not None
    positions = spec.encoder.positions.limit
    if positions > MOST_POSITIONS and any(f"{stack}.embed_positions.weight" not in stored for stack in spec.stacks):
        raise config.error("max_position_embeddings", f"at most {MOST_POSITIONS}", positions)


def _find_unsupported(config: JsonObject) -> list[str]:
    """The features of the model that a ModelSpec cannot express."""
    problems = [
        f"{name} {str(not value).lower()}" for name, value in FLAGS.items() if config.boolean(name, value) != value
    ]
    activation = config.string("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        problems.append(f"activation_function {shorten(activation)} (known: {', '.join(ACTIVATIONS)})")
    architectures = config.values.get("architectures") or [ARCHITECTURES[0]]
    if not isinstance(architectures, list) or not any(name in ARCHITECTURES for name in architectures):
        problems.append(f"architectures {shorten(architectures)} (known: {', '.join(ARCHITECTURES)})")
    problems += [name for name in ("quantization_config", "pruned_heads") if config.values.get(name)]
    return problems


def _never_produced(decoding: JsonObject, generation: JsonObject, spec: ModelSpec) -> list[int]:
    """The padding token and single tokens of bad_words_ids and suppress_tokens, without the end token."""
    assert spec.decoder is not None
    ids = {word[0] for word in id_lists(generation, "bad_words_ids") if len(word) == 1}
    suppressed = generation.values.get("suppress_tokens") or []
    if not are_ids(suppressed):
        raise generation.error("suppress_tokens", "a list of ids", suppressed)
    ids |= {*suppressed, decoding.integer("pad_token_id")}
    for number in ids:
        if not 0 <= number < spec.decoder.vocabulary:
            raise decoding.error(
                "suppress_tokens, pad_token_id or one of bad_words_ids",
                f"an id below {spec.decoder.vocabulary}",
                number,
            )
    return sorted(ids - {decoding.integer("eos_token_id")})
