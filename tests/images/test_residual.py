"""Residual networks with timm's names against PyTorch's goldens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import Encoder
from fastattn.errors import CheckpointError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, reference
from fastattn.spec.images import ResidualSpec
from fastattn.vision.pictures import pixel_rows
from fastattn.weights import read
from tests.images.cases import pictures
from tests.images.goldens import read_golden, read_shapes
from tests.images.residual_cases import RESIDUAL_CASES, ResidualCase, draw_state, image_of, write_residual
from tests.weights.containers.safetensors_writer import safetensors_bytes


def grid_of(folder: Path, case: ResidualCase, ops: Any, precision: str = "float32") -> np.ndarray:
    """The last grid of its images, [2, D, y, x]."""
    checkpoint = read(folder)
    spec: Any = checkpoint.spec.encoder
    assert isinstance(spec, ResidualSpec)
    rows = [pixel_rows(image, spec) for image in image_of(case)]
    rows_ND, _ = build_model(checkpoint, ops, precision).encode(rows)
    return np.asarray(rows_ND).reshape(2, *spec.grid, -1).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("ops", [cpu, reference])
@pytest.mark.parametrize("case", RESIDUAL_CASES, ids=lambda case: case.name)
def test_the_last_grid_is_that_of_pytorch(case: ResidualCase, ops: Any, tmp_path: Path) -> None:
    write_residual(case, read_shapes(case.name), tmp_path)
    expected = read_golden(case.name, "grid")
    np.testing.assert_allclose(grid_of(tmp_path, case, ops), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("case", RESIDUAL_CASES, ids=lambda case: case.name)
def test_other_precisions_are_close(case: ResidualCase, precision: str, tmp_path: Path) -> None:
    write_residual(case, read_shapes(case.name), tmp_path)
    expected = read_golden(case.name, "grid")
    found = grid_of(tmp_path, case, cpu, precision)
    np.testing.assert_allclose(found, expected, atol=0.03 * np.abs(expected).max())
    assert (found != expected).any()


def test_a_vector_is_the_mean_of_the_grid(tmp_path: Path) -> None:
    case = RESIDUAL_CASES[0]
    encoder = Encoder(write_residual(case, read_shapes(case.name), tmp_path))
    expected_BD = read_golden(case.name, "grid").mean(axis=(2, 3))
    assert encoder.dimension == expected_BD.shape[1]
    np.testing.assert_allclose(encoder._pictures.of_images([*image_of(case)]), expected_BD, atol=1e-5)
    several_BD = encoder.encode_images(pictures())
    np.testing.assert_array_equal(encoder.encode_images(pictures()[2]), several_BD[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer1.0.bn1.running_var": None}, "missing layer1.0.bn1.running_var"),
        ({"layer1.0.conv9.weight": (1, 2)}, r"plain residual network: unexpected layer1.0.conv9.weight \[1, 2\]"),
        ({"layer1.0.conv1.weight": None}, "neither conv1.weight nor layer1.0.conv1.weight"),
        ({"conv1.weight": (12, 3)}, "conv1.weight should have 4 axes"),
        ({"bn1.bias": (5,)}, "conv1.weight .* and bn1 do not fit"),
        ({"layer2.0.conv1.weight": (24, 16, 1, 1)}, "tensors do not fit the architecture"),
    ],
)
def test_state_dicts_that_do_not_fit(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    shapes = {name: shape for name, shape in (read_shapes("plain") | change).items() if shape}
    write_residual(RESIDUAL_CASES[0], shapes, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(draw_state(shapes)))
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_size": [1, 37, 37]}, "input_size should be three channels"),
        ({"input_size": [3, 37, 10**9]}, "input_size should be three channels"),
        ({"input_size": [3, 37, 38]}, "only squares"),
        ({"crop_pct": 0}, "crop_pct should be"),
        ({"interpolation": "area"}, "interpolation should be one of"),
        ({"std": [0, 1, 1]}, "std should be a number for each of 3 channels"),
        ({"crop_mode": "border"}, "only squares"),
    ],
)
def test_settings_that_are_not_supported(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_residual(RESIDUAL_CASES[0], read_shapes("plain"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path)
