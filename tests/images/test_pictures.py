"""Encoder.encode_images against transformers' goldens; pictures of all kinds, sound and damaged."""

import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from fastattn import Encoder, TextClassifier, Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, reference
from fastattn.spec.images import ResidualSpec
from fastattn.vision.pictures import MOST_PIXELS, open_picture, pixel_rows, prepare_image
from fastattn.weights import read
from fastattn.weights.native.convert import write
from tests.images.cases import (
    CASES,
    RESIDUAL_CASES,
    TEXTS,
    image_of,
    pictures,
    read_golden,
    read_shapes,
    write_golden_images,
    write_residual,
)
from tests.messages import refused
from tests.weights.sound_files import bert_files

VIT, CLIP = CASES[0], CASES[3]


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return Encoder(write_golden_images(VIT, tmp_path_factory.mktemp("vit")))


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return Encoder(write_golden_images(CLIP, tmp_path_factory.mktemp("clip")))


def cosines(a_BE, b_BE):
    lengths_B = np.linalg.norm(a_BE, axis=1) * np.linalg.norm(b_BE, axis=1)
    return np.asarray((a_BE * b_BE).sum(axis=1) / lengths_B)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pictures_and_vectors_are_those_of_transformers(case, tmp_path):
    checkpoint = read(write_golden_images(case, tmp_path))
    images_BCYX = [prepare_image(open_picture(one, ""), checkpoint.pictures, "") for one in pictures()]
    given = np.stack(images_BCYX).reshape(-1)[::7]
    np.testing.assert_allclose(given, read_golden(case.name, "images"), atol=1e-6)
    encoder = Encoder(tmp_path)
    found_BE, expected_BE = encoder.encode_images(pictures()), read_golden(case.name, "vectors")
    np.testing.assert_allclose(found_BE, expected_BE, atol=1e-4 * np.abs(expected_BE).max())
    assert cosines(found_BE, expected_BE).min() > 0.99999 and encoder.dimension == found_BE.shape[1]
    if case.config["model_type"] == "clip":
        texts_BE = read_golden(case.name, "texts")
        np.testing.assert_allclose(encoder.encode(list(TEXTS)), texts_BE, atol=1e-4 * np.abs(texts_BE).max())
        similar = encoder.similarity(encoder.encode(list(TEXTS)), found_BE)
        expected = [[cosines(text[None], image[None])[0] for image in expected_BE] for text in texts_BE]
        np.testing.assert_allclose(similar, expected, atol=1e-5)


@pytest.mark.parametrize("ops", [cpu, reference])
@pytest.mark.parametrize("case", [CASES[1], CLIP], ids=lambda case: case.name)
def test_hidden_states_are_those_of_transformers(case, ops, tmp_path):
    checkpoint = read(write_golden_images(case, tmp_path))
    stack = checkpoint.spec.images or checkpoint.spec.encoder
    rows = [pixel_rows(prepare_image(open_picture(one, ""), checkpoint.pictures, ""), stack) for one in pictures()]
    rows_ND, _ = build_model(checkpoint, ops).images.encode(rows)
    found_BPD = np.asarray(rows_ND).reshape(len(rows), -1, stack.width)[:, ::3]
    expected_BPD = read_golden(case.name, "rows")
    np.testing.assert_allclose(found_BPD, expected_BPD, atol=1e-4 * np.abs(expected_BPD).max())


