"""ViTs and CLIPs: random processors' pixel values of random pictures, vectors of pictures, and CLIP's of texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.image_utils import load_image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import fastattn
from bench.differences import Case, Skipped, difference
from bench.differences.decoders import ACTIVATIONS
from bench.differences.encoders import FILE, make_texts
from bench.differences.folders import OPTION, VOCABULARY, loaded, write_model, write_tokenizer
from fastattn import weights
from fastattn.vision.pictures import open_picture, prepare_image

SIZES = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
IDS = {"bos_token_id": 1, "eos_token_id": 4, "pad_token_id": 0}
MODEL = {"image_size": [32, 24, 45], "patch_size": [16, 7, 5], "hidden_act": ACTIVATIONS, "layer_norm_eps": [1e-3]}
MODEL |= {"num_attention_heads": [1, 4], "num_hidden_layers": [1]}
# How a picture is resized, and further settings of preprocessor_config.json.
PROCESSOR: dict[str, list[Any]] = {
    "way": ["size", "named size", "shortest, crop", "shortest, named crop", "larger, crop", "smaller, crop", "crop"]
    + ["shortest, longest, crop", "number, crop", "list", "limits, crop"],
    "resample": [0, 1, 2, 3, 4, 5, None],
    "do_rescale": [False, None],
    "rescale_factor": [1 / 127.5, 0.01, None],
    "do_normalize": [False, None],
    "image_mean": [[0.1, 0.5, 0.9], 0.25, None],
    "image_std": [[0.2, 0.3, 2.0], 0.5, None],
    "do_pad": [False, None],
    "do_resize": [None],
    "data_format": ["channels_first"],
    "do_convert_rgb": [True, False, None],
    "nested": ["processor_config.json"],
}
# No pictures of 16 and 32 bits a pixel: transformers clips their values above 255.
MODES = {"PNG": ["RGB", "RGBA", "L", "LA", "P", "1"], "JPEG": ["RGB", "L", "CMYK"], "BMP": ["RGB", "L", "P", "1"]}
MODES |= {"GIF": ["P", "L"], "TIFF": ["RGB", "RGBA", "L", "CMYK", "LAB", "YCbCr"], "WEBP": ["RGB", "RGBA"]}
MODES |= {"PPM": ["RGB", "L", "1"], "TGA": ["RGB", "RGBA", "L"]}
PICTURES = {OPTION + "format": list(MODES), OPTION + "turned": [1, 3, 5, 6, 8], OPTION + "side": [1, 9, 200]}
SETTINGS = MODEL | {OPTION + name: values for name, values in PROCESSOR.items()} | PICTURES | FILE
CHOICES: dict[str, dict[str, list[Any]]] = {
    "vit": SETTINGS | {"image_size": [32, [24, 40], [45, 16]], "qkv_bias": [False], OPTION + "classes": [3]},
    "clip": SETTINGS | {"projection_dim": [7, 40]},
}


@torch.no_grad()
def compare(case: Case, folder: Path) -> str:
    chosen = {name: value for name, value in case.chosen.items() if not name.startswith(OPTION) and name not in FILE}
    sizes = SIZES | {"image_size": 32, "patch_size": 16} | chosen
    model_class = transformers.AutoModel
    try:
        if case.base == "clip":
            text = SIZES | IDS | {"vocab_size": VOCABULARY, "max_position_embeddings": 40}
            text |= {name: chosen[name] for name in ("hidden_act", "layer_norm_eps") if name in chosen}
            width = sizes.pop("projection_dim", 14)
            config = transformers.CLIPConfig(text_config=text, vision_config=sizes, projection_dim=width)
        else:
            config = transformers.ViTConfig(**sizes, num_labels=case.chosen.get(OPTION + "classes", 2))
            if OPTION + "classes" in case.chosen:
                model_class = transformers.AutoModelForImageClassification
        write_model(case, folder, config, model_class)
    except (ValueError, RuntimeError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        raise Skipped(str(error)) from None
    write_tokenizer(folder, "<s> $A <mask>", "<s> $A <mask> $B <mask>")
    size = sizes["image_size"]
    _write_processor(case, folder, size if isinstance(size, list) else [size, size])
    theirs, checkpoint = loaded(model_class, folder), weights.read(folder)
    encoder = fastattn.Encoder(folder, precision="float32", threads=1)
    for number in range(3):
        path = _write_picture(case, folder, number)
        try:
            processor = (CLIPImageProcessorPil if case.base == "clip" else ViTImageProcessorPil).from_pretrained(folder)
            pixels = processor(load_image(str(path)), return_tensors="pt")["pixel_values"].float()
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
            raise Skipped(str(error)) from None
        image_CYX = prepare_image(open_picture(path, ""), checkpoint.pictures, "")
        if fault := difference(f"pixels of {path.name}", image_CYX, pixels[0], 1e-6):
            return fault
        if case.base == "clip":
            expected = theirs.get_image_features(pixels).pooler_output[0]
        else:
            expected = getattr(theirs, "vit", theirs)(pixels).last_hidden_state[0, 0]
        if fault := difference("vector", encoder.encode_images(path), expected, 1e-4):
            return fault
    for text in make_texts(case) if case.base == "clip" else []:
        ids = torch.tensor([transformers.PreTrainedTokenizerFast.from_pretrained(folder)(text)["input_ids"]])
        expected = theirs.get_text_features(ids).pooler_output[0]
        if fault := difference("text's vector", encoder.encode(text), expected, 1e-4):
            return fault
    return ""


def _write_processor(case: Case, folder: Path, size: list[int]) -> None:
    settings = {name: case.chosen[OPTION + name] for name in PROCESSOR if OPTION + name in case.chosen}
    way, nested = settings.pop("way", "size"), settings.pop("nested", "")
    height, width = size
    named = {"height": height, "width": width}
    settings |= {"size": named, "do_center_crop": "crop" in way}
    if "crop" in way:
        settings["crop_size"] = height if height == width and "named" not in way else named
    if way == "size" and height == width and case.base == "vit":
        settings["size"] = height
    elif way.startswith("shortest"):
        settings["size"] = {"shortest_edge": max(size)} | ({"longest_edge": max(size) + 11} if "longest" in way else {})
    elif way.startswith("number"):
        settings["size"] = max(size)
    elif way == "list":
        settings["size"] = size
    elif way.startswith("limits"):
        settings["size"] = {"max_height": height, "max_width": width}
    elif way == "crop":
        settings["do_resize"] = False
    elif way != "named size":
        more = 9 if way.startswith("larger") else -7
        settings["size"] = {"height": height + more, "width": width + more} if way != "size" else named
    content = {"image_processor": settings} if nested else settings
    (folder / (nested or "preprocessor_config.json")).write_text(json.dumps(content))


def _write_picture(case: Case, folder: Path, number: int) -> Path:
    rng = np.random.default_rng([case.seed, number])
    form = case.chosen.get(OPTION + "format", "PNG")
    height, width = rng.integers(1, case.chosen.get(OPTION + "side", 60) + 1, 2)
    y, x, c = np.mgrid[:height, :width, :4]
    waves = np.sin(y / rng.uniform(1, 9) + c) + np.cos(x / rng.uniform(1, 9) - c) + rng.standard_normal(y.shape) / 3
    values = ((waves / 5 + 0.5).clip(0, 1) * 255).astype(np.uint8)
    picture, mode = Image.fromarray(values, "RGBA"), str(rng.choice(MODES[form]))
    exif = Image.Exif()
    exif[0x0112] = case.chosen.get(OPTION + "turned", 1)
    if mode != "RGBA":
        picture = (picture if mode == "LA" else picture.convert("RGB")).convert(mode)
    path = folder / f"{number} {mode}.{form.lower()}"
    picture.save(path, form, **({"exif": exif} if form in ("JPEG", "PNG", "TIFF", "WEBP") else {}))
    return path
