"""MarianMT models in Hugging Face directories: config.json, weights, vocab.json and .spm files -> a Checkpoint.

As transformers' MarianMTModel and MarianTokenizer have them (without sacremoses). The padding token, from which a
target starts, is never produced: its logit is minus infinity, as in the models that these were converted from.
"""

import math
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec import Checkpoint, ModelSpec, StackSpec
from fastattn.tensors import check_tensors
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.generation import are_ids, generation_values, id_lists, read_settings
from fastattn.weights.huggingface.marian_text import translation_text
from fastattn.weights.huggingface.weights import (
    ACTIVATIONS,
    check_layers,
    check_stored,
    read_weights,
    stored_precision,
)

NORM_EPSILON = 1e-5
# Rows of a position table that is computed, not stored: the number is nothing but a config's word.
MOST_POSITIONS = 1 << 13
# Of a vocabulary, which is looked through before there are weights to compare its size with: nothing more either.
MOST_TOKENS = 1 << 22
# Canonical name within a layer -> transformers'; several are joined, by their rows.
ENCODER_PARTS = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_attention.norm": ("self_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward.norm": ("final_layer_norm",),
}
DECODER_PARTS = ENCODER_PARTS | {
    "cross_attention.query": ("encoder_attn.q_proj",),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_attention.norm": ("encoder_attn_layer_norm",),
}
PARTS = {"encoder": ENCODER_PARTS, "decoder": DECODER_PARTS}
SHARED, SOURCE, TARGET, HEAD = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)
# Flags of config.json -> the one value that this architecture has; early configs were those of BART.
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
    """Read a directory; raises CheckpointError for what is malformed, incomplete or not supported.

    Everything else is read before the weights, which may not be there yet (``hub``).
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
    shared = config.boolean("share_encoder_decoder_embeddings", True)
    _tie(stored, shared, config.boolean("tie_word_embeddings", True))
    check_stored(_expected_shapes(spec, stored), stored, where)
    tensors = _tensors(spec, stored)
    tensors["decoder.projection.bias"][never_produced] = -np.inf
    check_tensors(spec, tensors, where)
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        text=text,
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.used),
    )


def _special_ids(config: JsonObject, generation: JsonObject) -> JsonObject:
    """By which special tokens transformers decodes: those of generation_config.json, else those of config.json."""
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
                heads=heads,
                key_heads=heads,
                head_width=width // heads,
                inner_width=config.integer(f"{name}_ffn_dim", minimum=1),
                vocabulary=rows,
                activation=ACTIVATIONS[config.string("activation_function", "gelu")],
                norm_epsilon=NORM_EPSILON,
                pre_norm=False,
                final_norm=False,
                embedding_scale=math.sqrt(width) if config.boolean("scale_embedding", False) else 1.0,
                positions="table",
                max_positions=config.integer("max_position_embeddings", minimum=1),
                cross_attention=name == "decoder",
                projection_bias=name == "decoder",
            )
        )
    return ModelSpec("encoder-decoder", *stacks)


def _check_sizes(config: JsonObject, spec: ModelSpec, stored: dict[str, StoredTensor], where: str) -> None:
    for stack in PARTS:
        check_layers(config, f"{stack}_layers", stored, where)
    positions = spec.encoder.max_positions
    if positions > MOST_POSITIONS and any(f"{stack}.embed_positions.weight" not in stored for stack in PARTS):
        raise config.error("max_position_embeddings", f"at most {MOST_POSITIONS}", positions)


def _find_unsupported(config: JsonObject) -> list[str]:
    """What changes the model and a ModelSpec cannot say."""
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
    """The padding token, and what bad_words_ids and suppress_tokens name alone; but never a sentence's end."""
    assert spec.decoder is not None
    ids = {word[0] for word in id_lists(generation, "bad_words_ids") if len(word) == 1}
    suppressed = generation.values.get("suppress_tokens") or []
    if not are_ids(suppressed):
        raise generation.error("suppress_tokens", "a list of ids", suppressed)
    ids |= {*suppressed, decoding.integer("pad_token_id")}
    for number in ids:
        if not 0 <= number < spec.decoder.vocabulary:
            raise decoding.error(
                "suppress_tokens, pad_token_id or one of bad_words_ids",
                f"an id below {spec.decoder.vocabulary}",
                number,
            )
    return sorted(ids - {decoding.integer("eos_token_id")})


