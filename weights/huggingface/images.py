"""Encoders of images in Hugging Face directories: ViT (Dosovitskiy 2021), CLIP (Radford 2021), networks of timm.

config.json of a network of timm (a plain ResNet, ResNeXt, SE-ResNet or one with CBAM, without its classifier) says the
name and how a picture becomes an image; the architecture follows from the shapes of the tensors.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint
from fastattn.spec.images import MAX_SIDE, PatchSpec, PictureSpec
from fastattn.spec.tensors import check_tensors
from fastattn.weights.containers.json_file import JsonObject, read_object, read_optional, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.architecture import activation, count_layers, even_heads, refuse
from fastattn.weights.huggingface.encoders import take_projection
from fastattn.weights.huggingface.tokenizer import read_text
from fastattn.weights.huggingface.weights import MISFIT, as_checkpoint, read_weights
from fastattn.weights.residual_state import ResidualState
from fastattn.weights.tensor_mapping import TensorSources, check_sources, make_tensors, map_tensors, sources, zeros

# transformers' defaults of settings that files omit: of models, then of their image processors.
VIT_DEFAULTS = {"image_size": 224, "patch_size": 16, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
CLIP_DEFAULTS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "num_hidden_layers": 12}
VISION_DEFAULTS = CLIP_DEFAULTS | {
    "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 32, "num_channels": 3,
}  # fmt: skip
TEXT_DEFAULTS = CLIP_DEFAULTS | {
    "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
    "max_position_embeddings": 77, "vocab_size": 49408,
}  # fmt: skip
VIT_PROCESSOR = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2, "size": 224, "do_center_crop": False}
CLIP_PROCESSOR = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3, "size": {"shortest_edge": 224}, "crop_size": 224, "do_convert_rgb": True,
}  # fmt: skip
# Settings that each turn on a step; null leaves the step out, as in transformers.
STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")

_QKV = tuple(f"encoder.layer.#.attention.attention.{name}.*" for name in ("query", "key", "value"))
VIT = {
    "encoder.patches.*": sources("embeddings.patch_embeddings.projection.*"),
    "encoder.positions": sources("embeddings.position_embeddings"),
    "encoder.layers.#.self_attention.norm.*": sources("encoder.layer.#.layernorm_before.*"),
    "encoder.layers.#.self_attention.qkv.weight": sources(*_QKV),
    "encoder.layers.#.self_attention.qkv.bias": sources(*_QKV, default=zeros),
    "encoder.layers.#.self_attention.output.*": sources("encoder.layer.#.attention.output.dense.*"),
    "encoder.layers.#.feed_forward.norm.*": sources("encoder.layer.#.layernorm_after.*"),
    "encoder.layers.#.feed_forward.inner.*": sources("encoder.layer.#.intermediate.dense.*"),
    "encoder.layers.#.feed_forward.outer.*": sources("encoder.layer.#.output.dense.*"),
    "encoder.final_norm.*": sources("layernorm.*"),
}


def _clip_blocks(stack: str, prefix: str) -> dict[str, TensorSources]:
    layer, canonical = f"{prefix}.encoder.layers.#", f"{stack}.layers.#"
    return {
        f"{canonical}.self_attention.norm.*": sources(f"{layer}.layer_norm1.*"),
        f"{canonical}.self_attention.qkv.*": sources(*(f"{layer}.self_attn.{part}_proj.*" for part in "qkv")),
        f"{canonical}.self_attention.output.*": sources(f"{layer}.self_attn.out_proj.*"),
        f"{canonical}.feed_forward.norm.*": sources(f"{layer}.layer_norm2.*"),
        f"{canonical}.feed_forward.inner.*": sources(f"{layer}.mlp.fc1.*"),
        f"{canonical}.feed_forward.outer.*": sources(f"{layer}.mlp.fc2.*"),
    }


CLIP = {
    "encoder.embedding.weight": sources("text_model.embeddings.token_embedding.weight"),
    "encoder.positions": sources("text_model.embeddings.position_embedding.weight"),
    "encoder.final_norm.*": sources("text_model.final_layer_norm.*"),
    **_clip_blocks("encoder", "text_model"),
    "images.patches.weight": sources("vision_model.embeddings.patch_embedding.weight"),
    "images.patches.bias": sources(None),
    "images.positions": sources("vision_model.embeddings.position_embedding.weight"),
    "images.embedding_norm.*": sources("vision_model.pre_layrnorm.*"),
    "images.final_norm.*": sources("vision_model.post_layernorm.*"),
    **_clip_blocks("images", "vision_model"),
}


def read_vit(folder: Folder) -> Checkpoint:
    """Read a ViT, without its head; an image's vector is the first row of the last hidden states."""
    config = read_object(folder, "config.json")
    spec = _patch_spec(_with_defaults(VIT_DEFAULTS, config))
    pictures = _read_pictures(folder, spec, VIT_PROCESSOR)
    stored, where = read_weights(folder)
    stored = {name.removeprefix("vit."): tensor for name, tensor in stored.items()}
    stored = {name: tensor for name, tensor in stored.items() if not name.startswith(("pooler.", "classifier."))}
    model = ModelSpec("encoder", spec)  # type: ignore[arg-type]
    tensors = _read_tensors(model, VIT, stored, "encoder", "embeddings.cls_token", where)
    image_input = ArrayInput("CYX", spec.image)
    return as_checkpoint(folder, config, stored, spec=model, tensors=tensors, input=image_input, pictures=pictures)


