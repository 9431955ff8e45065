"""BERT encoders in Hugging Face directories: config.json, weights and tokenizer.json -> a Checkpoint."""

from fastattn.checkpoint import Checkpoint
from fastattn.errors import CheckpointError
from fastattn.spec import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.text_spec import EncoderText
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.tokenizer import read_text
from fastattn.weights.huggingface.weights import (
    ACTIVATIONS,
    MISFIT,
    check_layers,
    read_weights,
    stored_precision,
)
from fastattn.weights.plan import FirstRow, Part, canonical_tensors, of

TABLE = {
    "encoder.embedding.weight": of("embeddings.word_embeddings.weight"),
    "encoder.embedding_norm.*": of("embeddings.LayerNorm.*"),
    "encoder.layers.#.self_attention.qkv.*": of(
        "encoder.layer.#.attention.self.query.*",
        "encoder.layer.#.attention.self.key.*",
        "encoder.layer.#.attention.self.value.*",
    ),
    "encoder.layers.#.self_attention.output.*": of("encoder.layer.#.attention.output.dense.*"),
    "encoder.layers.#.self_attention.norm.*": of("encoder.layer.#.attention.output.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": of("encoder.layer.#.intermediate.dense.*"),
    "encoder.layers.#.feed_forward.outer.*": of("encoder.layer.#.output.dense.*"),
    "encoder.layers.#.feed_forward.norm.*": of("encoder.layer.#.output.LayerNorm.*"),
}
# Tensors of a checkpoint that do not affect an encoder's output.
IGNORED_NAMES = ("embeddings.position_ids", "embeddings.token_type_ids")
IGNORED_PREFIXES = ("pooler.", "cls.", "classifier.", "qa_outputs.")
# TensorFlow's names of a norm's weights, which early conversions kept.
OLD_NORM_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_encoder(folder: Folder, prefix: str = "", max_length: int | None = None) -> Checkpoint:
    """Read the encoder whose files' names begin with ``prefix``; with mean pooling, without normalization.

    max_length  instead of the tokenizer's
    """
    config = read_object(folder, prefix + "config.json")
    return read_described(folder, prefix, config, *describe_encoder(folder, prefix, config, max_length))


def describe_encoder(
    folder: Folder, prefix: str, config: JsonObject, max_length: int | None = None
) -> tuple[StackSpec, EncoderText]:
    """(spec, text) of ``read_encoder``, without its weights, which may not be downloaded yet (``hub``)."""
    spec = _stack_spec(config)
    return spec, read_text(folder, prefix, config, spec, max_length)


def read_described(folder: Folder, prefix: str, config: JsonObject, spec: StackSpec, text: EncoderText) -> Checkpoint:
    """The encoder of ``describe_encoder``, perhaps with another text, with its weights."""
    stored, where = read_weights(folder, prefix)
    stored = _named_as_today(stored)
    check_layers(config, "num_hidden_layers", stored, where)
    model = ModelSpec("encoder", spec)
    return Checkpoint(
        spec=model,
        tensors=canonical_tensors(_table(config), model, stored, where, MISFIT),
        text=text,
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.used),
    )


def _named_as_today(stored: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors by current names: no ``bert.`` prefix, old norms renamed, ignored tensors dropped."""
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
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=AttentionSpec(heads, key_heads=heads, head_width=width // heads),
        feed_forward=FeedForwardSpec(config.integer("intermediate_size", minimum=1), ACTIVATIONS[activation]),
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-12), before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1)),
    )


def _table(config: JsonObject) -> dict[str, Part]:
    """The table of parts; all tokens are of type 0, so its row is added to the positions."""
    types = FirstRow("embeddings.token_type_embeddings.weight", config.integer("type_vocab_size", 2, minimum=1))
    return TABLE | {"encoder.positions": of("embeddings.position_embeddings.weight", plus=types)}
