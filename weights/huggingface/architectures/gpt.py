"""GPT-2 (Radford 2019) and GPT-NeoX (Black 2022)."""

from dataclasses import replace

from fastattn.spec.architecture import FeedForwardSpec, NormSpec, PositionSpec, StackSpec
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.architectures.architecture import (
    activation,
    as_table,
    count_columns,
    count_layers,
    count_positions,
    decoder,
    even_heads,
    refuse,
    rotary,
    stack_sizes,
)
from fastattn.weights.tensor_mapping import TensorSources, sources


def _gpt2_spec(config: JsonObject) -> StackSpec:
    refuse(config, add_cross_attention=False)
    width, act = count_columns(config, "n_embd"), activation(config, "activation_function", "gelu_new")
    scale = None if config.boolean("scale_attn_weights", True) else 1.0
    scale_by_layer = config.boolean("scale_attn_by_inverse_layer_idx", False)
    return StackSpec(
        layers=count_layers(config, "n_layer"),
        width=width,
        vocabulary=count_columns(config, "vocab_size"),
        attention=replace(even_heads(config, "n_embd", "n_head"), query_scale=scale, scale_by_layer=scale_by_layer),
        feed_forward=FeedForwardSpec(config.integer("n_inner", 4 * width, minimum=1), act),
        norms=NormSpec(epsilon=config.number("layer_norm_epsilon", 1e-5)),
        positions=PositionSpec("table", limit=count_columns(config, "n_positions", 1024)),
    )


# GPT-2's linear layers are Conv1D, with matrices [inputs, outputs].
GPT2_TABLE = {
    "STACK.embedding.weight": sources("wte.weight"),
    "STACK.positions": sources("wpe.weight"),
    "STACK.layers.#.self_attention.norm.*": sources("h.#.ln_1.*"),
    "STACK.layers.#.self_attention.qkv.*": sources("h.#.attn.c_attn.*", transposed=True),
    "STACK.layers.#.self_attention.output.*": sources("h.#.attn.c_proj.*", transposed=True),
    "STACK.layers.#.feed_forward.norm.*": sources("h.#.ln_2.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("h.#.mlp.c_fc.*", transposed=True),
    "STACK.layers.#.feed_forward.outer.*": sources("h.#.mlp.c_proj.*", transposed=True),
    "STACK.final_norm.*": sources("ln_f.*"),
}
BUFFERS = (".attn.bias", ".attn.masked_bias")
GPT2 = decoder(_gpt2_spec, as_table(GPT2_TABLE), "wte.weight", True, "transformer.", buffers=BUFFERS)


def _neox_spec(config: JsonObject) -> StackSpec:
    sizes, share, limit = stack_sizes(config), config.number("rotary_pct", 0.25), count_positions(config)
    positions = rotary(config, sizes["attention"].head_width, 10_000.0, base_name="rotary_emb_base", share=share)
    return StackSpec(
        **sizes | {"vocabulary": count_columns(config, "vocab_size")},
        norms=NormSpec(epsilon=config.number("layer_norm_eps", 1e-5)),
        positions=PositionSpec("rotary", limit=limit, rotary=positions),
        parallel=config.boolean("use_parallel_residual", True),
    )


def _neox_table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    heads = spec.attention.heads
    table = {
        "STACK.embedding.weight": sources("embed_in.weight"),
        "STACK.layers.#.self_attention.norm.*": sources("layers.#.input_layernorm.*"),
        "STACK.layers.#.self_attention.qkv.*": sources("layers.#.attention.query_key_value.*", heads=heads),
        "STACK.layers.#.self_attention.output.*": sources("layers.#.attention.dense.*"),
        "STACK.layers.#.feed_forward.norm.*": sources("layers.#.post_attention_layernorm.*"),
        "STACK.layers.#.feed_forward.inner.*": sources("layers.#.mlp.dense_h_to_4h.*"),
        "STACK.layers.#.feed_forward.outer.*": sources("layers.#.mlp.dense_4h_to_h.*"),
        "STACK.final_norm.*": sources("final_layer_norm.*"),
    }
    if not config.boolean("attention_bias", True):
        table |= {f"STACK.layers.#.self_attention.{name}.bias": sources(None) for name in ("qkv", "output")}
    return table


GPT_NEOX = decoder(
    _neox_spec, _neox_table, "embed_in.weight", prefix="gpt_neox.", current_ends={"embed_out.weight": "lm_head.weight"}
)
