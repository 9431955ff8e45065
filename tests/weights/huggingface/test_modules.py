"""What follows the pooling of a sentence-transformers folder, in the order of modules.json."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.ops import reference
from fastattn.weights import read
from fastattn.weights.native import convert
from tests.cli.commands import succeed
from tests.verification.encoder_folders import write_bert
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

WIDTH = 36
BASE = "sentence_transformers.sentence_transformer.modules"
CONFIGS: dict[str, Any] = {
    "Pooling": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
    "Dropout": {"dropout": 0.3},
    "Dense": {"in_features": WIDTH, "out_features": 5, "activation_function": "torch.nn.modules.activation.Mish"},
    "LayerNorm": {"dimension": 5},
    "Normalize": {},
}
PATHS = {"Normalize": "sentence_transformers.base.modules", "Dense": "sentence_transformers.base.modules"}
rng = np.random.default_rng(5)
WEIGHT_FD, (BIAS_F, GAIN_F, SHIFT_F) = rng.normal(size=(5, WIDTH)).astype("f4"), rng.normal(size=(3, 5)).astype("f4")
TENSORS = {
    "Dense": {"linear.weight": WEIGHT_FD, "linear.bias": BIAS_F},
    "LayerNorm": {"norm.weight": GAIN_F, "norm.bias": SHIFT_F},
}


def write(folder: Path, *modules: str) -> Path:
    """A BERT's folder with these modules after its transformer."""
    write_bert(folder)
    entries = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, kind in enumerate(modules, 1):
        place = f"{number}_{kind}"
        entries.append({"path": place, "type": f"{PATHS.get(kind, BASE)}.{kind}"})
        write_json(folder / place / "config.json", CONFIGS[kind])
        if kind in TENSORS:
            (folder / place / "model.safetensors").write_bytes(safetensors_bytes(TENSORS[kind]))
    write_json(folder / "modules.json", [entry | {"idx": i, "name": str(i)} for i, entry in enumerate(entries)])
    return folder


def dense(x: np.ndarray) -> np.ndarray:
    x = WEIGHT_FD @ x + BIAS_F
    return x * np.tanh(np.log1p(np.exp(x)))


def norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * GAIN_F + SHIFT_F


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


STEPS = {"Dense": dense, "LayerNorm": norm, "Normalize": unit, "Dropout": lambda x: x}


@pytest.mark.parametrize(
    "modules",
    [
        ("Dropout", "Normalize", "Dense", "LayerNorm"),
        ("Dense", "Dropout", "LayerNorm", "Normalize"),
        ("Normalize", "Dense", "Normalize", "LayerNorm", "Normalize"),
    ],
)
def test_modules_in_any_order(modules: tuple[str, ...], tmp_path: Path) -> None:
    plain = Encoder.from_checkpoint(read(write(tmp_path / "plain", "Pooling")), ops=reference)
    expected = plain.encode("w5 w9 w7").astype(np.float64)
    for kind in modules:
        expected = STEPS[kind](expected)
    checkpoint = read(write(tmp_path / "theirs", "Pooling", *modules))
    (tmp_path / "ours").mkdir()
    convert.write(tmp_path / "ours", checkpoint, "float32")
    for one in (checkpoint, read(tmp_path / "ours")):
        encoder = Encoder.from_checkpoint(one, ops=reference)
        assert encoder.dimension == 5
        np.testing.assert_allclose(encoder.encode("w5 w9 w7"), expected, atol=1e-5)
    np.testing.assert_allclose(Encoder(tmp_path / "ours").encode("w5 w9 w7"), expected, atol=1e-5)


def test_inspect_names_them(tmp_path: Path) -> None:
    told = succeed("inspect", write(tmp_path / "model", "Pooling", "Normalize", "Dense", "LayerNorm"))
    lines = [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("dense")]
    assert lines == ["unit length", "36 to 5, mish", "layer norm"]


def test_they_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    peer: Any = pytest.importorskip("sentence_transformers")
    folder = write(tmp_path / "model", "Pooling", "Normalize", "Dense", "Dropout", "LayerNorm", "Normalize")
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(["w5 w9 w7"])[0]
    np.testing.assert_allclose(Encoder(folder).encode("w5 w9 w7"), expected, atol=1e-5)
