"""BERT encoders in Hugging Face directories: config.json, weights and tokenizer.json -> a Checkpoint."""

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec import Checkpoint, EncoderText, ModelSpec, StackSpec
from fastattn.tensors import check_tensors
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.weights import (
    ACTIVATIONS,
    check_layers,
    check_stored,
    read_weights,
    stored_precision,
)

# Canonical name within a layer -> BERT's; queries, keys and values are joined.
LAYER_PARTS = {
    "self_attention.output": "attention.output.dense",
    "self_attention.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}
JOINED_PARTS = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
# What a checkpoint may hold that an encoder's rows do not depend on.
IGNORED_NAMES = ("embeddings.position_ids", "embeddings.token_type_ids")
IGNORED_PREFIXES = ("pooler.", "cls.", "classifier.", "qa_outputs.")
# TensorFlow's names for a norm's weights, which early conversions kept.
OLD_NORM_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_encoder(folder: Folder, prefix: str = "", max_length: int | None = None) -> Checkpoint:
    """Read the encoder whose files' names begin with ``prefix``, with mean pooling and no normalisation.

    max_length  in place of the tokenizer's
    """
    config = read_object(folder, prefix + "config.json")
    return read_described(folder, prefix, config, *describe_encoder(folder, prefix, config, max_length))


def describe_encoder(
    folder: Folder, prefix: str, config: JsonObject, max_length: int | None = None
) -> tuple[StackSpec, EncoderText]:
    """What ``read_encoder`` knows before it reads the weights, which may not be there yet (``hub``)."""
    spec = _stack_spec(config)
    tokenizer = _read_tokenizer(folder, prefix)
    length = max_length or _stated_length(folder, prefix, spec)
    return spec, EncoderText(tokenizer=tokenizer, max_length=min(length, spec.max_positions))


def read_described(folder: Folder, prefix: str, config: JsonObject, spec: StackSpec, text: EncoderText) -> Checkpoint:
    """The encoder that ``describe_encoder`` told of, perhaps with another text, with its weights."""
    stored, where = read_weights(folder, prefix)
    stored = _named_as_today(stored)
    check_layers(config, "num_hidden_layers", stored, where)
    check_stored(_expected_shapes(spec, config), stored, where)
    tensors = _tensors(spec, stored)
    model = ModelSpec("encoder", spec)
    check_tensors(model, tensors, where)
    return Checkpoint(
        spec=model,
        tensors=tensors,
        text=text,
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.used),
    )


def _named_as_today(stored: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Drop the ``bert.`` prefix and what is ignored; rename old norms."""
    named: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        name = name.removeprefix("bert.")
        for old, new in OLD_NORM_ENDS.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name in IGNORED_NAMES or name.startswith(IGNORED_PREFIXES):
            continue
        if name in named:
            raise CheckpointError(f"{tensor.where}: {name} is given twice, with and without a prefix or an old name")
        named[name] = tensor
    return named


def _stack_spec(config: JsonObject) -> StackSpec:
    problems = []
    kind = config.string("model_type")
    if kind != "bert":
        raise CheckpointError(f"{config.where}: model type {shorten(kind)} is not supported; known: bert")
    positions = config.string("position_embedding_type", "absolute")
    if positions != "absolute":
        problems.append(f"position_embedding_type {shorten(positions)}")
    problems += [name for name in ("is_decoder", "add_cross_attention") if config.boolean(name, False)]
    activation = config.string("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        problems.append(f"hidden_act {shorten(activation)} (known: {', '.join(ACTIVATIONS)})")
    if problems:
        raise CheckpointError(f"{config.where}: not supported: {'; '.join(problems)}")
    width, heads = config.integer("hidden_size", minimum=1), config.integer("num_attention_heads", minimum=1)
    if width % heads:
        raise CheckpointError(f"{config.where}: hidden_size {width} is not a multiple of num_attention_heads {heads}")
    return StackSpec(
        layers=config.integer("num_hidden_layers", minimum=1),
        width=width,
        heads=heads,
        key_heads=heads,
        head_width=width // heads,
        inner_width=config.integer("intermediate_size", minimum=1),
        vocabulary=config.integer("vocab_size", minimum=1),
        activation=ACTIVATIONS[activation],
        norm_epsilon=config.number("layer_norm_eps", 1e-12),
        pre_norm=False,
        final_norm=False,
        embedding_norm=True,
        positions="table",
        max_positions=config.integer("max_position_embeddings", minimum=1),
    )


def _expected_shapes(spec: StackSpec, config: JsonObject) -> dict[str, tuple[int, ...]]:
    """BERT's name -> shape of every tensor that the architecture needs."""
    width, inner = spec.width, spec.inner_width
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (spec.vocabulary, width),
        "embeddings.position_embeddings.weight": (spec.max_positions, width),
        "embeddings.token_type_embeddings.weight": (config.integer("type_vocab_size", 2, minimum=1), width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    rows = dict.fromkeys((*JOINED_PARTS, "attention.output.dense"), (width, width))
    rows |= {"intermediate.dense": (inner, width), "output.dense": (width, inner)}
    for i in range(spec.layers):
        for part, shape in rows.items():
            shapes[f"encoder.layer.{i}.{part}.weight"] = shape
            shapes[f"encoder.layer.{i}.{part}.bias"] = shape[:1]
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{i}.{part}.weight"] = shapes[f"encoder.layer.{i}.{part}.bias"] = (width,)
    return shapes


# Weights that are not finite, or become so, pass unremarked: they are data.
@np.errstate(over="ignore", invalid="ignore")
def _tensors(spec: StackSpec, stored: dict[str, StoredTensor]) -> dict[str, np.ndarray]:
    tensors = {
        "encoder.embedding.weight": stored["embeddings.word_embeddings.weight"].float32(),
        "encoder.embedding_norm.weight": stored["embeddings.LayerNorm.weight"].float32(),
        "encoder.embedding_norm.bias": stored["embeddings.LayerNorm.bias"].float32(),
        # All tokens are of type 0, so that type's row joins the positions.
        "encoder.positions": stored["embeddings.position_embeddings.weight"].float32()
        + stored["embeddings.token_type_embeddings.weight"].float32()[0],
    }
    for i in range(spec.layers):
        theirs, ours = f"encoder.layer.{i}", f"encoder.layers.{i}"
        for end in ("weight", "bias"):
            parts = [stored[f"{theirs}.{part}.{end}"].float32() for part in JOINED_PARTS]
            tensors[f"{ours}.self_attention.qkv.{end}"] = np.concatenate(parts)
            for canonical, part in LAYER_PARTS.items():
                tensors[f"{ours}.{canonical}.{end}"] = stored[f"{theirs}.{part}.{end}"].float32()
    return tensors


def _read_tokenizer(folder: Folder, prefix: str) -> bytes:
    # sentence-transformers keeps it in the transformer module's folder, old ones at times only at the top.
    for name in (prefix + "tokenizer.json", "tokenizer.json"):
        if folder.contains(name):
            return bytes(folder.read(name))
    raise CheckpointError(
        f"{folder.where(prefix + 'tokenizer.json')}: no such file; save the model with a fast tokenizer"
    )


def _stated_length(folder: Folder, prefix: str, spec: StackSpec) -> int:
    """The tokenizer's model_max_length, which is huge where there is no limit."""
    if not folder.contains(prefix + "tokenizer_config.json"):
        return spec.max_positions
    config = read_object(folder, prefix + "tokenizer_config.json")
    return config.integer("model_max_length", spec.max_positions, minimum=1)
