"""Encoder-decoders whose tensors are named as BART's in Hugging Face directories.

BART, mBART and mBART-50, Pegasus (Lewis 2020, Liu 2020, Tang 2021, Zhang 2020), M2M100 (Fan 2021), NLLB (NLLB Team
2022), MarianMT.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.architecture import activation, as_table, count_layers, even_heads
from fastattn.weights.huggingface.architectures.translator import (
    HEAD,
    SHARED,
    SOURCE,
    TARGET,
    Tokens,
    TranslatorArchitecture,
    count_tokens,
    embedding_names,
    tokenizer_text,
    translator_text,
)
from fastattn.weights.huggingface.tokenizer import FILE
from fastattn.weights.huggingface.tokenizer_files import CONFIG, read_ids
from fastattn.weights.tensor_mapping import FirstRow, TensorSources, sources, zeros


def sinusoids(shape: tuple[int, ...]) -> np.ndarray:
    """[positions, width]: sines in the first half of a row and cosines in the second, of p / 10000^(2i/D).

    Computed in float64, then rounded, as in transformers.
    """
    positions, width = shape
    half = (width + 1) // 2
    angles_PH = np.arange(positions)[:, None] / np.power(10000, 2 * np.arange(half) / width)
    table_PD = np.empty((positions, width), np.float32)
    table_PD[:, :half] = np.sin(angles_PH)
    table_PD[:, half:] = np.cos(angles_PH[:, : width - half])
    return table_PD


def bart_stack(
    config: JsonObject, name: str, norms: NormSpec, positions: PositionSpec, vocabulary: int | None = None
) -> StackSpec:
    """The encoder or decoder ``name``, by BART's names of settings; ``vocabulary``: its size, None: vocab_size."""
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


TABLE = {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.positions": sources("STACK.embed_positions.weight", default=sinusoids),
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
    "decoder.projection.bias": sources(None, added_row=FirstRow("final_logits_bias", rows=1), default=zeros),
}
# Learned positions are numbered from 2, as in fairseq: behind 1, the padding token.
LEARNED_TABLE = TABLE | {"STACK.positions": sources("STACK.embed_positions.weight", skipped_rows=2)}


STACKS = ("encoder", "decoder")


def _bart_architecture(
    name: str, norms: NormSpec, text: Callable[..., TranslationText], table: dict[str, TensorSources]
) -> TranslatorArchitecture:
    """An architecture with a table of positions, whose classes' names begin with ``name``."""

    def spec(config: JsonObject) -> ModelSpec:
        positions = PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1))
        return ModelSpec("encoder-decoder", *(bart_stack(config, stack, norms, positions) for stack in STACKS))

    classes = f"{name}ForConditionalGeneration", f"{name}Model"
    return TranslatorArchitecture(classes, spec, as_table(table), text, embedding_names)


BART_NORMS = NormSpec(before=False, final=False, embedding=True)
BART = _bart_architecture("Bart", BART_NORMS, tokenizer_text, LEARNED_TABLE)
MBART = _bart_architecture("MBart", NormSpec(embedding=True), translator_text, LEARNED_TABLE)
PEGASUS = _bart_architecture("Pegasus", NormSpec(), tokenizer_text, TABLE)


# M2M100 and NLLB.
VOCABULARY, PIECES = "vocab.json", "sentencepiece.bpe.model"
# Name of a list in tokenizer_config.json -> M2M100's languages by id; the ids come after those of the vocabulary.
LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def _m2m100_spec(config: JsonObject) -> ModelSpec:
    config = JsonObject({"activation_function": "relu", "scale_embedding": True} | config.values, config.where)
    limit, padding = config.integer("max_position_embeddings", minimum=1), config.integer("pad_token_id", 1)
    if padding >= count_tokens(config):
        raise config.error("pad_token_id", "an id below vocab_size", padding)
    positions = PositionSpec("sinusoid", limit=limit, start=padding + 1)
    stacks = (bart_stack(config, name, NormSpec(), positions) for name in STACKS)
    return ModelSpec("encoder-decoder", *(replace(stack, projection_bias=False) for stack in stacks))