def read_clip(folder: Folder) -> Checkpoint:
    """Read a CLIP: an encoder of texts, by their last token, and one of images, both projected to the same width."""
    config = read_object(folder, "config.json")
    images = _patch_spec(_nested_config(VISION_DEFAULTS, config, "vision_config"), embedding_norm=True)
    text_config = _nested_config(TEXT_DEFAULTS, config, "text_config")
    text_spec = _block_spec(text_config, text_config.integer("max_position_embeddings", minimum=1), causal=True)
    text = read_text(folder, "", text_config, text_spec)
    pictures = _read_pictures(folder, images, CLIP_PROCESSOR)
    stored, where = read_weights(folder)
    text_projection_ED, image_projection_ED = (
        take_projection(stored, f"{name}_projection.weight", width, where)
        for name, width in (("text", text_spec.width), ("visual", images.width))
    )
    ignored_names = ("logit_scale", "text_model.embeddings.position_ids", "vision_model.embeddings.position_ids")
    stored = {name: tensor for name, tensor in stored.items() if name not in ignored_names}
    spec = ModelSpec("encoder", text_spec, images=images)  # type: ignore[arg-type]
    tensors = _read_tensors(spec, CLIP, stored, "images", "vision_model.embeddings.class_embedding", where)
    text = replace(text, pooling=("lasttoken",), dense=((text_projection_ED, None, "none"),), token_types=False)
    pictures = replace(pictures, projection_ED=image_projection_ED)
    return as_checkpoint(folder, config, stored, spec=spec, tensors=tensors, input=text, pictures=pictures)


def _with_defaults(defaults: dict[str, Any], config: JsonObject) -> JsonObject:
    values = {name: value for name, value in config.values.items() if value is not None}
    return JsonObject(defaults | values, config.where)


def _nested_config(defaults: dict[str, Any], config: JsonObject, name: str) -> JsonObject:
    """The object ``name`` in config.json; as in transformers, old files' object ``name_dict`` takes precedence."""
    nested = config.nested(name)
    return _with_defaults(defaults, JsonObject(config.nested(f"{name}_dict").values or nested.values, nested.where))


def _block_spec(config: JsonObject, positions: int, causal: bool = False, embedding_norm: bool = False) -> StackSpec:
    attention = even_heads(config)
    return StackSpec(
        layers=count_layers(config),
        width=attention.query_width,
        vocabulary=config.integer("vocab_size", minimum=1) if causal else 0,
        attention=attention,
        feed_forward=FeedForwardSpec(config.integer("intermediate_size", minimum=1), activation(config)),
        norms=NormSpec("layer", config.number("layer_norm_eps"), embedding=embedding_norm),
        positions=PositionSpec("table", limit=positions),
        causal=causal,
    )


