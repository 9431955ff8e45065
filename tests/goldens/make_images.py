"""Writes images.npz: what transformers makes of pictures and texts with the models of tests/images/cases.py."""

import os
import tempfile
from pathlib import Path

import numpy as np
import PIL
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from bench.torch_residual import ResidualNetwork
from bench.train import captions
from tests.architectures.goldens import pack_shapes
from tests.architectures.oracle import shapes_of
from tests.goldens.make_torch import drawn
from tests.goldens.writing import write_arrays
from tests.images import cases

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def outputs(case: cases.PictureCase, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """({what: float32}, shapes of the tensors): images, hidden states, vectors, and those of texts."""
    clip = case.config["model_type"] == "clip"
    kind = transformers.CLIPModel if clip else transformers.ViTModel
    kind(kind.config_class(**case.config)).save_pretrained(folder)
    shapes = shapes_of(folder)
    cases.write_case(folder, case, shapes)
    model = kind.from_pretrained(folder).eval()
    processor = (CLIPImageProcessorPil if clip else ViTImageProcessorPil).from_pretrained(folder)
    images = processor([Image.fromarray(one) for one in cases.pictures()], return_tensors="pt")["pixel_values"]
    found = {"images": images}
    with torch.no_grad():
        if clip:
            rows = model.vision_model(images).last_hidden_state
            found |= {"rows": model.vision_model.post_layernorm(rows)}
            found |= {"vectors": model.get_image_features(images).pooler_output}
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
            length = case.config["text_config"]["max_position_embeddings"]
            tokens = (tokenizer(text, truncation=True, max_length=length)["input_ids"] for text in cases.TEXTS)
            ids = [torch.tensor([one]) for one in tokens]
            found |= {"texts": torch.cat([model.get_text_features(one).pooler_output for one in ids])}
        else:
            rows = model(images).last_hidden_state
            found |= {"rows": rows, "vectors": rows[:, 0]}
    return {what: one.numpy() for what, one in found.items()}, shapes


def residual(case: cases.ResidualCase) -> tuple[np.ndarray, dict[str, tuple[int, ...]]]:
    """(the last grid of two images [2, D, y, x], shapes of the tensors)."""
    network = ResidualNetwork(case.blocks, case.widths, case.expansion, case.groups, case.gate, cases.STEM)
    network, shapes = drawn(network)
    with torch.no_grad():
        return network(torch.from_numpy(cases.image_of(case))).numpy(), shapes


def captioner() -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """({what: what the network of bench.train says of pictures and where it looks}, shapes of the tensors)."""
    model = captions.CaptionNet().eval()
    tensors = captions.named(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    with torch.no_grad():
        for name, array in cases.draw_captioner(shapes).items():
            tensors[name].copy_(torch.from_numpy(array))
    sentences, weights = model.caption(captions.as_tensor(cases.caption_pictures()))
    found = {f"captioner: weights {i}": one for i, one in enumerate(weights)}
    return found | {"captioner: sentences": np.array(sentences)}, shapes


if __name__ == "__main__":
    written, shapes = {}, {}
    for case in cases.CASES:
        with tempfile.TemporaryDirectory() as folder:
            found, shapes[case.name] = outputs(case, Path(folder))
        # of the images every seventh number, of the rows every third: enough to find whatever is wrong
        found["images"], found["rows"] = found["images"].reshape(-1)[::7], found["rows"][:, ::3]
        written |= {f"{case.name}: {what}": one for what, one in found.items()}
    for plain in cases.RESIDUAL_CASES:
        written[f"{plain.name}: grid"], shapes[plain.name] = residual(plain)
    found, shapes["captioner"] = captioner()
    write_arrays("images", {"shapes": pack_shapes(shapes), **written, **found}, transformers, torch, PIL)
