"""Residual networks with timm's names against PyTorch's goldens."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn import Encoder
from fastattn.errors import CheckpointError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, reference
from fastattn.spec.images import ResidualSpec
from fastattn.vision.pictures import open_picture, pixel_rows, prepare
from fastattn.weights import read
from fastattn.weights.native.convert import write
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


@pytest.mark.parametrize("case", RESIDUAL_CASES, ids=lambda case: case.name)
def test_the_last_grid_is_that_of_pytorch(case: ResidualCase, tmp_path: Path) -> None:
    for ops in (cpu, reference):
        write_residual(case, read_shapes(case.name), tmp_path)
        expected = read_golden(case.name, "grid")
        np.testing.assert_allclose(grid_of(tmp_path, case, ops), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("case", RESIDUAL_CASES, ids=lambda case: case.name)
def test_other_precisions_are_close(case: ResidualCase, tmp_path: Path) -> None:
    for precision in ("bfloat16", "int8"):
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


STATES = [
    ({"layer1.0.bn1.running_var": None}, "missing layer1.0.bn1.running_var"),
    ({"layer1.0.conv9.weight": (1, 2)}, r"plain residual network: unexpected layer1.0.conv9.weight \[1, 2\]"),
    ({"layer1.0.conv1.weight": None}, "neither conv1.weight nor layer1.0.conv1.weight"),
    ({"conv1.weight": (12, 3)}, "conv1.weight should have 4 axes"),
    ({"conv1.weight": (12, 3, 3, 3)}, "conv1.weight should be 7 x 7"),
    ({"bn1.bias": (5,)}, "conv1.weight .* and bn1 do not fit"),
    ({"layer2.0.conv1.weight": (24, 16, 1, 1)}, "tensors do not fit the architecture"),
]


def test_state_dicts_that_do_not_fit(tmp_path: Path) -> None:
    for change, message in STATES:
        shapes = {name: shape for name, shape in (read_shapes("plain") | change).items() if shape}
        write_residual(RESIDUAL_CASES[0], shapes, tmp_path)
        (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(draw_state(shapes)))
        with pytest.raises(CheckpointError, match=message):
            read(tmp_path)


SETTINGS = [
    ({"input_size": [1, 37, 37]}, "input_size should be three channels"),
    ({"input_size": [3, 37, 10**9]}, "input_size should be three channels"),
    ({"input_size": [3, 37, 38]}, "only squares"),
    ({"crop_pct": 0}, "crop_pct should be"),
    ({"interpolation": "area"}, "interpolation should be one of"),
    ({"std": [0, 1, 1]}, "std should be a number for each of 3 channels"),
    ({"crop_mode": "border"}, "only squares"),
    ({"": {"architecture": "resnetaa50"}}, "only plain residual networks"),
    ({"": {"model_args": {"output_stride": 8}}}, "only plain residual networks"),
    ({"": {"global_pool": "max"}}, "only plain residual networks"),
]


def test_settings_that_are_not_supported(tmp_path: Path) -> None:
    for change, message in SETTINGS:
        write_residual(RESIDUAL_CASES[0], read_shapes("plain"), tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        config["pretrained_cfg"] |= change
        config |= config["pretrained_cfg"].pop("", {})
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=message):
            read(tmp_path)


def test_a_crop_begins_where_torchvision_has_it(tmp_path: Path) -> None:
    """At half a pixel it takes the even one, where transformers takes the lower: here 6 of 11 pixels to spare."""
    pictures = read(write_residual(RESIDUAL_CASES[0], read_shapes("plain"), tmp_path)).pictures
    assert pictures is not None and pictures.rounds
    spec = replace(pictures, size=(0, 0), crop=(4, 4), factor=1.0, mean=(0.0,) * 3, deviation=(1.0,) * 3)
    ramp = np.broadcast_to(np.arange(15, dtype=np.uint8)[:, None, None], (15, 15, 3))
    for rounds, first in ((True, 6), (False, 5)):
        image_CYX = prepare(open_picture(np.ascontiguousarray(ramp), ""), replace(spec, rounds=rounds), "")
        assert image_CYX[0, 0, 0] == first


def test_int4_of_groups_and_no_form_of_our_own(tmp_path: Path) -> None:
    case = RESIDUAL_CASES[2]
    folder = write_residual(case, read_shapes(case.name), tmp_path)
    exact, rounded = grid_of(folder, case, cpu), grid_of(folder, case, cpu, "int4")
    np.testing.assert_allclose(rounded, exact, atol=0.2 * np.abs(exact).max())
    with pytest.raises(CheckpointError, match="models of pictures have no form in this format"):
        write(tmp_path / "out", read(folder), "float32")


def test_an_even_stem_is_refused() -> None:
    with pytest.raises(CheckpointError, match="side should be odd, is 4"):
        ResidualSpec((3, 32, 32), 8, (1,), (8,), stem_size=4)