def _patch_spec(config: JsonObject, embedding_norm: bool = False) -> PatchSpec:
    (height, width), patch = _sides(config, "image_size"), _sides(config, "patch_size")
    positions = 1 + (height // patch[0]) * (width // patch[1])
    image = (config.integer("num_channels", minimum=1), height, width)
    return PatchSpec(_block_spec(config, positions, embedding_norm=embedding_norm), image, patch)


def _is_side(value: object) -> bool:
    """Whether ``value`` may be the side of an image."""
    return type(value) is int and 0 < value <= MAX_SIDE


def _sides(config: JsonObject, name: str) -> tuple[int, int]:
    """(height, width) of a setting that is a list, an object, or one number for both."""
    value = config.values.get(name)
    if isinstance(value, dict):
        value = [value.get("height"), value.get("width")]
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2 or not all(map(_is_side, sides)):
        raise config.error(name, f"a height and a width from 1 to {MAX_SIDE}", config.values.get(name))
    height, width = map(int, sides)
    return height, width


def _read_pictures(folder: Folder, spec: PatchSpec, defaults: dict[str, Any]) -> PictureSpec:
    """The steps of the directory's image processor, as in transformers; any step may be left out."""
    config = read_optional(folder, "preprocessor_config.json")
    if not config.values:
        config = read_optional(folder, "processor_config.json").nested("image_processor")
    refuse(config, do_pad=False, pad_size={})
    omitted_steps = {step: False for step in STEPS if config.values.get(step, True) is None}
    config = _with_defaults(defaults, JsonObject(config.values | omitted_steps, config.where))
    size, crop = (0, 0), (0, 0)
    if config.boolean("do_resize", True):
        size_value = config.values["size"]
        shortest_edge = size_value.get("shortest_edge") if isinstance(size_value, dict) else None
        if shortest_edge is not None and size_value.get("longest_edge") is not None:
            raise config.error("size", "a shortest edge without a longest one, or a height and a width", size_value)
        if shortest_edge is None and type(size_value) is int and "crop_size" in defaults:  # old files have a number
            shortest_edge = size_value
        size = _sides(JsonObject({"size": shortest_edge}, config.where) if shortest_edge else config, "size")
        size = (0, size[0]) if shortest_edge else size
    if config.boolean("do_center_crop", True):
        crop = _sides(config, "crop_size")
    sides = crop if crop != (0, 0) else size
    if sides != spec.image[1:]:
        raise CheckpointError(f"{config.where}: pictures become {list(sides)}, the model takes {list(spec.image[1:])}")
    if spec.image[0] != 3:
        raise CheckpointError(f"{config.where}: pictures have 3 channels, the model takes {spec.image[0]}")
    resample = config.integer("resample")
    if resample > 5:
        raise config.error("resample", "the number of a filter from 0 to 5", resample)
    factor = 1.0
    mean: tuple[float, ...] = (0.0,) * 3
    deviation: tuple[float, ...] = (1.0,) * 3
    if config.boolean("do_rescale", True):
        factor = config.number("rescale_factor", 1 / 255)
        if not 1e-6 < abs(factor) < 1e6:
            raise config.error("rescale_factor", "a factor of pixels from 0 to 255", factor)
    if config.boolean("do_normalize", True):
        mean, deviation = (_channel_numbers(config, name) for name in ("image_mean", "image_std"))
    lays_on_white = config.boolean("do_convert_rgb", False)
    return PictureSpec(size, resample, crop, factor, mean, deviation, white=lays_on_white)


def _channel_numbers(config: JsonObject, name: str, default: float | None = None) -> tuple[float, ...]:
    """A number for each of three channels, not 0 if the numbers are deviations."""
    value = config.values[name] if config.has(name) else default
    channels = value if isinstance(value, list) else [value] * 3
    numbers = tuple(JsonObject({name: channel}, config.where).number(name) for channel in channels)
    if len(numbers) != 3 or (name.endswith("std") and not all(abs(channel) > 1e-30 for channel in numbers)):
        raise config.error(name, "a number for each of 3 channels", value)
    return numbers


def _read_tensors(
    spec: ModelSpec,
    table: Mapping[str, TensorSources],
    stored: dict[str, StoredTensor],
    stack: str,
    class_token: str,
    where: str,
) -> dict[str, Any]:
    """The tensors of a model whose ``stack`` takes patches; ``class_token``: stored name of the token's embedding."""
    patches, layers = spec.stacks[stack], sum(stack_spec.layers for stack_spec in spec.stacks.values())
    assert isinstance(patches, PatchSpec)
    if layers > len(stored):  # refused before the names of so many layers fill memory
        raise CheckpointError(f"{where}: {counted(len(stored), 'tensor')}, fewer than the {layers:,} layers")
    mapping = map_tensors(table, spec)
    class_row = {"class token": TensorSources((class_token,), shape=(patches.width,))}
    column_shapes = {f"{stack}.patches.weight": (patches.image[0], *patches.patch), f"{stack}.positions": ()}
    for name, column_shape in column_shapes.items():
        (stored_name,) = mapping[name].names
        stored = stored | _reshaped(stored, str(stored_name), mapping[name].shape, column_shape)
    stored = stored | _reshaped(stored, class_token, (patches.width,), ())
    check_sources(mapping | class_row, stored, where, MISFIT)
    tensors: dict[str, Any] = make_tensors(mapping, stored)
    positions_PD = tensors[f"{stack}.positions"].copy()
    # The class token is a patch of zeros: the layer of patches adds its bias there too.
    positions_PD[0] += stored[class_token].vector - tensors[f"{stack}.patches.bias"]
    return tensors | {f"{stack}.positions": positions_PD}


def _reshaped(
    stored: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], column_shape: tuple[int, ...]
) -> dict[str, StoredTensor]:
    """{name: the tensor in ``shape``}; {} unless the axes behind the first are ``column_shape``.

    Where that is (), the shapes have to be equal but for axes of size 1.
    """
    tensor = stored.get(name)
    if tensor is None or tensor.strides is not None or prod(tensor.shape) != prod(shape):
        return {}
    sizes = tensor.shape[1:] if column_shape else tuple(size for size in tensor.shape if size > 1)
    expected = column_shape or tuple(size for size in shape if size > 1)
    return {name: replace(tensor, shape=shape)} if sizes == expected else {}


