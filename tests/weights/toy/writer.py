"""Checkpoints as toy folders, which the exporter beside this reads."""

import json
from pathlib import Path

import numpy as np

from fastattn.spec.checkpoint import Checkpoint

LINEAR = {
    "self_attention.qkv": ("look/q", "look/k", "look/v"),
    "self_attention.output": ("look/out",), "cross_attention.query": ("read/q",),
    "cross_attention.key_value": ("read/k", "read/v"),
    "cross_attention.output": ("read/out",), "feed_forward.inner": ("think/in",),
    "feed_forward.outer": ("think/out",), "projection": ("say",),
}  # fmt: skip
NORMS = {
    "self_attention.norm": "look/norm", "cross_attention.norm": "read/norm", "feed_forward.norm": "think/norm",
    "final_norm": "norm",
}  # fmt: skip


def arrays_of(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The tensors as a toy has them."""
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in checkpoint.tensors.items():
        place, _, end = name.replace(".layers.", "/").rpartition(".")
        stack, _, part = place.partition(".")
        if part in LINEAR:
            for theirs, piece in zip(LINEAR[part], np.split(tensor, len(LINEAR[part])), strict=True):
                arrays[f"{stack}/{theirs}/{end}"] = piece.T
        elif part in NORMS:
            arrays[f"{stack}/{NORMS[part]}/{'scale' if end == 'weight' else 'shift'}"] = tensor
        else:
            assert part == "embedding"
            arrays[f"{stack}/words"] = tensor
    return arrays


def write(path: Path, checkpoint: Checkpoint, **changes: object) -> Path:
    """``changes`` of toy.json."""
    arrays, encoder = arrays_of(checkpoint), checkpoint.spec.encoder
    config = {
        "layers": encoder.layers, "width": encoder.width, "heads": encoder.attention.heads,
        "inner_width": encoder.feed_forward.inner_width, "words": checkpoint.text.source_vocabulary,
        "arrays": {name: array.shape for name, array in arrays.items()},
    }  # fmt: skip
    path.mkdir(exist_ok=True)
    (path / "toy.json").write_text(json.dumps(config | changes), encoding="utf-8")
    (path / "toy.floats").write_bytes(b"".join(array.astype("<f4").tobytes() for array in arrays.values()))
    return path
