"""Encoder.encode_images against transformers' goldens; pictures of all kinds, sound and damaged."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastattn import Encoder, TextClassifier, Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, reference
from fastattn.spec.images import PatchSpec, PictureSpec
from fastattn.vision.pictures import MOST_PIXELS, open_picture, pixel_rows, prepare
from fastattn.weights import read
from tests.images.cases import CASES, TEXTS, PictureCase, pictures
from tests.images.goldens import read_golden, write_golden_images
from tests.weights.sound_files import bert_files

VIT, CLIP = CASES[0], CASES[3]


@pytest.fixture(scope="module")
def vit(tmp_path_factory: Any) -> Encoder:
    return Encoder(write_golden_images(VIT, tmp_path_factory.mktemp("vit")))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: Any) -> Encoder:
    return Encoder(write_golden_images(CLIP, tmp_path_factory.mktemp("clip")))


def cosines(a_BE: np.ndarray, b_BE: np.ndarray) -> np.ndarray:
    lengths_B = np.linalg.norm(a_BE, axis=1) * np.linalg.norm(b_BE, axis=1)
    return np.asarray((a_BE * b_BE).sum(axis=1) / lengths_B)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pictures_and_vectors_are_those_of_transformers(case: PictureCase, tmp_path: Path) -> None:
    checkpoint = read(write_golden_images(case, tmp_path))
    assert checkpoint.pictures is not None
    images_BCYX = [prepare(open_picture(one, ""), checkpoint.pictures, "") for one in pictures()]
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
def test_hidden_states_are_those_of_transformers(case: PictureCase, ops: Any, tmp_path: Path) -> None:
    checkpoint = read(write_golden_images(case, tmp_path))
    stack = checkpoint.spec.images or checkpoint.spec.encoder
    assert isinstance(stack, PatchSpec) and checkpoint.pictures is not None
    rows = [pixel_rows(prepare(open_picture(one, ""), checkpoint.pictures, ""), stack) for one in pictures()]
    rows_ND, _ = build_model(checkpoint, ops).images.encode(rows)
    found_BPD = np.asarray(rows_ND).reshape(len(rows), -1, stack.width)[:, ::3]
    expected_BPD = read_golden(case.name, "rows")
    np.testing.assert_allclose(found_BPD, expected_BPD, atol=1e-4 * np.abs(expected_BPD).max())


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions_are_close(precision: str, clip: Encoder, tmp_path: Path) -> None:
    close_BE = Encoder(write_golden_images(CLIP, tmp_path), precision).encode_images(pictures())
    assert cosines(close_BE, clip.encode_images(pictures())).min() > 0.999


def test_a_picture_has_the_same_bits_alone_and_from_wherever_it_comes(vit: Encoder, tmp_path: Path) -> None:
    several_BE = vit.encode_images(pictures())
    for number, picture in enumerate(pictures()):
        path = tmp_path / f"{number}.png"
        Image.fromarray(picture).save(path)
        for given in (picture, Image.fromarray(picture), path, str(path)):
            np.testing.assert_array_equal(vit.encode_images(given), several_BE[number])
    threaded_BE = Encoder.from_checkpoint(read(write_golden_images(VIT, tmp_path)), threads=1).encode_images(
        iter(pictures() * 20)
    )
    np.testing.assert_array_equal(threaded_BE, np.tile(several_BE, (20, 1)))
    assert vit.encode_images([]).shape == (0, vit.dimension)


def test_vectors_are_cut_then_of_unit_length(vit: Encoder) -> None:
    whole_BE = vit.encode_images(pictures())
    cut_BE = vit.encode_images(pictures(), normalize_embeddings=True, truncate_dim=5)
    expected_BE = whole_BE[:, :5] / np.linalg.norm(whole_BE[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(cut_BE, expected_BE, rtol=1e-5)


def picture_of(mode: str, path: Path) -> Image.Image:
    """A picture of 9 x 6 in a mode, as a file has it, and what it shows in RGB."""
    rgb = Image.fromarray(pictures()[2])
    if mode == "I;16":
        grey = np.asarray(rgb.convert("L")).astype(np.uint16)
        Image.fromarray(grey * 256 + 255).save(path)
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    other = rgb.convert(mode)
    other.save(path)
    with Image.open(path) as saved:
        return saved.convert("RGB")


MODES = [
    ("L", "png"),
    ("1", "png"),
    ("P", "png"),
    ("RGBA", "png"),
    ("LA", "png"),
    ("I;16", "png"),
    ("CMYK", "jpg"),
    ("YCbCr", "jpg"),
    ("CMYK", "tif"),
    ("P", "gif"),
]


def test_pictures_of_every_mode(vit: Encoder, tmp_path: Path) -> None:
    for mode, ending in MODES:
        path = tmp_path / f"picture.{ending}"
        expected = picture_of(mode, path)
        np.testing.assert_array_equal(vit.encode_images(path), vit.encode_images(expected))


def test_grey_pictures_show_what_their_channels_would(tmp_path: Path) -> None:
    """Of 8 bits and of 16, whose high ones count, in either order of bytes; as arrays, images and files."""
    grey_YX = np.random.default_rng(1).integers(0, 256, (7, 5), np.uint8)
    expected_YXC = np.repeat(grey_YX[:, :, None], 3, axis=2)
    wide_YX = grey_YX.astype(np.uint16) * 256 + 255
    Image.fromarray(wide_YX).save(tmp_path / "16.png")
    Image.fromarray(wide_YX.astype(">u2")).save(tmp_path / "16.tif")
    given = [grey_YX, Image.fromarray(grey_YX), Image.fromarray(wide_YX), tmp_path / "16.png", tmp_path / "16.tif"]
    for picture in given:
        np.testing.assert_array_equal(np.asarray(open_picture(picture, "")), expected_YXC)


def test_pixels_are_scaled_then_moved_then_divided() -> None:
    picture_YXC = pictures()[2]
    spec = PictureSpec((0, 0), 2, (0, 0), 1 / 128, (0.5, 0.25, -1.0), (0.5, 2.0, 4.0))
    expected_CYX = [(picture_YXC[:, :, c] / 128 - spec.mean[c]) / spec.deviation[c] for c in range(3)]
    np.testing.assert_allclose(prepare(open_picture(picture_YXC, ""), spec, ""), expected_CYX, rtol=1e-6)


def test_a_photograph_is_turned_as_its_file_says(vit: Encoder, tmp_path: Path) -> None:
    upright = Image.fromarray(pictures()[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    upright.rotate(90, expand=True).save(tmp_path / "side.png", exif=exif)
    np.testing.assert_array_equal(vit.encode_images(tmp_path / "side.png"), vit.encode_images(upright))


def png(width: int, height: int) -> bytes:
    """A PNG that claims so many pixels, and has a few."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [b"IHDR" + header, b"IDAT" + zlib.compress(bytes(90))]
    ended = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(ended)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot identify image file"),
        (b"GIF89a" + bytes(5), "cannot identify image file|picture 0"),
        (png(9000, 8000), "9,000 x 8,000 pixels are more than 67,108,864"),
        (png(60000, 60000), "picture 0"),  # Pillow's own limit
        (png(20, 20), "picture 0"),  # cut
    ],
    ids=["empty", "cut gif", "large", "larger", "cut"],
)
def test_damaged_files_are_one_line(content: bytes, message: str, vit: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        vit.encode_images([path])
    assert "\n" not in str(raised.value) and str(raised.value).startswith("picture 0, ")


def test_cut_jpegs_are_one_line(vit: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "whole.jpg"
    Image.fromarray(pictures()[3]).save(path)
    content = path.read_bytes()
    for size in range(0, len(content) - 2, 97):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="^picture 0, [^\n]*$"):
            vit.encode_images([path])


def test_what_is_no_picture(vit: Encoder, clip: Encoder, tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (tmp_path / "none.png", "No such file"),
        (tmp_path, "directory"),
        (np.zeros((4, 4, 3), np.float32), "should be uint8"),
        (np.zeros((4, 4, 4), np.uint8), "should be uint8"),
        (np.zeros((4, 0, 3), np.uint8), "should be uint8"),
        (np.zeros(4, np.uint8), "should be uint8"),
        (5, "expected a path"),
        (Image.new("F", (4, 4)), "32 bits"),
        (Image.new("I", (4, 4)), "32 bits"),
    ]
    for picture, message in wrong:
        with pytest.raises(InputError, match=f"^picture 1[^\n]*{message}"):
            vit.encode_images([pictures()[0], picture])
    with pytest.raises(InputError, match="resized: .* more than"):  # CLIP's shorter side would become 32
        clip.encode_images(np.zeros((1, MOST_PIXELS // 512, 3), np.uint8))


def test_a_model_takes_what_it_was_trained_for(vit: Encoder, clip: Encoder, tmp_path: Path) -> None:
    assert vit.prompts == {}
    for call in (vit.encode, vit.encode_iter, vit.submit, vit.count_tokens, lambda texts: vit.max_length):
        with pytest.raises(InputError, match="^this model takes no texts: see Encoder.encode_images$"):
            call(["a text"])
    for name, content in bert_files().items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="^this model takes no pictures: see Encoder.encode$"):
        Encoder(tmp_path).encode_images(pictures())
    write_golden_images(VIT, tmp_path)
    for other in (TextClassifier, Translator):
        with pytest.raises(CheckpointError, match="the model takes an array CxYxX, not text|head"):
            other(tmp_path)


MISFITS = [
    ("preprocessor_config.json", {"size": {"height": 31, "width": 48}}, r"pictures become \[31, 48\]"),
    ("preprocessor_config.json", {"size": {"height": -3, "width": 48}}, "size should be a height and a width"),
    ("preprocessor_config.json", {"resample": 9}, "resample should be"),
    ("preprocessor_config.json", {"image_mean": [1, 2]}, "image_mean should be"),
    ("preprocessor_config.json", {"image_std": [1, 0, 1]}, "image_std should be"),
    ("preprocessor_config.json", {"do_pad": True}, "not supported: do_pad"),
    ("config.json", {"image_size": 10**9}, "image_size should be"),
    ("config.json", {"patch_size": 0}, "patch_size should be"),
    ("config.json", {"patch_size": 12}, "tensors do not fit config.json"),
    ("config.json", {"num_hidden_layers": 900}, "fewer than the 900 layers"),
    ("config.json", {"num_channels": 1}, "pictures have 3 channels"),
]


def test_directories_that_do_not_fit(tmp_path: Path) -> None:
    for file, change, message in MISFITS:
        write_golden_images(VIT, tmp_path)
        settings = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps(settings | change))
        with pytest.raises(CheckpointError, match=message):
            Encoder(tmp_path)


def test_old_files_have_parts_of_clip_under_another_name(clip: Encoder, tmp_path: Path) -> None:
    write_golden_images(CLIP, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for part in ("text_config", "vision_config"):
        config[f"{part}_dict"] = config[part]
        config[part] = config[part] | {"hidden_act": "relu"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(Encoder(tmp_path).encode_images(pictures()), clip.encode_images(pictures()))
