"""Small ViTs and CLIPs, and pictures: their files from drawn weights, for the goldens and the tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.architectures.drawing import draw_all
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
