"""Residual networks in directories of timm: a plain ResNet, ResNeXt, SE-ResNet, or one with CBAM, without its classes.

config.json names the architecture and how a picture becomes an image; the rest is in the shapes of the tensors.
"""

import re

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import ArrayInput, Checkpoint
from fastattn.spec.images import PictureSpec
from fastattn.spec.tensors import check_tensors
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.images import channel_numbers, check_side
from fastattn.weights.huggingface.weights import read_weights
from fastattn.weights.residual_state import ResidualState

# Others of timm differ from these in what no tensor shows: their pooling, their strides.
PLAIN = re.compile(r"(tv_|wide_|se|cbam_?)*resne(x)?t\d*(_\d+x\d+d|_2)?")
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}


def is_residual(config: JsonObject) -> bool:
    """Whether the directory is one of timm's."""
    return config.has("architecture") and config.has("pretrained_cfg")


def read_residual(folder: Folder) -> Checkpoint:
    """Read a residual network; an image's vector is the mean of its last grid."""
    config = read_object(folder, "config.json")
    name = config.string("architecture")
    if not PLAIN.fullmatch(name) or config.nested("model_args").values or config.string("global_pool", "avg") != "avg":
        raise CheckpointError(
            f"{config.where}: only plain residual networks are supported, such as resnet50, resnext50_32x4d and "
            f"seresnet50, without model_args, averaged at the end; this is {shorten(name)}"
        )
    pictures, image = _read_pictures(config.nested("pretrained_cfg"))
    stored, where = read_weights(folder)
    state = ResidualState(stored, where)
    if state.stem_side != 7:  # others have other strides, which no tensor tells
        raise CheckpointError(f"{where}: conv1.weight should be 7 x 7")
    spec = ModelSpec("encoder", state.spec(image))  # type: ignore[arg-type]
    tensors = state.tensors(spec.encoder)  # type: ignore[arg-type]
    check_tensors(spec, tensors, where)
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        input=ArrayInput("CYX", image),
        format="timm",
        details={"architecture": name},
        files=tuple(folder.used),
        pictures=pictures,
    )


def _read_pictures(config: JsonObject) -> tuple[PictureSpec, tuple[int, int, int]]:
    """(what timm's transforms of evaluation do, channels, height and width of the image)."""
    size = config.values["input_size"] if config.has("input_size") else [3, 224, 224]
    if not isinstance(size, list) or len(size) != 3 or size[0] != 3 or not all(map(check_side, size)):
        raise config.error("input_size", "three channels, a height and a width", size)
    _, height, width = size
    share = config.number("crop_pct", 0.875)
    if not 0.1 <= share <= 1:
        raise config.error("crop_pct", "a number from 0.1 to 1", share)
    if config.string("crop_mode", "center") != "center" or height != width:
        raise CheckpointError(f"{config.where}: only squares from the middle of pictures are supported")
    resample = FILTERS[config.choice("interpolation", FILTERS, "bicubic")]
    mean, deviation = (channel_numbers(config, name, 0.5) for name in ("mean", "std"))
    shorter = int(height / share)
    return PictureSpec((0, shorter), resample, (height, width), 1 / 255, mean, deviation, rounds=True), (
        3,
        height,
        width,
    )
