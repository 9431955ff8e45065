"""BERT and its variants: norms after each sublayer, and mostly learned positions."""

from dataclasses import replace

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import Alibi, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.architectures.architecture import (
    MASKED,
    MOST_LAYERS,
    SEQUENCE,
    TOKENS,
    Architecture,
    as_table,
    count_layers,
    dense_head,
    linear_head,
    masked_head,
    refuse,
    stack_sizes,
)
from fastattn.weights.tensor_mapping import TensorSources, sources

# BERT (Devlin 2019): learned positions, token types, norms after each sublayer.
QKV = ("query", "key", "value")
LAYERS = {
    "encoder.layers.#.self_attention.qkv.*": sources(*(f"encoder.layer.#.attention.self.{part}.*" for part in QKV)),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.output.dense.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attention.output.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("encoder.layer.#.intermediate.dense.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.output.dense.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.output.LayerNorm.*"),
}
EMBEDDING = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.LayerNorm.*"),
    "encoder.positions": sources("embeddings.position_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
}
# Prefixes of tensors that do not affect the last hidden states: buffers, and heads.
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.", "cls.", "classifier.", "qa_outputs.")
# TensorFlow's names of a norm's weights, which early conversions kept -> the current names.
OLD_NORM_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

_CLS = "cls.predictions"
PREDICTIONS = masked_head(f"{_CLS}.transform.dense", f"{_CLS}.transform.LayerNorm", f"{_CLS}.decoder", f"{_CLS}.bias")
BERT_HEADS = {
    SEQUENCE: dense_head("first", "pooler.dense", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: PREDICTIONS,
    "ForPreTraining": PREDICTIONS,
}


def bert_spec(
    config: JsonObject, padding: int = -1, positions: str = "absolute", default_act: str = "gelu"
) -> StackSpec:
    """The stack.

    padding      the padding id, which is the row of its position too; other tokens' rows follow; -1: there is none
    positions    the position_embedding_type that config.json may have
    default_act  the default activation of feed-forwards
    """
    refuse(config, position_embedding_type=positions, is_decoder=False, add_cross_attention=False)
    sizes = stack_sizes(config, act=("hidden_act", default_act))
    limit = config.integer("max_position_embeddings", minimum=2 + padding) - 1 - padding
    return StackSpec(
        **sizes,
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-12), before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=limit, padding=padding),
        token_types=config.integer("type_vocab_size", 2, minimum=1),
    )


BERT = Architecture(
    bert_spec, as_table(LAYERS | EMBEDDING), ("bert.",), IGNORED, current_ends=OLD_NORM_ENDS, heads=BERT_HEADS
)


