"""T5 (Raffel 2020), flan-T5, mT5 and UMT5, and MADLAD-400 (Kudugunta 2023) in Hugging Face directories."""

import re
from collections.abc import Mapping
from dataclasses import replace

from fastattn.spec.architecture import ModelSpec
from fastattn.spec.text_spec import LanguageTokens, TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.encoders.architecture import count_layers
from fastattn.weights.huggingface.encoders.t5 import BLOCK, TABLE, feed_forward_sources, t5_stack
from fastattn.weights.huggingface.translators import architecture
from fastattn.weights.tensor_mapping import TensorSources, sources

CROSS = BLOCK.replace("STACK", "decoder") + ".1"
BOTH = TABLE | {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "decoder.layers.#.cross_attention.norm.*": sources(f"{CROSS}.layer_norm.*"),
    "decoder.layers.#.cross_attention.query.*": sources(f"{CROSS}.EncDecAttention.q.*"),
    "decoder.layers.#.cross_attention.key_value.*": sources(*(f"{CROSS}.EncDecAttention.{part}.*" for part in "kv")),
    "decoder.layers.#.cross_attention.output.*": sources(f"{CROSS}.EncDecAttention.o.*"),
    "decoder.projection.weight": sources(architecture.HEAD),
}
# T5's tasks of translation, by their names in config.json's task_specific_params and their prefixes there.
TASK = re.compile(r"translation_(\w+)_to_(\w+): translate (\w+) to (\w+): ")


def _spec(config: JsonObject) -> ModelSpec:
    architecture.count_tokens(config)
    encoder = t5_stack(config)
    layers = count_layers(config, "num_decoder_layers") if config.has("num_decoder_layers") else encoder.layers
    # transformers 5 has a setting of its own for this, whose default is the old one.
    scaled = config.boolean("scale_decoder_outputs", config.boolean("tie_word_embeddings", True))
    scale = encoder.width**-0.5 if scaled and config.string("model_type") != "mt5" else 1.0
    decoder = replace(encoder, layers=layers, cross_attention=True, output_scale=scale)
    return ModelSpec("encoder-decoder", encoder, decoder)


def _table(config: JsonObject, spec: ModelSpec) -> Mapping[str, TensorSources]:
    gated = spec.stacks["encoder"].feed_forward.gated
    return BOTH | feed_forward_sources(gated) | feed_forward_sources(gated, "decoder", 2)


def _text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text: MADLAD's languages are tokens of its vocabulary, T5's words of its tasks."""
    ids = {"decoder_start_token_id": decoding.integer("pad_token_id", 0), "eos_token_id": 1} | decoding.values
    text = architecture.tokenizer_text(folder, config, JsonObject(ids, decoding.where), spec)
    return replace(text, languages=language_tokens(text.source_vocabulary) or _tasks(config))


def _tasks(config: JsonObject) -> LanguageTokens | None:
    tasks = config.nested("task_specific_params")
    matches = (TASK.fullmatch(f"{name}: {tasks.nested(name).string('prefix', '')}") for name in tasks.values)
    names = {code: name for task in matches if task for code, name in ((task[1], task[3]), (task[2], task[4]))}
    return LanguageTokens(names, prefix="translate {source} to {target}:") if names else None


T5 = architecture.TranslatorArchitecture(
    ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "UMT5ForConditionalGeneration", "T5WithLMHeadModel"),
    _spec,
    _table,
    _text,
    # An output layer in the file stays, whatever config.json says: mT5's and MADLAD's is not the embedding.
    lambda config: (architecture.SHARED, architecture.SOURCE, architecture.TARGET, architecture.HEAD),
)
