"""Small ViTs and CLIPs, and pictures: their files from drawn weights, for the goldens and the tests."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests import GOLDENS
from tests.architectures.drawing import draw, draw_all
from tests.architectures.folders import write_tokenizer
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class PictureCase:
    """A model's config.json and its image processor's."""

    name: str
    config: dict[str, Any]
    processor: dict[str, Any]


def _vit(name: str, height: int, width: int, patch: int, **more: Any) -> PictureCase:
    config = {
        "model_type": "vit", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 40, "image_size": [height, width], "patch_size": patch,
    }  # fmt: skip
    processor = {"size": {"height": height, "width": width}, "do_convert_rgb": True}
    return PictureCase(name, config | more, processor)


def _clip(name: str, size: int, patch: int, shortest: int, act: str) -> PictureCase:
    both = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": act}
    text = both | {
        "hidden_size": 16, "intermediate_size": 30, "vocab_size": 30, "max_position_embeddings": 12,
        "bos_token_id": 1, "eos_token_id": 4, "pad_token_id": 0,
    }  # fmt: skip
    vision = both | {"hidden_size": 20, "intermediate_size": 36, "image_size": size, "patch_size": patch}
    processor = {"size": {"shortest_edge": shortest}, "crop_size": {"height": size, "width": size}}
    config = {"model_type": "clip", "text_config": text, "vision_config": vision, "projection_dim": 14}
    return PictureCase(name, config, processor)


CASES = (
    _vit("vit", 32, 48, 16),
    _vit("vit without a query's bias", 30, 30, 7, qkv_bias=False, hidden_act="gelu_new"),
    _vit("vit of one patch", 8, 8, 8, hidden_act="relu", num_hidden_layers=1),
    _clip("clip", 32, 16, 32, "quick_gelu"),
    _clip("clip of small pictures", 40, 13, 24, "gelu"),
)
TEXTS = ("w7 w8 w9", "w7", "", " ".join(["w11"] * 20))


def pictures() -> list[np.ndarray]:
    """Of several shapes, uint8 [Y, X, 3]: waves, so that filters differ."""
    made = []
    for number, (height, width) in enumerate(((50, 41), (33, 90), (7, 9), (64, 64))):
        y, x, c = np.mgrid[:height, :width, :3]
        wave = np.sin(y / (2 + number) + c) + np.cos(x / 3 - c * number) + ((x * y + c) % 7 - 3) / 6
        made.append((np.clip(wave / 5 + 0.5, 0, 1) * 255).astype(np.uint8))
    return made


def write_case(folder: Path, case: PictureCase, shapes: Shapes) -> None:
    """The folder that transformers reads, and fastattn."""
    write_json(folder / "config.json", case.config)
    write_json(folder / "preprocessor_config.json", case.processor)
    drawn = draw_all({name: shape for name, shape in shapes.items() if shape}, 5)  # not the logits' scale
    for name, tensor in drawn.items():  # which draw takes for biases
        if tensor.ndim == 4:
            drawn[name] = (tensor / (0.3 * np.sqrt(tensor[0].size))).astype(np.float32)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(drawn))
    if case.config["model_type"] == "clip":
        write_tokenizer(folder, "clip", case.config["text_config"]["vocab_size"])


@dataclass(frozen=True)
class ResidualCase:
    """The arguments of bench.torch_residual.ResidualNetwork, and the side of an image."""

    name: str
    blocks: tuple[int, ...]
    widths: tuple[int, ...]
    expansion: int
    groups: int
    gate: str
    size: int


RESIDUAL_CASES = (
    ResidualCase("plain", (2, 1), (16, 24), 1, 1, "none", 37),
    ResidualCase("squeeze and excitation", (1, 2), (8, 16), 4, 1, "squeeze-excitation", 40),
    ResidualCase("cbam in groups", (1, 1), (16, 32), 2, 4, "cbam", 33),
)
STEM = 12


def image_of(case: ResidualCase) -> np.ndarray:
    """Two images, float32 [2, 3, Y, X]."""
    rng = np.random.default_rng(case.size)
    return rng.standard_normal((2, 3, case.size, case.size)).astype(np.float32)


def draw_state(shapes: Shapes) -> dict[str, np.ndarray]:
    """The state dict: convolutions that keep the size of their input, variances above zero."""
    state = {}
    for name, shape in shapes.items():
        if len(shape) == 4:
            state[name] = draw(name, (shape[0], shape[1] * shape[2] * shape[3]), 3).reshape(shape)
        elif shape:
            drawn, positive = draw(name, shape, 3), len(shape) == 1 and name.endswith(("running_var", "weight"))
            state[name] = np.abs(drawn) + np.float32(0.5) if positive else drawn
    return state


def write_residual(case: ResidualCase, shapes: Shapes, folder: Path) -> Path:
    """The directory as timm has it on the hub."""
    settings = {"input_size": [3, case.size, case.size], "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
    config = {"architecture": "resnet", "pretrained_cfg": settings | {"interpolation": "bicubic", "crop_pct": 0.9}}
    write_json(folder / "config.json", config)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(draw_state(shapes)))
    return folder


FILE = GOLDENS / "images.npz"


def read_shapes(name: str) -> Shapes:
    """The shapes of a case's tensors."""
    with np.load(FILE) as goldens:
        return {tensor: tuple(shape) for tensor, shape in json.loads(goldens["shapes"].tobytes())[name].items()}


