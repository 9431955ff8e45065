"""Captions against PyTorch's goldens; maps over pictures; saliency; the command."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastattn import Encoder, Translator
from fastattn.errors import CheckpointError, InputError
from fastattn.loading import model_cache
from fastattn.spec.images import PictureSpec
from fastattn.vision import Captioner, plot_image_attention, saliency
from fastattn.weights import read
from tests.cli.commands import fail, refuse, succeed
from tests.images.cases import CASES, MAPPING, caption_pictures, read_golden, write_captioner, write_golden_images
from tests.loading.caches import empty_cache
from tests.messages import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_captioner(tmp_path_factory.mktemp("captioner"))


@pytest.fixture(scope="module")
def captioner(folder):
    return Captioner(folder)


def test_captions_and_where_they_look_are_those_of_pytorch(captioner):
    captions = captioner.caption(caption_pictures(), beam_size=1)
    expected = read_golden("captioner", "sentences").tolist()
    assert len(set(expected)) > 1
    for number, (caption, sentence) in enumerate(zip(captions, expected)):
        words = caption.words[: len(sentence.split())]  # the golden's are 12 at most
        assert " ".join(words) == sentence and caption.text == " ".join(caption.words)
        weights_WS = read_golden("captioner", f"weights {number}")
        found_WS = caption.attention_WYX.reshape(len(caption.words), -1)[: len(words)]
        np.testing.assert_allclose(found_WS, weights_WS[: len(words)], atol=1e-5)
        assert caption.attention_WYX.shape[1:] == (8, 8)


def test_a_caption_depends_on_its_own_picture(captioner, folder):
    several = captioner.caption(caption_pictures() * 3, num_hypotheses=2)
    for threads, number in ((1, 1), (2, 2)):
        alone: Any = Captioner(folder, threads=threads).caption(caption_pictures()[number], num_hypotheses=2)
        for one, other in zip(alone, several[number + 3]):
            assert one[:3] == other[:3]
            np.testing.assert_array_equal(one.attention_WYX, other.attention_WYX)


def test_a_caption_of_characters_or_with_another_start(captioner, folder, tmp_path):
    checkpoint = read(folder)
    of_characters = replace(checkpoint, input=replace(checkpoint.input, target_characters=True))
    found = Captioner.from_checkpoint(of_characters).caption(caption_pictures()[0])
    expected = captioner.caption(caption_pictures()[0])
    assert len(found.words) > 1 and (found.text, found.words) == ("".join(expected.words), expected.words)
    write_captioner(tmp_path)
    (tmp_path / "fastattn.toml").write_text(f'{MAPPING}[text]\ndecoder_start_token = "red"\n', encoding="utf-8")
    assert Captioner(tmp_path).caption(caption_pictures()[0]).score != expected.score


def test_a_later_process_finds_how_pictures_are_read(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(model_cache, "SETTLED_NS", -1_000_000_000)  # files are kept however new they are
    empty_cache(tmp_path / "cache", monkeypatch)
    captions = [Captioner(folder).caption(caption_pictures()[0]).text for _ in range(3)]
    assert len({*captions}) == 1


def test_saliency_is_where_covering_changes_the_answer(captioner, tmp_path):
    for model in (captioner, Encoder(write_golden_images(CASES[0], tmp_path))):
        picture = np.full((64, 64, 3), 128, np.uint8)
        picture[:16, 40:56] = [255, 0, 0]  # all that there is to see
        found_YX = saliency(model, picture, size=16, stride=8)
        assert found_YX.dtype == np.float32 and (found_YX >= 0).all()
        y, x = np.unravel_index(found_YX.argmax(), found_YX.shape)
        height, width = found_YX.shape
        assert y / height < 0.4 and 0.5 < (x + 0.5) / width < 0.95
    with refused(InputError):
        saliency(seeing((128, 128)), picture, size=1, stride=1)


def seeing(size, crop=(0, 0), changes=None):
    """A model of images of such a size, or of such a crop."""
    spec = PictureSpec(size, 2, crop, 1 / 255, (0.0,) * 3, (1.0,) * 3)
    return SimpleNamespace(image_spec=spec, image_changes=changes)


@pytest.mark.parametrize(("size", "stride"), [(6, 2), (5, 3), (2, 4), (90, 7)])
def test_saliency_by_hand(size, stride):
    """Also of more squares than are covered at once, with places that no square covers, or each one does. The model
    looks at each pixel by a weight of its own: an answer moves by the mean of what a square changes of these."""
    rng, asked = np.random.default_rng(size), []
    picture, weights_YX = rng.integers(0, 256, (23, 31, 3), np.uint8), rng.standard_normal((23, 31))
    image_CYX = picture.transpose(2, 0, 1) / 255

    def changes(whole_CYX):
        def of(images):
            asked.append(len(images))
            return np.array([((whole_CYX - one) * weights_YX).sum() for one in images], np.float32)

        return of

    found_YX = saliency(seeing((0, 0), changes=changes), picture, size=size, stride=stride)
    moved_YX = ((image_CYX - image_CYX.mean(axis=(1, 2), keepdims=True)) * weights_YX).sum(axis=0)
    sums_YX, counts_YX, size = np.zeros((23, 31)), np.zeros((23, 31)), min(size, 31)
    for top in range(0, max(1, 23 - size + stride), stride):
        for left in range(0, max(1, 31 - size + stride), stride):
            square = slice(top, top + size), slice(left, left + size)
            sums_YX[square] += max(moved_YX[square].sum(), 0)
            counts_YX[square] += 1
    places_YX = sums_YX / np.maximum(counts_YX, 1)
    expected = [
        [places_YX[y : y + stride, x : x + stride].mean() for x in range(0, 31, stride)] for y in range(0, 23, stride)
    ]
    np.testing.assert_allclose(found_YX, expected, rtol=1e-4, atol=1e-5)
    assert max(asked) <= 64 and (size != 6 or sum(asked) > 128)


def test_maps_are_bright_where_weights_are_large(tmp_path):
    picture, maps_WYX = np.full((20, 40, 3), 200, np.uint8), np.zeros((2, 2, 4))
    maps_WYX[0, 0, 0], maps_WYX[1, 1, 3] = 0.3, 0.9
    plot = plot_image_attention(picture, maps_WYX, ["first", "<last>"], title="a & b", columns=2)
    assert plot.svg.count("<image") == 3 and "&lt;last&gt;" in plot.svg and "a &amp; b" in plot.svg
    assert plot._repr_svg_() == plot.svg and plot.svg in plot.html
    for suffix in ("svg", "html", "png"):
        plot.save(tmp_path / f"maps.{suffix}")
    assert (tmp_path / "maps.svg").read_text(encoding="utf-8") == plot.svg
    with Image.open(tmp_path / "maps.png") as sheet:
        pixels = np.asarray(sheet).mean(axis=2)
    assert plot_image_attention(picture, np.zeros((0, 8, 8), np.float32), []).svg.count("<image") == 1  # no words
    assert pixels[12, 180] > 190 and pixels[80, 320] < 60  # the first map's panel: bright at its left top, else dark


@pytest.mark.parametrize(
    ("model", "seen"),
    [
        (None, (0, 160)),
        (seeing((128, 128)), (0, 160)),
        (seeing((0, 128), (128, 128)), (40, 120)),  # its shorter side to 128, so the middle half is seen
        (seeing((0, 0), (20, 30)), (20, 140)),
        (seeing((0, 0), (20, 80)), (0, 160)),
    ],
)
def test_a_map_lies_where_the_model_looked(model, seen):
    plot = plot_image_attention(np.full((20, 40, 3), 200, np.uint8), np.ones((1, 8)), model=model)
    with Image.open(io.BytesIO(plot.png)) as sheet:
        lit_X = np.asarray(sheet).mean(axis=2)[48, 176:336] > 110
    np.testing.assert_array_equal(np.flatnonzero(lit_X)[[0, -1]] + [0, 1], seen)


NO_MAPS = [
    *((maps, {}) for maps in (np.ones((2, 2), int), np.ones(3), -np.ones((2, 2)), np.full((2, 2), np.nan))),
    *((np.ones(shape), {}) for shape in ((300, 1, 1), (1, 0, 2))),
    *((np.ones((2, 2)), more) for more in ({"labels": ["a", "b"]}, {"columns": 0}, {"title": 3}, {"model": "vit"})),
]


def test_maps_that_cannot_be_drawn():
    for maps, more in NO_MAPS:
        with refused(InputError, *more):
            plot_image_attention(np.zeros((4, 4, 3), np.uint8), maps, **more)


def test_the_command(folder, captioner, tmp_path):
    paths = [tmp_path / f"{n}.png" for n in range(2)]
    for path, picture in zip(paths, caption_pictures()):
        Image.fromarray(picture).save(path)
    expected = [captioner.caption(path) for path in paths]
    assert succeed("caption", "-m", folder, paths[0]) == f"{expected[0].text}\n"
    assert succeed("caption", "-m", folder, *paths) == "".join(
        f"{path}\t{one.text}\n" for path, one in zip(paths, expected)
    )
    shown = json.loads(succeed("caption", "-m", folder, "--json", "-n", "2", paths[0]))
    assert shown["path"] == str(paths[0]) and len(shown["captions"]) == 2
    best = shown["captions"][0]
    assert best["words"] == best["text"].split() and np.array(best["attention"]).shape == (len(best["words"]), 8, 8)
    succeed("caption", "-m", folder, "--map", tmp_path / "map.svg", paths[0])
    assert (tmp_path / "map.svg").read_text(encoding="utf-8").count("<image") == 1 + len(expected[0].words)


def test_what_is_wrong_is_told(folder, captioner, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert "cannot identify image file" in fail(2, "caption", "-m", folder, tmp_path / "bad.png")
    for options in ("--map a.svg a.png b.png", "--map a.txt a.png"):
        refuse(2, "caption", "-m", folder, *options.split())
    refuse(2, "caption", "a.png")
    with refused(InputError):
        captioner.caption(None)
    for kind, path in ((Captioner, write_golden_images(CASES[0], tmp_path)), (Encoder, folder), (Translator, folder)):
        with refused(CheckpointError):
            kind(path)
    for old, new in (("side = 64", "side = 0"), ("side = 64", "side = 99999"), ("std = 0.25", "std = 0")):
        write_captioner(tmp_path)
        (tmp_path / "fastattn.toml").write_text(MAPPING.replace(old, new), encoding="utf-8")
        with refused(CheckpointError, new.split()[0]):
            read(tmp_path)