# Names of networks with the common pooling and strides, which no tensor shows.
NETWORKS = re.compile(r"(tv_|wide_|se|cbam_?)*resne(x)?t\d*(_\d+x\d+d|_2)?")
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}  # timm's name -> Pillow's number


def is_timm(config: JsonObject) -> bool:
    """Whether the directory has a network of timm."""
    return config.has("architecture") and config.has("pretrained_cfg")


def read_residual(folder: Folder) -> Checkpoint:
    """Read a residual network; an image's vector is the mean over the places of the last layer's output."""
    config = read_object(folder, "config.json")
    name = config.string("architecture")
    is_averaged = config.string("global_pool", "avg") == "avg"
    if not NETWORKS.fullmatch(name) or config.nested("model_args").values or not is_averaged:
        raise CheckpointError(
            f"{config.where}: only plain residual networks are supported, such as resnet50, resnext50_32x4d and "
            f"seresnet50, without model_args, averaged at the end; this is {shorten(name)}"
        )
    pictures, image = _timm_pictures(config.nested("pretrained_cfg"))
    stored, where = read_weights(folder)
    state = ResidualState(stored, where)
    if state.stem_side != 7:  # networks with another window have other strides, which no tensor shows
        raise CheckpointError(f"{where}: conv1.weight should be 7 x 7")
    spec = ModelSpec("encoder", state.spec(image))  # type: ignore[arg-type]
    tensors = state.tensors(spec.encoder)  # type: ignore[arg-type]
    check_tensors(spec, tensors, where)
    details, files = {"architecture": name}, tuple(folder.files_read)
    return Checkpoint(
        spec, tensors, ArrayInput("CYX", image), format="timm", details=details, files=files, pictures=pictures
    )


def _timm_pictures(config: JsonObject) -> tuple[PictureSpec, tuple[int, int, int]]:
    """(the steps of timm's transforms for evaluation, the image's channels, height and width)."""
    size = config.values["input_size"] if config.has("input_size") else [3, 224, 224]
    if not isinstance(size, list) or len(size) != 3 or size[0] != 3 or not all(map(_is_side, size)):
        raise config.error("input_size", "three channels, a height and a width", size)
    _, height, width = size
    crop_share = config.number("crop_pct", 0.875)
    if not 0.1 <= crop_share <= 1:
        raise config.error("crop_pct", "a number from 0.1 to 1", crop_share)
    if config.string("crop_mode", "center") != "center" or height != width:
        raise CheckpointError(f"{config.where}: only squares from the middle of pictures are supported")
    resample = FILTERS[config.choice("interpolation", FILTERS, "bicubic")]
    mean, deviation = (_channel_numbers(config, name, 0.5) for name in ("mean", "std"))
    shorter_side = (0, int(height / crop_share))
    pictures = PictureSpec(shorter_side, resample, (height, width), 1 / 255, mean, deviation, rounds=True)
    return pictures, (3, height, width)
