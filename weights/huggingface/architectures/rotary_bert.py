"""Encoders similar to BERT, with rotary positions and gates."""

from dataclasses import replace
from typing import Any

from fastattn.spec.architecture import HeadSpec, LocalSpec, NormSpec, PositionSpec, Rotary, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.architectures import architecture
from fastattn.weights.tensor_mapping import TensorSources, sources

# ModernBERT (Warner 2024): rotary positions of two bases, local layers between global layers, gates, norms before.
MODERNBERT_TABLE = {
    "encoder.embedding.weight": sources("embeddings.tok_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.norm.*"),
    "encoder.layers.#.self_attention.norm.*": sources("layers.#.attn_norm.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("layers.#.attn.Wqkv.*"),
    "encoder.layers.#.self_attention.output.*": sources("layers.#.attn.Wo.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("layers.#.mlp_norm.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("layers.#.mlp.Wi.*", split=(0, 2)),
    "encoder.layers.#.feed_forward.inner_linear.*": sources("layers.#.mlp.Wi.*", split=(1, 2)),
    "encoder.layers.#.feed_forward.outer.*": sources("layers.#.mlp.Wo.*"),
    "encoder.final_norm.*": sources("final_norm.*"),
}
# Setting -> the linear layers that have biases if it is true.
MODERNBERT_BIASES = {
    "attention_bias": ("self_attention.qkv", "self_attention.output"),
    "mlp_bias": ("feed_forward.inner", "feed_forward.inner_linear", "feed_forward.outer"),
}


def _modernbert_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    lacking = [names for setting, names in MODERNBERT_BIASES.items() if not config.boolean(setting, False)]
    return MODERNBERT_TABLE | {f"encoder.layers.#.{name}.bias": sources(None) for names in lacking for name in names}


def _modernbert_spec(config: JsonObject) -> StackSpec:
    sizes = architecture.stack_sizes(config, act=("hidden_activation", "gelu"), gated=True)
    interval = config.integer("global_attn_every_n_layers", 3, minimum=1)
    side = config.integer("local_attention", 128, minimum=0) // 2
    width = sizes["attention"].head_width
    global_rotary = architecture.rotary(config, width, 160_000.0, "full_attention", "global_rope_theta")
    local_rotary = architecture.rotary(config, width, 10_000.0, "sliding_attention", "local_rope_theta")
    windowed_layers = architecture.local_layers(config, sizes["layers"], lambda i: i % interval != 0)
    return StackSpec(
        **sizes,
        norms=replace(_modernbert_norms(config), embedding=True, first=False),
        positions=PositionSpec("rotary", architecture.count_positions(config), rotary=global_rotary),
        biases=any(config.boolean(name, False) for name in MODERNBERT_BIASES),
        local=LocalSpec(windowed_layers, before=side, after=side, rotary=local_rotary),
    )


def _modernbert_norms(config: JsonObject) -> NormSpec:
    return NormSpec("layer", config.number("norm_eps", 1e-5), config.boolean("norm_bias", False))


def _modernbert_head(config: JsonObject, rows: str, outputs: int, bias: bool = True) -> HeadSpec:
    width, inner_bias = config.integer("hidden_size", minimum=1), config.boolean("classifier_bias", False)
    act = architecture.activation(config, "classifier_activation")
    return HeadSpec(rows, outputs, bias, width, inner_bias, act, _modernbert_norms(config))


def _modernbert_sequence_head(config: JsonObject, spec: StackSpec, labels: int) -> HeadSpec:
    pooling = config.string("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise config.error("classifier_pooling", "'cls' or 'mean'", pooling)
    return _modernbert_head(config, "first" if pooling == "cls" else "mean", labels)


MODERNBERT_HEAD = {
    "head.inner.*": sources("head.dense.*"),
    "head.norm.*": sources("head.norm.*"),
    "head.output.*": sources("classifier.*"),
}
MODERNBERT_HEADS = {
    architecture.SEQUENCE: architecture.HeadSource(_modernbert_sequence_head, architecture.as_table(MODERNBERT_HEAD)),
    architecture.TOKENS: architecture.HeadSource(
        lambda config, spec, labels: _modernbert_head(config, "each", labels), architecture.as_table(MODERNBERT_HEAD)
    ),
    architecture.MASKED: architecture.HeadSource(
        lambda config, spec, _: _modernbert_head(config, "each", spec.vocabulary, config.boolean("decoder_bias", True)),
        architecture.as_table(MODERNBERT_HEAD | {"head.output.*": sources("decoder.*")}),
        has_labels=False,
        ties=architecture.tied_by_setting({"decoder.weight": "embeddings.tok_embeddings.weight"}),
    ),
}
MODERNBERT = architecture.Architecture(
    _modernbert_spec, _modernbert_table, ("model.",), ("head.", "decoder.", "classifier."), heads=MODERNBERT_HEADS
)


# gte v1.5's NewModel, transformers' GTE (Zhang 2024): rotary positions, gates, norms after each sublayer.
GTE_GATES_AND_INNER = "encoder.layer.#.mlp.up_gate_proj.weight"
GTE_TABLE = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
    "encoder.embedding_norm.*": sources("embeddings.LayerNorm.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("encoder.layer.#.attention.qkv_proj.*"),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.o_proj.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.attn_ln.*"),
    "encoder.layers.#.feed_forward.inner.weight": sources(GTE_GATES_AND_INNER, split=(1, 2)),
    "encoder.layers.#.feed_forward.inner_linear.weight": sources(GTE_GATES_AND_INNER, split=(0, 2)),
    "encoder.layers.#.feed_forward.inner.bias": sources(None),
    "encoder.layers.#.feed_forward.inner_linear.bias": sources(None),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.mlp.down_proj.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.mlp_ln.*"),
}
GTE_IGNORED = ("pooler.", "lm_head.", "classifier.", "rotary_emb.", "embeddings.rotary_emb.")

GTE_HEADS = {
    architecture.SEQUENCE: architecture.dense_head("first", "pooler.dense", "classifier", "tanh"),
    architecture.TOKENS: architecture.linear_head("each", "classifier"),
    architecture.MASKED: architecture.masked_head("lm_head.dense", "lm_head.norm", "lm_head.decoder", act="gelu"),
}


def _gte_spec(config: JsonObject) -> StackSpec:
    flags = {"pack_qkv": True, "logn_attention_scale": False, "use_rms_norm": False}
    architecture.refuse(config, position_embedding_type="rope", layer_norm_type="layer_norm", **flags)
    sizes, limit = architecture.stack_sizes(config, gated=True), config.integer("max_position_embeddings", minimum=1)
    return StackSpec(
        **sizes,
        norms=NormSpec("layer", config.number("layer_norm_eps", 1e-12), before=False, final=False, embedding=True),
        positions=PositionSpec("rotary", limit, rotary=_gte_rotary(config, sizes["attention"].head_width)),
        token_types=config.integer("type_vocab_size", 1, minimum=0),
    )


def _gte_rotary(config: JsonObject, width: int) -> Rotary:
    scaling = config.nested("rope_scaling")
    if scaling.string("type", "default") != "ntk":
        default = 160_000.0 if config.string("model_type") == "gte" else 10_000.0
        return architecture.rotary(config, width, default)
    architecture.refuse(scaling, mixed_b=None)
    # In GTE's own code, NTK scaling multiplies the base by the factor, and divides all angles by a root of the factor.
    factor = scaling.number("factor")
    if factor <= 0:
        raise scaling.error("factor", "above zero", factor)
    base = config.number("rope_theta", 10_000.0)
    return Rotary(width, base * factor, interleaved=False, scale=factor ** (2 / width))


GTE = architecture.Architecture(
    _gte_spec, architecture.as_table(GTE_TABLE), ("new.", "gte."), GTE_IGNORED, heads=GTE_HEADS
)


# NomicBERT (Nussbaum 2024): rotary positions, token types, gates, norms after each sublayer, biases only in norms.
NOMIC_TABLE = {
    "encoder.embedding.weight": sources("embeddings.word_embeddings.weight"),
    "encoder.token_types": sources("embeddings.token_type_embeddings.weight"),
    "encoder.embedding_norm.*": sources("emb_ln.*"),
    "encoder.layers.#.self_attention.qkv.*": sources("encoder.layers.#.attn.Wqkv.*"),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layers.#.attn.out_proj.*"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layers.#.norm1.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("encoder.layers.#.mlp.fc12.*"),
    "encoder.layers.#.feed_forward.inner_linear.*": sources("encoder.layers.#.mlp.fc11.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layers.#.mlp.fc2.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layers.#.norm2.*"),
}
NOMIC_IGNORED = ("pooler.", "cls.", "classifier.", "lm_head.")
# activation_function -> the gates' activation, in NomicBERT's first files, whose settings have GPT-2's names.
NOMIC_GATES = {"swiglu": "silu", "geglu": "gelu"}

NOMIC_TRANSFORM = "cls.predictions.transform"
NOMIC_HEADS = {
    architecture.SEQUENCE: architecture.dense_head("first", "pooler.dense", "classifier", "tanh"),
    architecture.TOKENS: architecture.linear_head("each", "classifier"),
    architecture.MASKED: architecture.masked_head(
        f"{NOMIC_TRANSFORM}.dense", f"{NOMIC_TRANSFORM}.layer_norm", "cls.predictions.decoder", "cls.predictions.bias"
    ),
}


def _nomic_spec(config: JsonObject) -> StackSpec:
    if config.has("n_embd"):
        sizes, epsilon, positions = _nomic_gpt2_sizes(config)
    else:
        sizes, epsilon = architecture.stack_sizes(config, act=("hidden_act", "silu"), gated=True), "layer_norm_eps"
        rotary = architecture.rotary(config, sizes["attention"].head_width, 1000.0)
        positions = PositionSpec("rotary", config.integer("max_position_embeddings", 2048, minimum=1), rotary=rotary)
    return StackSpec(
        **sizes,
        norms=NormSpec("layer", config.number(epsilon, 1e-12), before=False, final=False, embedding=True),
        positions=positions,
        token_types=config.integer("type_vocab_size", 2, minimum=0),
        biases=False,
    )


def _nomic_gpt2_sizes(config: JsonObject) -> tuple[dict[str, Any], str, PositionSpec]:
    """(sizes, the name of the norms' epsilon, positions) by GPT-2's names of settings."""
    flags = "prenorm parallel_block causal use_rms_norm qkv_proj_bias mlp_fc1_bias mlp_fc2_bias"
    rotary_values = {"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None}
    values = {"scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "moe_every_n_layers": 0}
    architecture.refuse(config, **dict.fromkeys(flags.split(), False), **rotary_values, **values)
    act = NOMIC_GATES[config.choice("activation_function", NOMIC_GATES, "swiglu")]
    with_act = JsonObject(config.values | {"hidden_act": act}, config.where)
    sizes = architecture.stack_sizes(with_act, ("n_layer", "n_embd", "n_head", "n_inner"), gated=True)
    base = config.number("rotary_emb_base", 10_000.0)
    limit = config.integer("n_positions", 2048, minimum=1)
    if config.has("rotary_scaling_factor"):  # beyond this length, the base would change with the text's length
        limit = min(limit, config.integer("max_trained_positions", 2048, minimum=1))
    rotary = Rotary(sizes["attention"].head_width, base, interleaved=False)
    return sizes, "layer_norm_epsilon", PositionSpec("rotary", limit, rotary=rotary)


NOMIC = architecture.Architecture(
    _nomic_spec, architecture.as_table(NOMIC_TABLE), ("nomic_bert.", "bert."), NOMIC_IGNORED, heads=NOMIC_HEADS
)