def test_other_precisions_are_close_and_vectors_are_cut_then_of_unit_length(clip, tmp_path):
    whole_BE = clip.encode_images(pictures())
    write_golden_images(CLIP, tmp_path)
    for precision in ("bfloat16", "int8"):
        assert cosines(Encoder(tmp_path, precision).encode_images(pictures()), whole_BE).min() > 0.999
    cut_BE = clip.encode_images(pictures(), normalize_embeddings=True, truncate_dim=5)
    expected_BE = whole_BE[:, :5] / np.linalg.norm(whole_BE[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(cut_BE, expected_BE, rtol=1e-5)


def test_a_picture_has_the_same_bits_alone_and_from_wherever_it_comes(vit, tmp_path):
    several_BE = vit.encode_images(pictures())
    for number, picture in enumerate(pictures()):
        path = tmp_path / f"{number}.png"
        Image.fromarray(picture).save(path)
        for given in (picture, Image.fromarray(picture), path, str(path)):
            np.testing.assert_array_equal(vit.encode_images(given), several_BE[number])
    threaded = Encoder.from_checkpoint(read(write_golden_images(VIT, tmp_path)), threads=1)
    np.testing.assert_array_equal(threaded.encode_images(iter(pictures() * 20)), np.tile(several_BE, (20, 1)))
    assert vit.encode_images([]).shape == (0, vit.dimension)


@pytest.mark.parametrize("mode", "L.png 1.png P.png RGBA.png LA.png CMYK.jpg YCbCr.jpg CMYK.tif P.gif".split())
def test_pictures_of_every_mode(mode, vit, tmp_path):
    Image.fromarray(pictures()[2]).convert(mode.split(".")[0]).save(tmp_path / mode)
    with Image.open(tmp_path / mode) as saved:
        expected = saved.convert("RGB")
    np.testing.assert_array_equal(vit.encode_images(tmp_path / mode), vit.encode_images(expected))


def test_transparent_pictures_are_laid_on_white_where_the_processor_converts_them(vit, clip, tmp_path):
    """As transformers' convert_to_rgb does it (5.24); else their colours are taken."""
    rgb_YXC = np.asarray(pictures()[0])
    alpha_YX1 = np.linspace(0, 255, rgb_YXC[:, :, 0].size).astype(np.uint8).reshape(*rgb_YXC.shape[:2], 1)
    opaque_YX1 = alpha_YX1 / 255
    white_YXC = np.round(opaque_YX1 * rgb_YXC + (1 - opaque_YX1) * 255).astype(np.uint8)
    given = Image.fromarray(np.concatenate([rgb_YXC, alpha_YX1], axis=2))
    found_YXC = np.asarray(open_picture(given, "", white=True)).astype(int)
    assert np.abs(found_YXC - white_YXC).max() <= 1
    laid = Image.fromarray(found_YXC.astype(np.uint8))
    for encoder in (vit, clip):
        np.testing.assert_array_equal(encoder.encode_images(given), encoder.encode_images(laid))
    for case, value in ((VIT, False), (CLIP, None)):
        write_golden_images(replace(case, processor=case.processor | {"do_convert_rgb": value}), tmp_path)
        encoder = Encoder(tmp_path)
        np.testing.assert_array_equal(encoder.encode_images(given), encoder.encode_images(rgb_YXC))


def test_grey_pictures_show_what_their_channels_would(tmp_path):
    """Of 8 bits and of 16, whose high ones count, in either order of bytes; as arrays, images and files."""
    grey_YX = np.random.default_rng(1).integers(0, 256, (7, 5), np.uint8)
    expected_YXC = np.repeat(grey_YX[:, :, None], 3, axis=2)
    wide_YX = grey_YX.astype(np.uint16) * 256 + 255
    Image.fromarray(wide_YX).save(tmp_path / "16.png")
    Image.fromarray(wide_YX.astype(">u2")).save(tmp_path / "16.tif")
    given = [grey_YX, Image.fromarray(grey_YX), Image.fromarray(wide_YX), tmp_path / "16.png", tmp_path / "16.tif"]
    for picture in given:
        np.testing.assert_array_equal(np.asarray(open_picture(picture, "")), expected_YXC)


def test_a_photograph_is_turned_as_its_file_says(vit, tmp_path):
    upright = Image.fromarray(pictures()[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    upright.rotate(90, expand=True).save(tmp_path / "side.png", exif=exif)
    np.testing.assert_array_equal(vit.encode_images(tmp_path / "side.png"), vit.encode_images(upright))


def png(width, height):
    """A PNG that claims so many pixels, and has a few."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [b"IHDR" + header, b"IDAT" + zlib.compress(bytes(90))]
    ended = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(ended)


def test_damaged_files_are_one_line(vit, tmp_path):
    path = tmp_path / "whole.jpg"
    Image.fromarray(pictures()[3]).save(path)
    jpeg = path.read_bytes()
    for content, message in (
        (b"", "cannot identify image file"),
        (b"GIF89a" + bytes(5), ""),
        (png(9000, 8000), "9,000 x 8,000 pixels are more than 67,108,864"),
        (png(60000, 60000), ""),  # Pillow's own limit
        (png(20, 20), ""),
        *((jpeg[:size], "") for size in range(0, len(jpeg) - 2, 97)),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"^picture 0, [^\n]*{message}[^\n]*$"):
            vit.encode_images([path])


def test_what_is_no_picture(vit, clip, tmp_path):
    arrays = [np.zeros(shape, np.uint8) for shape in ((4, 4, 4), (4, 0, 3), 4)]
    images = [Image.new(mode, (4, 4)) for mode in "FI"]
    for picture in (tmp_path / "none.png", tmp_path, np.zeros((4, 4, 3), np.float32), *arrays, 5, *images):
        with refused(InputError, "picture 1"):
            vit.encode_images([pictures()[0], picture])
    with refused(InputError, "resized: "):  # CLIP's shorter side would become 32
        clip.encode_images(np.zeros((1, MOST_PIXELS // 512, 3), np.uint8))


def test_a_model_takes_what_it_was_trained_for(vit, clip, tmp_path):
    assert vit.prompts == {}
    for call in (vit.encode, vit.encode_iter, vit.submit, vit.count_tokens, lambda texts: vit.max_length):
        with refused(InputError):
            call(["a text"])
    for name, content in bert_files().items():
        (tmp_path / name).write_bytes(content)
    with refused(InputError):
        Encoder(tmp_path).encode_images(pictures())
    write_golden_images(VIT, tmp_path)
    for other in (TextClassifier, Translator):
        with refused(CheckpointError):
            other(tmp_path)


PROCESSOR = "preprocessor_config.json"
MISFITS = [
    *((PROCESSOR, {"size": {"height": height, "width": 48}}) for height in (31, -3)),
    *((PROCESSOR, {"resample": 9}), (PROCESSOR, {"image_mean": [1, 2]}), (PROCESSOR, {"image_std": [1, 0, 1]})),
    *((PROCESSOR, {"do_pad": True}), ("config.json", {"image_size": 10**9}), ("config.json", {"patch_size": 0})),
    *(("config.json", {"patch_size": 12}), ("config.json", {"num_hidden_layers": 900})),
    ("config.json", {"num_channels": 1}),
    (PROCESSOR, {"size": {"shortest_edge": 48, "longest_edge": 50}, "do_center_crop": True, "crop_size": [32, 48]}),
]


def test_directories_that_do_not_fit(tmp_path):
    for file, change in MISFITS:
        write_golden_images(VIT, tmp_path)
        change_json(tmp_path / file, change)
        with refused(CheckpointError):
            Encoder(tmp_path)
    write_golden_images(VIT, tmp_path)
    change_json(tmp_path / PROCESSOR, {"do_rescale": None, "do_normalize": None})  # steps that are left out
    found = read(tmp_path).pictures
    assert (found.factor, found.mean) == (1.0, (0.0,) * 3)


def change_json(path, change):
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_old_files_have_parts_of_clip_under_another_name(clip, tmp_path):
    write_golden_images(CLIP, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for part in ("text_config", "vision_config"):
        config[f"{part}_dict"] = config[part]
        config[part] = config[part] | {"hidden_act": "relu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(Encoder(tmp_path).encode_images(pictures()), clip.encode_images(pictures()))


def grid_of(folder, case, ops, precision="float32"):
    """The last grid of its images, [2, D, y, x]."""
    checkpoint = read(folder)
    spec = checkpoint.spec.encoder
    rows = [pixel_rows(image, spec) for image in image_of(case)]
    rows_ND, _ = build_model(checkpoint, ops, precision).encode(rows)
    return np.asarray(rows_ND).reshape(2, *spec.grid, -1).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("case", RESIDUAL_CASES, ids=lambda case: case.name)
def test_the_last_grid_is_that_of_pytorch(case, tmp_path):
    write_residual(case, read_shapes(case.name), tmp_path)
    expected = read_golden(case.name, "grid")
    both = ((cpu, "float32", 1e-5), (reference, "float32", 1e-5))
    for ops, precision, near in (*both, (cpu, "bfloat16", 0.03), (cpu, "int8", 0.03)):
        found = grid_of(tmp_path, case, ops, precision)
        np.testing.assert_allclose(found, expected, atol=near * np.abs(expected).max())
        assert precision == "float32" or (found != expected).any()


def test_a_vector_is_the_mean_of_the_grid(tmp_path):
    case = RESIDUAL_CASES[0]
    encoder = Encoder(write_residual(case, read_shapes(case.name), tmp_path))
    expected_BD = read_golden(case.name, "grid").mean(axis=(2, 3))
    assert encoder.dimension == expected_BD.shape[1]
    np.testing.assert_allclose(encoder._picture_vectors.encode_images([*image_of(case)]), expected_BD, atol=1e-5)
    several_BD = encoder.encode_images(pictures())
    np.testing.assert_array_equal(encoder.encode_images(pictures()[2]), several_BD[2])


STATES = [
    {"layer1.0.bn1.running_var": None}, {"layer1.0.conv9.weight": (1, 2)}, {"layer1.0.conv1.weight": None},
    {"conv1.weight": (12, 3)}, {"conv1.weight": (12, 3, 3, 3)}, {"bn1.bias": (5,)},
    {"layer2.0.conv1.weight": (24, 16, 1, 1)},
]  # fmt: skip
SETTINGS = [
    {"input_size": [1, 37, 37]}, {"input_size": [3, 37, 10**9]}, {"input_size": [3, 37, 38]}, {"crop_pct": 0},
    {"interpolation": "area"}, {"std": [0, 1, 1]}, {"crop_mode": "border"}, {"": {"architecture": "resnetaa50"}},
    {"": {"model_args": {"output_stride": 8}}}, {"": {"global_pool": "max"}},
]  # fmt: skip


def test_state_dicts_and_settings_that_do_not_fit(tmp_path):
    for tensors, change in (*((one, {}) for one in STATES), *(({}, one) for one in SETTINGS)):
        shapes = {name: shape for name, shape in (read_shapes("plain") | tensors).items() if shape}
        write_residual(RESIDUAL_CASES[0], shapes, tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        config["pretrained_cfg"] |= change
        change_json(tmp_path / "config.json", config | config["pretrained_cfg"].pop("", {}))
        with refused(CheckpointError):
            read(tmp_path)


def test_a_crop_begins_where_torchvision_has_it(tmp_path):
    """At half a pixel it takes the even one, where transformers takes the lower: 6 of 11 pixels to spare, 4 of 9."""
    pictures = read(write_residual(RESIDUAL_CASES[0], read_shapes("plain"), tmp_path)).pictures
    assert pictures.rounds
    spec = replace(pictures, size=(0, 0), crop=(4, 4), factor=1.0, mean=(0.0,) * 3, deviation=(1.0,) * 3)
    for side, rounds, first in ((15, True, 6), (15, False, 5), (13, True, 4)):
        ramp = np.broadcast_to(np.arange(side, dtype=np.uint8)[:, None, None], (side, side, 3))
        image_CYX = prepare_image(open_picture(np.ascontiguousarray(ramp), ""), replace(spec, rounds=rounds), "")
        assert image_CYX[0, 0, 0] == first


def test_int4_of_groups_and_no_form_of_our_own(tmp_path):
    case = RESIDUAL_CASES[2]
    folder = write_residual(case, read_shapes(case.name), tmp_path)
    exact, rounded = grid_of(folder, case, cpu), grid_of(folder, case, cpu, "int4")
    np.testing.assert_allclose(rounded, exact, atol=0.2 * np.abs(exact).max())
    for refuse in (
        lambda: write(tmp_path / "out", read(folder), "float32"),
        lambda: ResidualSpec((3, 32, 32), 8, (1,), (8,), stem_size=4),  # an even one
    ):
        with refused(CheckpointError):
            refuse()
