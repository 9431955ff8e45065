"""MarianMT models in Hugging Face directories: config.json, weights, vocab.json and .spm files -> a Checkpoint."""

import math
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import Tensor, equal
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject, read_object, read_optional, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.generation import generation_values, never_produced, read_settings
from fastattn.weights.huggingface.vocabulary_files import read_ids
from fastattn.weights.huggingface.weights import ACTIVATIONS, MISFIT, as_checkpoint, read_weights
from fastattn.weights.tensor_mapping import FirstRow, canonical_tensors, sources, zeros

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
    return as_checkpoint(folder, config, stored, spec=spec, tensors=tensors, input=text)


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
    """What the settings say, and the padding token where it is no end token."""
    assert spec.decoder is not None
    end, padding = decoding.integer("eos_token_id"), decoding.integer("pad_token_id")
    ids = {*never_produced(generation, [end]), *({padding} - {end})}
    for number in ids:
        if not 0 <= number < spec.decoder.vocabulary:
            raise decoding.error(
                "suppress_tokens, pad_token_id or one of bad_words_ids",
                f"an id below {spec.decoder.vocabulary}",
                number,
            )
    return sorted(ids)


SHARED, SOURCE, TARGET, HEAD = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)


def _sinusoids(shape: tuple[int, ...]) -> np.ndarray:
    """[positions, width]: sines in the first half of a row and cosines in the second, of p / 10000^(2i/D).

    In float64, then rounded, as transformers computes it.
    """
    positions, width = shape
    half = (width + 1) // 2
    angles_PH = np.arange(positions)[:, None] / np.power(10000, 2 * np.arange(half) / width)
    table_PD = np.empty((positions, width), np.float32)
    table_PD[:, :half] = np.sin(angles_PH)
    table_PD[:, half:] = np.cos(angles_PH[:, : width - half])
    return table_PD


TABLE = {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.positions": sources("STACK.embed_positions.weight", absent=_sinusoids),
    "STACK.layers.#.self_attention.qkv.*": sources(
        "STACK.layers.#.self_attn.q_proj.*", "STACK.layers.#.self_attn.k_proj.*", "STACK.layers.#.self_attn.v_proj.*"
    ),
    "STACK.layers.#.self_attention.output.*": sources("STACK.layers.#.self_attn.out_proj.*"),
    "STACK.layers.#.self_attention.norm.*": sources("STACK.layers.#.self_attn_layer_norm.*"),
    "decoder.layers.#.cross_attention.query.*": sources("decoder.layers.#.encoder_attn.q_proj.*"),
    "decoder.layers.#.cross_attention.key_value.*": sources(
        "decoder.layers.#.encoder_attn.k_proj.*", "decoder.layers.#.encoder_attn.v_proj.*"
    ),
    "decoder.layers.#.cross_attention.output.*": sources("decoder.layers.#.encoder_attn.out_proj.*"),
    "decoder.layers.#.cross_attention.norm.*": sources("decoder.layers.#.encoder_attn_layer_norm.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK.layers.#.fc1.*"),
    "STACK.layers.#.feed_forward.outer.*": sources("STACK.layers.#.fc2.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("STACK.layers.#.final_layer_norm.*"),
    "decoder.projection.weight": sources("lm_head.weight"),
    "decoder.projection.bias": sources(None, plus=FirstRow("final_logits_bias", rows=1), absent=zeros),
}


def read_translator_tensors(
    stored: dict[str, StoredTensor], spec: ModelSpec, shared: bool, tied: bool, where: str
) -> dict[str, np.ndarray]:
    """The tensors of a file, names without ``model.``; embeddings of equal values share one array.

    shared  whether both stacks share one embedding table
    tied    whether the output layer is the decoder's table
    """
    _tie(stored, shared, tied)
    return _with_equal_tables_tied(canonical_tensors(TABLE, spec, stored, where, MISFIT))


def _tie(stored: dict[str, StoredTensor], shared: bool, tied: bool) -> None:
    """Add the missing names of embeddings and output layer that share a tensor, in place.

    A tensor that the file has under its own name is kept, as in transformers.
    """
    names = [name for name, joins in ((SHARED, shared), (TARGET, True), (SOURCE, shared), (HEAD, tied)) if joins]
    found = next((stored[name] for name in names if name in stored), None)
    for name in names:
        if name != SHARED and found is not None:
            stored.setdefault(name, found)
    if shared:
        stored.pop(SHARED, None)


def _with_equal_tables_tied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors; embeddings and output layer of equal values, which files may store separately, share one array."""
    first, *others = ("decoder.embedding.weight", "decoder.projection.weight", "encoder.embedding.weight")
    known = [tensors[first]]
    for name in others:
        table_VD = tensors[name]
        tensors[name] = next((one for one in known if one is table_VD or equal(one, table_VD)), table_VD)
        known.append(tensors[name])
    return tensors


def translation_text(folder: Folder, decoding: JsonObject, spec: ModelSpec) -> TranslationText:
    """The text as in MarianTokenizer: pieces of the .spm files looked up in the vocabularies, then the end token.

    ``decoding`` is the config of generation. Raises CheckpointError if its ids and the vocabularies disagree.
    """
    assert spec.encoder is not None and spec.decoder is not None
    config = read_optional(folder, "tokenizer_config.json")
    unk, end = _token(config, "unk_token", "<unk>"), _token(config, "eos_token", "</s>")
    source = _read_vocabulary(folder, "vocab.json", spec.encoder.vocabulary)
    target, target_name = source, "vocab.json"
    if config.boolean("separate_vocabs", folder.contains("target_vocab.json")):
        target_name = "target_vocab.json"
    if target_name != "vocab.json" or spec.decoder.vocabulary != spec.encoder.vocabulary:
        target = _read_vocabulary(folder, target_name, spec.decoder.vocabulary)
    for name, tokens in (("vocab.json", source), (target_name, target)):
        lacking = [token for token in (unk, end) if token not in tokens]
        if lacking:
            raise CheckpointError(f"{folder.where(name)}: lacks {', '.join(map(shorten, lacking))}")
    end_id = decoding.integer("eos_token_id")
    if target.index(end) != end_id:
        raise decoding.error("eos_token_id", f"{target.index(end)}, the id of {shorten(end)} in {target_name}", end_id)
    start_id = decoding.integer("decoder_start_token_id", decoding.integer("pad_token_id"))
    if start_id >= len(target) or not target[start_id]:
        raise decoding.error("decoder_start_token_id", f"the id of a token in {target_name}", start_id)
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=unk,
        eos_token=end,
        decoder_start_token=target[start_id],
        add_source_eos=True,
        source_model=bytes(folder.read("source.spm")),
        target_model=bytes(folder.read("target.spm")),
        source_language=config.string("source_lang", ""),
        target_language=config.string("target_lang", ""),
    )


def _token(config: JsonObject, name: str, default: str) -> str:
    """A special token: a string, or an object with flags and its content."""
    value = config.values.get(name)
    return config.nested(name).string("content") if isinstance(value, dict) else config.string(name, default)


def _read_vocabulary(folder: Folder, name: str, rows: int) -> tuple[str, ...]:
    """Tokens by id; "" for an id without a token, as embeddings may have spare rows."""
    tokens = read_ids(folder, name, rows)
    return tuple(tokens.get(index, "") for index in range(rows))
