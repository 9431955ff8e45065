"""DeBERTa-v2 and v3 (He 2021, He 2023): disentangled attention, and a convolution in v2's larger sizes."""

from dataclasses import replace

from fastattn.spec.architecture import Convolution, Disentangled, HeadSpec, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.architectures import architecture
from fastattn.weights.huggingface.architectures.bert import LAYERS, OLD_NORM_ENDS, PREDICTIONS, QKV
from fastattn.weights.tensor_mapping import TensorSources, sources

ATTENTION = {
    "encoder.layers.#.self_attention.qkv.*": sources(
        *(f"encoder.layer.#.attention.self.{part}_proj.*" for part in QKV)
    ),
    "encoder.distances": sources("encoder.rel_embeddings.weight"),
    "encoder.distance_norm.*": sources("encoder.LayerNorm.*"),
}
EMBEDDING = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.embedding_projection.weight": sources("embeddings.embed_proj.weight"),
    "encoder.embedding_norm.*": sources("embeddings.LayerNorm.*"),
    "encoder.positions": sources("embeddings.position_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
}
# Term of the score -> the term's projection of distances; with share_att_key it is the queries' or the keys' instead.
TERMS = {
    "p2c": "encoder.layer.#.attention.self.pos_query_proj.*",
    "c2p": "encoder.layer.#.attention.self.pos_key_proj.*",
}
IGNORED = tuple(
    "embeddings.position_ids pooler. cls. classifier. qa_outputs. lm_predictions. mask_predictions.".split()
)


def _terms(config: JsonObject) -> list[str]:
    """The terms of the score besides the product of contents, in the order of TERMS."""
    value = config.values.get("pos_att_type")
    names = [name.strip() for name in value.lower().split("|")] if isinstance(value, str) else value or []
    if not isinstance(names, list) or any(not isinstance(name, str) or name not in TERMS for name in names if name):
        raise config.error("pos_att_type", "of 'c2p' and 'p2c'", value)
    return [name for name in TERMS if name in names]


def _position_spec(config: JsonObject, terms: list[str]) -> PositionSpec:
    learned = config.boolean("position_biased_input", True)
    positions = config.integer("max_position_embeddings", 512, minimum=1)
    limit = positions if learned else 0
    if not config.boolean("relative_attention", False) or not terms:
        return PositionSpec("table" if learned else "none", limit=limit)
    max_distance = config.integer("max_relative_positions", -1, minimum=-1)
    norms = [name.strip() for name in config.string("norm_rel_ebd", "none").lower().split("|")]
    disentangled = Disentangled(
        "c2p" in terms, "p2c" in terms, shared=config.boolean("share_att_key", False), norm="layer_norm" in norms
    )
    return PositionSpec(
        "disentangled",
        limit=limit,
        buckets=max(config.integer("position_buckets", -1, minimum=-1), 0),
        max_distance=max_distance if max_distance > 0 else positions,
        learned=learned,
        disentangled=disentangled,
    )


def _spec(config: JsonObject) -> StackSpec:
    sizes, terms = architecture.stack_sizes(config), _terms(config)
    width, head_width = sizes["width"], sizes["attention"].head_width
    embedding_width = config.integer("embedding_size", width, minimum=1)
    architecture.refuse(config, conv_groups=1, attention_head_size=head_width)
    kernel = config.integer("conv_kernel_size", 0)
    sizes["attention"] = replace(sizes["attention"], query_scale=(head_width * (1 + len(terms))) ** -0.5)
    return StackSpec(
        **sizes,
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-7), before=False, final=False, embedding=True),
        positions=_position_spec(config, terms),
        token_types=config.integer("type_vocab_size", 0),
        embedding_width=embedding_width if embedding_width != width else 0,
        norm_after_projection=embedding_width != width,
        convolution=Convolution(kernel, architecture.activation(config, "conv_act", "tanh")) if kernel else None,
    )


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    table = {"encoder.layers.#.self_attention.distances.*": sources(*(TERMS[term] for term in _terms(config)))}
    if spec.convolution is not None:
        table["encoder.convolution.*"] = sources("encoder.conv.conv.*", kernel=spec.convolution.width)
        table["encoder.convolution_norm.*"] = sources("encoder.conv.LayerNorm.*")
    return LAYERS | ATTENTION | EMBEDDING | table


def _unused_prefixes(config: JsonObject) -> tuple[str, ...]:
    """Prefixes of tensors that config.json makes unused: of positions, in old checkpoints, and of distances."""
    prefixes = () if config.boolean("position_biased_input", True) else ("embeddings.position_embeddings.",)
    has_distances = config.boolean("relative_attention", False) and _terms(config)
    return prefixes if has_distances else (*prefixes, "encoder.rel_embeddings.", "encoder.LayerNorm.")


def _predictions_head(config: JsonObject) -> architecture.HeadSource:
    return PREDICTIONS if config.boolean("legacy", True) else LM_PREDICTIONS


LM_PREDICTIONS = architecture.masked_head(
    *(f"lm_predictions.lm_head.{name}" for name in ("dense", "LayerNorm", "decoder", "bias"))
)
POOLED_HEAD = {"head.inner.*": sources("pooler.dense.*"), "head.output.*": sources("classifier.*")}
HEADS = {
    architecture.SEQUENCE: architecture.HeadSource(
        lambda config, spec, labels: HeadSpec(
            "first", labels, inner_width=spec.width, activation=architecture.activation(config, "pooler_hidden_act")
        ),
        architecture.as_table(POOLED_HEAD),
    ),
    architecture.TOKENS: architecture.linear_head("each", "classifier"),
    architecture.MASKED: replace(
        PREDICTIONS,
        table=lambda config, spec: _predictions_head(config).table(config, spec),
        ties=lambda config: _predictions_head(config).ties(config),
    ),
}
DEBERTA = architecture.Architecture(
    _spec, _table, ("deberta.",), IGNORED, current_ends=OLD_NORM_ENDS, heads=HEADS, unused_prefixes=_unused_prefixes
)