def _tie(stored: dict[str, StoredTensor], shared: bool, tied: bool) -> None:
    """Give the embeddings and the output layer that share a tensor each its own name for it, in place.

    What a file holds under its own name stays that, as in transformers.
    """
    names = [name for name, joins in ((SHARED, shared), (TARGET, True), (SOURCE, shared), (HEAD, tied)) if joins]
    found = next((stored[name] for name in names if name in stored), None)
    for name in names:
        if name != SHARED and found is not None:
            stored.setdefault(name, found)
    if shared:
        stored.pop(SHARED, None)


def _expected_shapes(spec: ModelSpec, stored: dict[str, StoredTensor]) -> dict[str, tuple[int, ...]]:
    """transformers' name, without ``model.``, -> shape of every tensor; of those that may be absent only if there."""
    assert spec.decoder is not None
    width, target = spec.decoder.width, spec.decoder.vocabulary
    shapes: dict[str, tuple[int, ...]] = {HEAD: (target, width)}
    optional = {"final_logits_bias": (1, target)}
    for stack, described in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        shapes[f"{stack}.embed_tokens.weight"] = (described.vocabulary, width)
        optional[f"{stack}.embed_positions.weight"] = (described.max_positions, width)
        inner = described.inner_width
        for i in range(described.layers):
            for part in (part for parts in PARTS[stack].values() for part in parts):
                rows, columns = {"fc1": (inner, width), "fc2": (width, inner)}.get(part, (width, width))
                name = f"{stack}.layers.{i}.{part}"
                shapes[f"{name}.bias"] = (rows,)
                shapes[f"{name}.weight"] = (rows,) if part.endswith("layer_norm") else (rows, columns)
    return shapes | {name: shape for name, shape in optional.items() if name in stored}


# Weights that are not finite, or become so, pass unremarked: they are data.
@np.errstate(over="ignore", invalid="ignore")
def _tensors(spec: ModelSpec, stored: dict[str, StoredTensor]) -> dict[str, np.ndarray]:
    assert spec.decoder is not None
    tensors = _embeddings(stored)
    bias_V = np.zeros(spec.decoder.vocabulary, np.float32)
    if "final_logits_bias" in stored:
        bias_V += stored["final_logits_bias"].float32()[0]
    tensors["decoder.projection.bias"] = bias_V
    for stack, described in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        tensors[f"{stack}.positions"] = _positions(described, stored.get(f"{stack}.embed_positions.weight"))
        for i in range(described.layers):
            for canonical, parts in PARTS[stack].items():
                for end in ("weight", "bias"):
                    arrays = [stored[f"{stack}.layers.{i}.{part}.{end}"].float32() for part in parts]
                    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
                    tensors[f"{stack}.layers.{i}.{canonical}.{end}"] = joined
    return tensors


def _embeddings(stored: dict[str, StoredTensor]) -> dict[str, np.ndarray]:
    """Both embeddings and the output layer; those of the same values, which files may hold apart, are one array."""
    names = {"decoder.embedding.weight": TARGET, "decoder.projection.weight": HEAD, "encoder.embedding.weight": SOURCE}
    arrays: dict[str, np.ndarray] = {}
    for canonical, name in names.items():
        same = next((other for other in arrays if stored[names[other]] is stored[name]), None)
        array_VD = arrays[same] if same else stored[name].float32()
        arrays[canonical] = next((known for known in arrays.values() if np.array_equal(known, array_VD)), array_VD)
    return arrays


def _positions(spec: StackSpec, stored: StoredTensor | None) -> np.ndarray:
    """The stored table, or sines in the first half of a row and cosines in the second, of p / 10000^(2i/D).

    In float64, then rounded, as transformers computes it.
    """
    if stored is not None:
        return stored.float32()
    width, half = spec.width, (spec.width + 1) // 2
    angles_PH = np.arange(spec.max_positions)[:, None] / np.power(10000, 2 * np.arange(half) / width)
    table_PD = np.empty((spec.max_positions, width), np.float32)
    table_PD[:, :half] = np.sin(angles_PH)
    table_PD[:, half:] = np.cos(angles_PH[:, : width - half])
    return table_PD