def _m2m100_text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text of NLLB's tokenizer.json, or of M2M100's sentencepiece model with the ids of its vocab.json."""
    if folder.contains(FILE) or not folder.contains(VOCABULARY):
        return translator_text(folder, config, decoding, spec)
    settings, rows = read_optional(folder, CONFIG), spec.stacks["encoder"].vocabulary
    vocabulary = read_ids(folder, VOCABULARY, rows)
    codes = LANGUAGES[settings.choice("language_codes", LANGUAGES, "m2m100")].split()
    first_id = max(vocabulary, default=-1) + 1
    languages = {first_id + i: f"__{code}__" for i, code in enumerate(codes) if first_id + i < rows}
    tokens = Tokens(languages | vocabulary, "<unk>", folder.where(VOCABULARY))
    text = translator_text(folder, config, decoding, spec, tokens)
    model = bytes(folder.read(PIECES))
    return replace(text, source_model=model, target_model=model)


M2M100 = TranslatorArchitecture(
    ("M2M100ForConditionalGeneration", "M2M100Model"), _m2m100_spec, as_table(TABLE), _m2m100_text, embedding_names
)


# MarianMT.
# Flag of config.json -> the only value for this architecture; early files have BART's flags.
FLAGS = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def _marian_spec(config: JsonObject) -> ModelSpec:
    problems = [
        f"{name} {str(not value).lower()}" for name, value in FLAGS.items() if config.boolean(name, value) != value
    ]
    if problems:
        raise CheckpointError(f"{config.where}: not supported: {'; '.join(problems)}")
    source_rows = target_rows = count_tokens(config)
    if not config.boolean("share_encoder_decoder_embeddings", True):
        target_rows = count_tokens(config, "decoder_vocab_size", source_rows)
    norms = NormSpec(before=False, final=False)
    positions = PositionSpec("table", limit=config.integer("max_position_embeddings", minimum=1))
    rows = zip(STACKS, (source_rows, target_rows))
    return ModelSpec("encoder-decoder", *(bart_stack(config, name, norms, positions, count) for name, count in rows))


def _marian_names(config: JsonObject) -> tuple[str, ...]:
    """``embedding_names``, but for an embedding of the source's own."""
    is_shared, is_tied = (config.boolean(f"{name}_embeddings", True) for name in ("share_encoder_decoder", "tie_word"))
    return (*((SHARED,) * is_shared), TARGET, *((SOURCE,) * is_shared), *((HEAD,) * is_tied))


def _suppressed_ids(decoding: JsonObject, spec: ModelSpec) -> list[int]:
    """The id of padding, unless it is the end token's: the makers of the models search without padding."""
    eos_id, padding = decoding.integer("eos_token_id"), decoding.integer("pad_token_id")
    rows = spec.stacks["decoder"].vocabulary
    if padding >= rows:
        raise decoding.error("pad_token_id", f"an id below {rows}", padding)
    return [] if padding == eos_id else [padding]


def _marian_text(folder: Folder, config: JsonObject, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text as in MarianTokenizer: pieces of the .spm files with ids of the vocabularies, then the end token.

    Raises CheckpointError if the ids of ``decoding`` and the vocabularies disagree.
    """
    encoder, decoder = spec.stacks.values()
    settings = read_optional(folder, "tokenizer_config.json")
    unk, eos = _special_token(settings, "unk_token", "<unk>"), _special_token(settings, "eos_token", "</s>")
    source = _read_vocabulary(folder, "vocab.json", encoder.vocabulary)
    target, target_file = source, "vocab.json"
    if settings.boolean("separate_vocabs", folder.contains("target_vocab.json")):
        target_file = "target_vocab.json"
    if target_file != "vocab.json" or decoder.vocabulary != encoder.vocabulary:
        target = _read_vocabulary(folder, target_file, decoder.vocabulary)
    for file, vocabulary in (("vocab.json", source), (target_file, target)):
        missing = [token for token in (unk, eos) if token not in vocabulary]
        if missing:
            raise CheckpointError(f"{folder.where(file)}: lacks {', '.join(map(shorten, missing))}")
    eos_id = decoding.integer("eos_token_id")
    if target.index(eos) != eos_id:
        raise decoding.error("eos_token_id", f"{target.index(eos)}, the id of {shorten(eos)} in {target_file}", eos_id)
    start_id = decoding.integer("decoder_start_token_id", decoding.integer("pad_token_id"))
    if start_id >= len(target) or not target[start_id]:
        raise decoding.error("decoder_start_token_id", f"the id of a token in {target_file}", start_id)
    # Only a model of several target languages has such tokens.
    languages = language_tokens([token for token in source if token.startswith(">>")])
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=unk,
        eos_token=eos,
        decoder_start_token=target[start_id],
        add_source_eos=True,
        source_model=bytes(folder.read("source.spm")),
        target_model=bytes(folder.read("target.spm")),
        source_language=settings.string("source_lang", ""),
        target_language="" if languages else settings.string("target_lang", ""),
        languages=languages,
    )


def _special_token(config: JsonObject, name: str, default: str) -> str:
    """A special token: a string, or an object with content and flags."""
    value = config.values.get(name)
    return config.nested(name).string("content") if isinstance(value, dict) else config.string(name, default)


def _read_vocabulary(folder: Folder, name: str, rows: int) -> tuple[str, ...]:
    """Tokens by id; "" for a spare row of the embedding."""
    tokens = read_ids(folder, name, rows)
    return tuple(tokens.get(index, "") for index in range(rows))


MARIAN = TranslatorArchitecture(
    ("MarianMTModel", "MarianModel"), _marian_spec, as_table(TABLE), _marian_text, _marian_names, _suppressed_ids
)
