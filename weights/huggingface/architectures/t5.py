"""T5 (Raffel 2020), flan-T5, mT5, UMT5 and MADLAD-400 (Kudugunta 2023): encoders alone, then encoder-decoders.

These models have relative buckets instead of positions, no biases, and scores without a scale.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.text_spec import LanguageTokens, TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures import translator
from fastattn.weights.huggingface.architectures.architecture import Architecture, count_columns, count_layers
from fastattn.weights.huggingface.weights import ACTIVATIONS
from fastattn.weights.tensor_mapping import TensorSources, sources

BLOCK = "STACK.block.#.layer"
BIAS = f"{BLOCK}.0.SelfAttention.relative_attention_bias.weight"
TABLE = {
    "STACK.relative_bias": sources(BIAS.replace("#", "0")),
    "STACK.layers.#.self_attention.relative_bias": sources(BIAS),
    "STACK.layers.#.self_attention.norm.*": sources(f"{BLOCK}.0.layer_norm.*"),
    "STACK.layers.#.self_attention.qkv.*": sources(*(f"{BLOCK}.0.SelfAttention.{part}.*" for part in "qkv")),
    "STACK.layers.#.self_attention.output.*": sources(f"{BLOCK}.0.SelfAttention.o.*"),
    "STACK.final_norm.*": sources("STACK.final_layer_norm.*"),
}


def feed_forward_sources(gated: bool, stack: str = "encoder", number: int = 1) -> dict[str, TensorSources]:
    """The sources of a stack's feed-forwards, which are the sublayers ``number`` of its blocks."""
    prefix, stored_prefix = f"{stack}.layers.#.feed_forward", f"{stack}.block.#.layer.{number}"
    return {
        f"{prefix}.norm.*": sources(f"{stored_prefix}.layer_norm.*"),
        f"{prefix}.inner.*": sources(f"{stored_prefix}.DenseReluDense.{'wi_0' if gated else 'wi'}.*"),
        f"{prefix}.inner_linear.*": sources(f"{stored_prefix}.DenseReluDense.wi_1.*"),
        f"{prefix}.outer.*": sources(f"{stored_prefix}.DenseReluDense.wo.*"),
    }


def t5_stack(config: JsonObject) -> StackSpec:
    heads, head_width = config.integer("num_heads", minimum=1), config.integer("d_kv", minimum=1)
    name = config.string("feed_forward_proj", "relu" if config.string("model_type") == "t5" else "gated-gelu")
    # T5's "gated-gelu" is the approximation by tanh.
    act = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    if act not in ACTIVATIONS:
        raise config.error("feed_forward_proj", f"one of {', '.join(ACTIVATIONS)}, perhaps after gated-", name)
    inner_width = config.integer("d_ff", minimum=1)
    return StackSpec(
        layers=count_layers(config, "num_layers"),
        width=count_columns(config, "d_model"),
        vocabulary=config.integer("vocab_size", minimum=1),
        attention=AttentionSpec(heads, heads, head_width, query_scale=1.0),
        feed_forward=FeedForwardSpec(inner_width, ACTIVATIONS[act], name.startswith("gated-")),
        norms=NormSpec("rms", config.number("layer_norm_epsilon", 1e-6)),
        positions=PositionSpec(
            "relative",
            buckets=config.integer("relative_attention_num_buckets", 32, minimum=1),
            max_distance=config.integer("relative_attention_max_distance", 128, minimum=1),
            of_each_layer=config.string("model_type") == "umt5",
        ),
        biases=False,
    )


def _table(config: JsonObject, spec: StackSpec) -> dict[str, TensorSources]:
    embedding = {"encoder.embedding.weight": sources("encoder.embed_tokens.weight")}
    return TABLE | embedding | feed_forward_sources(spec.feed_forward.gated)


T5 = Architecture(
    t5_stack,
    _table,
    ("transformer.",),
    ("shared.", "decoder.", "lm_head.", "classification_head."),
    ties=lambda config: {"encoder.embed_tokens.weight": "shared.weight"},
)


# Encoder-decoders.
CROSS = BLOCK.replace("STACK", "decoder") + ".1"
TRANSLATOR_TABLE = TABLE | {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "decoder.layers.#.cross_attention.norm.*": sources(f"{CROSS}.layer_norm.*"),
    "decoder.layers.#.cross_attention.query.*": sources(f"{CROSS}.EncDecAttention.q.*"),
    "decoder.layers.#.cross_attention.key_value.*": sources(*(f"{CROSS}.EncDecAttention.{part}.*" for part in "kv")),
    "decoder.layers.#.cross_attention.output.*": sources(f"{CROSS}.EncDecAttention.o.*"),
    "decoder.projection.weight": sources(translator.HEAD),
}
# A task of translation: its name in config.json's task_specific_params, and its prefix there.
TASK = re.compile(r"translation_(\w+)_to_(\w+): translate (\w+) to (\w+): ")


def _translator_spec(config: JsonObject) -> ModelSpec:
    translator.count_tokens(config)
    encoder = t5_stack(config)
    layers = count_layers(config, "num_decoder_layers") if config.has("num_decoder_layers") else encoder.layers
    # The setting of transformers 5 is scale_decoder_outputs; older files imply it.
    is_scaled = config.boolean("scale_decoder_outputs", config.boolean("tie_word_embeddings", True))
    scale = encoder.width**-0.5 if is_scaled and config.string("model_type") != "mt5" else 1.0
    decoder = replace(encoder, layers=layers, cross_attention=True, output_scale=scale)
    return ModelSpec("encoder-decoder", encoder, decoder)


def _translator_table(config: JsonObject, spec: ModelSpec) -> Mapping[str, TensorSources]:
    gated = spec.stacks["encoder"].feed_forward.gated
    return TRANSLATOR_TABLE | feed_forward_sources(gated) | feed_forward_sources(gated, "decoder", 2)


def _text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text; MADLAD's languages are tokens of the vocabulary, T5's are words in the prefixes of tasks."""
    ids = {"decoder_start_token_id": decoding.integer("pad_token_id", 0), "eos_token_id": 1} | decoding.values
    text = translator.tokenizer_text(folder, config, JsonObject(ids, decoding.where), spec)
    return replace(text, languages=language_tokens(text.source_vocabulary) or _tasks(config))


def _tasks(config: JsonObject) -> LanguageTokens | None:
    tasks = config.nested("task_specific_params")
    matches = (TASK.fullmatch(f"{name}: {tasks.nested(name).string('prefix', '')}") for name in tasks.values)
    names = {code: name for task in matches if task for code, name in ((task[1], task[3]), (task[2], task[4]))}
    return LanguageTokens(names, prefix="translate {source} to {target}:") if names else None


T5_TRANSLATOR = translator.TranslatorArchitecture(
    ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "UMT5ForConditionalGeneration", "T5WithLMHeadModel"),
    _translator_spec,
    _translator_table,
    _text,
    # An output layer that the file has stays, whatever config.json says: mT5's and MADLAD's differ from the embedding.
    lambda config: (translator.SHARED, translator.SOURCE, translator.TARGET, translator.HEAD),
)