def read_golden(name: str, what: str) -> np.ndarray:
    """The case's "images" (every seventh number), "rows" (every third of an image's), "vectors" or "texts"."""
    with np.load(FILE) as goldens:
        return goldens[f"{name}: {what}"]


WORDS = "</s> <s> a red green blue yellow circle square triangle above left of".split()
MAPPING = """like = "captioner"
[pictures]
side = 64
mean = 0.5
std = 0.25
"""


def caption_pictures() -> list[np.ndarray]:
    """Three pictures, uint8 [64, 64, 3]."""
    y, x, c = np.mgrid[:64, :64, :3]
    return [((y * (2 + n) + x * (3 - n) + 40 * c * n) % 256).astype(np.uint8) for n in range(3)]


def draw_captioner(shapes: Shapes) -> dict[str, np.ndarray]:
    """Its tensors, of which those that choose words are large, so that words differ."""
    drawn = draw_state({name: shape for name, shape in shapes.items() if shape})
    large = ("decoder.projection.weight", "decoder.readout.weight", "decoder.attention.score.weight")
    return {name: array * np.float32(3) if name in large else array for name, array in drawn.items()}


def write_captioner(folder: Path) -> Path:
    """The folder."""
    (folder / "model.safetensors").write_bytes(safetensors_bytes(draw_captioner(read_shapes("captioner"))))
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    (folder / "fastattn.toml").write_text(MAPPING, encoding="utf-8")
    return folder


MODULES_FILE = GOLDENS / "vision.npz"


@dataclass(frozen=True)
class ModuleCase:
    """twin  the name of what makes it, and its arguments; views: methods beside the call, the twin's too."""

    name: str
    twin: tuple[Any, ...]
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    views: tuple[str, ...] = ()


MODULE_CASES = (
    ModuleCase("SqueezeExcitation", ("SqueezeExcitation", 6, 3), (2, 6, 4, 5)),
    ModuleCase("CBAM", ("Cbam", 6, 3), (2, 6, 5, 8)),
    ModuleCase("SelectiveKernel", ("SelectiveKernel", 4, 6, 2, 3, 2, 2), (2, 4, 7, 6), {"stride": 2, "groups": 2}),
    ModuleCase("SelectiveKernel", ("SelectiveKernel", 6, 4, 3, 2, 1, 1, True), (1, 6, 5, 5), {"split": True}),
    ModuleCase("SpatialTransformer", ("SpatialTransformer", [2, 3, 4], [3, 2], 16, 5), (2, 2, 13, 13)),
    ModuleCase(
        "SpatialTransformer", ("SpatialTransformer", [1, 3], [3], 75, 5, (4, 9)), (2, 1, 12, 12), {"size": (4, 9)}
    ),
    ModuleCase(
        "DynamicCapacity", ("dynamic_capacity", [2, 4, 5], [2, 5], 3, 4, 5), (2, 2, 13, 18),
        {"patches": 4, "side": 5}, ("saliency",),
    ),
    ModuleCase("ResidualAttention", ("ResidualAttention", 4, 2, 2), (2, 4, 9, 7)),
    ModuleCase("MultiScaleAttention", ("MultiScaleAttention", [2, 4, 3], 5), (2, 2, 9, 6)),
    ModuleCase("PatchAttention", ("PatchAttention", 6, 2, 10, 2, 3), (2, 2, 7, 9), {"heads": 2}),
    ModuleCase("PatchAttention", ("PatchAttention", 8, 4, 6), (1, 8, 3, 5), {"heads": 4}),
)  # fmt: skip


def images_of(case: ModuleCase) -> np.ndarray:
    return np.random.default_rng(case.shape).standard_normal(case.shape).astype(np.float32)


def state_of(case: ModuleCase) -> dict[str, np.ndarray]:
    """The drawn state dict, of the shapes that the golden has."""
    with np.load(MODULES_FILE) as goldens:
        shapes = json.loads(goldens["shapes"].tobytes())[str(MODULE_CASES.index(case))]
    return draw_state({name: tuple(shape) for name, shape in shapes.items()})


def golden(case: ModuleCase, view: str = "") -> np.ndarray:
    """What the twin made of the images."""
    with np.load(MODULES_FILE) as goldens:
        return goldens[f"{MODULE_CASES.index(case)}{view}"]


def write_golden_images(case: PictureCase, folder: Path) -> Path:
    """The case's folder."""
    write_case(folder, case, read_shapes(case.name))
    return folder