# RoBERTa (Liu 2019), XLM-R (Conneau 2020), CamemBERT: BERT whose positions start after the padding id.
ROBERTA_HEADS = {
    SEQUENCE: dense_head("first", "classifier.dense", "classifier.out_proj", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", "gelu"),
}


def _roberta_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    positions = sources("embeddings.position_embeddings.weight", skipped_rows=spec.positions.padding)
    return LAYERS | EMBEDDING | {"encoder.positions": positions}


ROBERTA = Architecture(
    lambda config: bert_spec(config, config.integer("pad_token_id", 1)),
    _roberta_table,
    ("roberta.",),
    (*IGNORED, "lm_head."),
    current_ends=OLD_NORM_ENDS,
    heads=ROBERTA_HEADS,
)


# ELECTRA (Clark 2020): BERT whose embedding may be narrower.
ELECTRA_TABLE = as_table(LAYERS | EMBEDDING | {"encoder.embedding_projection.*": sources("embeddings_project.*")})
ELECTRA_HEAD_NAMES = ("discriminator_predictions.", "generator_predictions.", "generator_lm_head.")
ELECTRA_HEADS = {
    SEQUENCE: dense_head("first", "classifier.dense", "classifier.out_proj", "gelu"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", act="gelu"
    ),
}


def _electra_spec(config: JsonObject) -> StackSpec:
    stack = bert_spec(config)
    width = config.integer("embedding_size", 128, minimum=1)
    return replace(stack, embedding_width=0 if width == stack.width else width)


ELECTRA = Architecture(
    _electra_spec,
    ELECTRA_TABLE,
    ("electra.",),
    (*IGNORED, *ELECTRA_HEAD_NAMES),
    current_ends=OLD_NORM_ENDS,
    heads=ELECTRA_HEADS,
)


# MPNet (Song 2020): BERT with a relative bias, shared by the layers, besides its learned positions.
MPNET_PADDING = 1  # in transformers the id does not depend on config.json
MPNET_ATTENTION = {
    "encoder.layers.#.self_attention.qkv.*": sources(*(f"encoder.layer.#.attention.attn.{part}.*" for part in "qkv")),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.attn.o.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attention.LayerNorm.*"),
    "encoder.relative_bias": sources("encoder.relative_attention_bias.weight"),
    "encoder.positions": sources("embeddings.position_embeddings.weight", skipped_rows=MPNET_PADDING),
}


def _mpnet_spec(config: JsonObject) -> StackSpec:
    refuse(config, relative_attention_num_buckets=32)  # transformers uses 32 whatever config.json says
    stack = bert_spec(config, MPNET_PADDING)
    positions = replace(stack.positions, kind="relative", learned=True, buckets=32, max_distance=128)
    return replace(stack, positions=positions, token_types=0)


MPNET_TABLE = as_table(LAYERS | EMBEDDING | MPNET_ATTENTION)
MPNET = Architecture(
    _mpnet_spec, MPNET_TABLE, ("mpnet.",), (*IGNORED, "lm_head."), current_ends=OLD_NORM_ENDS, heads=ROBERTA_HEADS
)


# ALBERT (Lan 2020): BERT with a narrow embedding, whose layers share their weights in groups.
ALBERT_LAYER = "encoder.albert_layer_groups.#"  # a group and one of its layers
ALBERT_TABLE = EMBEDDING | {
    "encoder.embedding_projection.*": sources("encoder.embedding_hidden_mapping_in.*"),
    "encoder.layers.#.self_attention.qkv.*": sources(*(f"{ALBERT_LAYER}.attention.{part}.*" for part in QKV)),
    "encoder.layers.#.self_attention.output.*": sources(f"{ALBERT_LAYER}.attention.dense.*"),
    "encoder.layers.#.self_attention.norm.*": sources(f"{ALBERT_LAYER}.attention.LayerNorm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources(f"{ALBERT_LAYER}.ffn.*"),
    "encoder.layers.#.feed_forward.outer.*": sources(f"{ALBERT_LAYER}.ffn_output.*"),
    "encoder.layers.#.feed_forward.norm.*": sources(f"{ALBERT_LAYER}.full_layer_layer_norm.*"),
}
ALBERT_PREDICTIONS = masked_head(
    "predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"
)
ALBERT_HEADS = {
    SEQUENCE: dense_head("first", "pooler", "classifier", "tanh"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: ALBERT_PREDICTIONS,
    "ForPreTraining": ALBERT_PREDICTIONS,
}


def _albert_spec(config: JsonObject) -> StackSpec:
    stack = bert_spec(config, default_act="gelu_new")
    layers, groups, blocks = _albert_counts(config)
    if groups > layers or layers * blocks > MOST_LAYERS:
        raise CheckpointError(f"{config.where}: {layers} layers of {blocks} each cannot share {groups} groups")
    width = config.integer("embedding_size", 128, minimum=1)
    return replace(stack, layers=layers * blocks, embedding_width=width)


def _albert_counts(config: JsonObject) -> tuple[int, int, int]:
    """(layers, groups, blocks of each layer)."""
    groups, blocks = (config.integer(name, 1, minimum=1) for name in ("num_hidden_groups", "inner_group_num"))
    return count_layers(config), groups, blocks


def _albert_groups(config: JsonObject) -> list[str]:
    """GROUP.albert_layers.NUMBER of each block: its group, and its number among the group's blocks."""
    layers, groups, blocks = _albert_counts(config)
    return [f"{int(i / (layers / groups))}.albert_layers.{j}" for i in range(layers) for j in range(blocks)]


ALBERT_IGNORED = (*IGNORED, "pooler.", "predictions.", "sop_classifier.")
ALBERT = Architecture(
    _albert_spec, as_table(ALBERT_TABLE), ("albert.",), ALBERT_IGNORED, _albert_groups, OLD_NORM_ENDS, ALBERT_HEADS
)


# jina-embeddings-v2's BERT (Günther 2023): gates, and linear biases to both sides instead of positions.
JINA_GATES_AND_INNER = "encoder.layer.#.mlp.gated_layers.weight"
JINA_FEED_FORWARD = {
    "encoder.layers.#.feed_forward.inner.weight": sources(JINA_GATES_AND_INNER, split=(0, 2)),
    "encoder.layers.#.feed_forward.inner_linear.weight": sources(JINA_GATES_AND_INNER, split=(1, 2)),
    "encoder.layers.#.feed_forward.inner.bias": sources(None),
    "encoder.layers.#.feed_forward.inner_linear.bias": sources(None),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.mlp.wo.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.mlp.layernorm.*"),
}
JINA_GATES = {"geglu": "gelu", "reglu": "relu"}  # feed_forward_type with gates -> the activation


def _jina_spec(config: JsonObject) -> StackSpec:
    class_path = config.nested("auto_map").string("AutoModel", "")
    if "-qk-" in class_path:  # only the name distinguishes base-code's and base-es's architecture from base-en's
        raise CheckpointError(f"{config.where}: not supported: norms of queries and keys, by {shorten(class_path)}")
    stack = bert_spec(config, positions="alibi")
    name = config.choice("feed_forward_type", ("original", *JINA_GATES), "original")
    if name != "original":
        stack = replace(stack, feed_forward=replace(stack.feed_forward, activation=JINA_GATES[name], gated=True))
    return replace(stack, positions=PositionSpec("alibi", stack.positions.limit, alibi=Alibi(symmetric=True)))


JINA = Architecture(
    _jina_spec,
    lambda config, spec: LAYERS | EMBEDDING | (JINA_FEED_FORWARD if spec.feed_forward.gated else {}),
    ("bert.",),
    IGNORED,
    current_ends=OLD_NORM_ENDS,
    heads=BERT_HEADS,
)


# DistilBERT (Sanh 2019): BERT without token types, and with other names of tensors.
DISTILBERT_LAYERS = {
    "encoder.layers.#.self_attention.qkv.*": sources(
        *(f"transformer.layer.#.attention.{part}_lin.*" for part in "qkv")
    ),
    "encoder.layers.#.self_attention.output.*": sources("transformer.layer.#.attention.out_lin.*"),
    "encoder.layers.#.self_attention.norm.*": sources("transformer.layer.#.sa_layer_norm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("transformer.layer.#.ffn.lin1.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("transformer.layer.#.ffn.lin2.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("transformer.layer.#.output_layer_norm.*"),
}
# DistilBERT's table of positions may hold sinusoids, which are stored like learned positions.
DISTILBERT_IGNORED = ("embeddings.position_ids", "pre_classifier.", "classifier.", "qa_outputs.", "vocab_")
DISTILBERT_HEADS = {
    SEQUENCE: dense_head("first", "pre_classifier", "classifier", "relu"),
    TOKENS: linear_head("each", "classifier"),
    MASKED: masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector"),
}


def _distilbert_spec(config: JsonObject) -> StackSpec:
    return StackSpec(
        **stack_sizes(config, ("n_layers", "dim", "n_heads", "hidden_dim"), ("activation", "gelu")),
        norms=NormSpec("layer", 1e-12, before=False, final=False, embedding=True),
        positions=PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1)),
    )


DISTILBERT = Architecture(
    _distilbert_spec,
    as_table(DISTILBERT_LAYERS | EMBEDDING),
    ("distilbert.",),
    DISTILBERT_IGNORED,
    heads=DISTILBERT_HEADS,
)
