"""From a picture, a file, Pillow's image or an array, to an image as a checkpoint's model takes it."""

import os
import struct
import zlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from fastattn.errors import InputError, described
from fastattn.spec.images import PatchSpec, PictureSpec, ResidualSpec

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 1 << 26  # of a picture, also after its resizing: 200 MB
# What Pillow's readers raise for damaged files.
READER_ERRORS: tuple[type[Exception], ...] = (OSError, ValueError, TypeError, SyntaxError, LookupError, ArithmeticError)
READER_ERRORS += (AttributeError, RuntimeError, EOFError, MemoryError, struct.error, zlib.error)
# Pillow reads more formats, one of them, EPS, by starting Ghostscript.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")


def is_picture(value: Any) -> bool:
    """Whether the value is a single picture, not several."""
    return isinstance(value, (str, os.PathLike, np.ndarray)) or hasattr(value, "convert")


def open_picture(picture: Any, name: str, white: bool = False) -> "Image":
    """A picture as Pillow's image in RGB, turned as its EXIF says.

    picture  a path, Pillow's image, or uint8 [Y, X, 3] or [Y, X]
    name     what errors call the picture
    white    whether transparent parts become white; else their colours show
    Of pixels of 16 bits the upper 8 are used. InputError for anything else, a damaged file, and more than MOST_PIXELS.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputError("pictures need Pillow: pip install 'fastattn[images]'") from None
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim < 2 or picture.shape[2:] not in ((3,), ()) or 0 in picture.shape:
            raise InputError(f"{name}: an array should be uint8 [Y, X, 3] or [Y, X], is {described(picture)}")
        picture = Image.fromarray(np.ascontiguousarray(picture))
    elif not isinstance(picture, (str, os.PathLike, Image.Image)):
        raise InputError(f"{name}: expected a path, Pillow's image or an array, got {type(picture).__name__}")
    try:
        is_open = isinstance(picture, Image.Image)
        with nullcontext(picture) if is_open else Image.open(picture, formats=FORMATS) as source:
            _check_pixels(source.size, name)
            image = ImageOps.exif_transpose(source)
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("I", "F"):
            raise InputError(f"{name}: nobody knows the range of pixels of 32 bits: convert them to 8")
        if white and image.has_transparency_data:
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        return image.convert("RGB")
    except InputError:
        raise
    except READER_ERRORS + (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{name}: {' '.join(str(error).split()) or type(error).__name__}") from None


def _check_pixels(size: tuple[int, int], name: str) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise InputError(f"{name}: {size[0]:,} x {size[1]:,} pixels are more than {MOST_PIXELS:,}")


def prepare_image(picture: "Image", spec: PictureSpec, name: str) -> np.ndarray:
    """The image float32 [3, Y, X] of an RGB picture, as transformers' image processors make it."""
    size = _resized_size(picture.size, spec)
    if spec.size[1]:
        _check_pixels(size, f"{name}, resized")
        picture = picture.resize(size, spec.resample)
    values_YXC = np.asarray(picture)
    for axis, side in enumerate(spec.crop):
        if side:
            values_YXC = _crop_axis(values_YXC, axis, side, spec.rounds)
    scaled_YXC = (values_YXC * spec.factor).astype(np.float32)
    normal_YXC = (scaled_YXC - np.array(spec.mean, np.float32)) / np.array(spec.deviation, np.float32)
    return np.ascontiguousarray(normal_YXC.transpose(2, 0, 1))


def _resized_size(size: tuple[int, int], spec: PictureSpec) -> tuple[int, int]:
    """The (width, height) to which a picture of that size is resized before it is cropped."""
    height, width = spec.size
    if width and not height:  # width is then the length of the shorter side
        longer = int(width * max(size) / min(size))
        height, width = (width, longer) if size[1] < size[0] else (longer, width)
    return (width, height) if width else size


def _crop_start(spare: int, rounds: bool) -> int:
    """The first pixel of a middle crop that leaves out ``spare`` pixels; -n: n zeros come before the picture."""
    return round(spare / 2) if rounds and spare >= 0 else spare // 2


def visible_area(size: tuple[int, int], spec: PictureSpec) -> list[tuple[float, float]]:
    """The area of a picture that a model sees: (first, end) as shares of the width, then of the height.

    Where zeros are put around the picture, first is below 0 and end above 1.
    """
    sides = zip(_resized_size(size, spec), spec.crop[::-1])
    crops = [(_crop_start(side - crop, spec.rounds), crop, side) if crop else (0, side, side) for side, crop in sides]
    return [(first / side, (first + crop) / side) for first, crop, side in crops]


def _crop_axis(values: np.ndarray, axis: int, size: int, rounds: bool) -> np.ndarray:
    """The middle ``size`` of an axis; a shorter axis gets zeros around it, of an odd number one more before it."""
    spare = values.shape[axis] - size
    first = _crop_start(spare, rounds)
    if spare >= 0:
        return values.take(range(first, first + size), axis)
    widths = [(0, 0)] * values.ndim
    widths[axis] = (-first, first - spare)
    return np.pad(values, widths)


def pixel_rows(image_CYX: np.ndarray, spec: PatchSpec | ResidualSpec) -> np.ndarray:
    """An encoder's input, float32: a row of zeros, then the patches, [1 + P, C height width]; or, for a ResidualSpec,
    as many rows as the last grid has pixels, which hold the numbers of the image in order, then zeros."""
    if isinstance(spec, ResidualSpec):
        rows_PE = np.zeros((spec.grid[0] * spec.grid[1], spec.row_values), np.float32)
        rows_PE.reshape(-1)[: image_CYX.size] = image_CYX.transpose(1, 2, 0).reshape(-1)
        return rows_PE
    (C, Y, X), (height, width) = spec.image, spec.patch
    whole_patches = image_CYX[:, : Y - Y % height, : X - X % width]
    patches = whole_patches.reshape(C, Y // height, height, X // width, width).transpose(1, 3, 0, 2, 4)
    rows_PE = np.zeros((1 + spec.patches, spec.patch_values), np.float32)
    rows_PE[1:] = patches.reshape(spec.patches, spec.patch_values)
    return rows_PE


def load_image(picture: Any, number: int, spec: PictureSpec) -> np.ndarray:
    """The image float32 [3, Y, X] of a picture; errors call the picture by its number, and its path if it has one."""
    has_path = isinstance(picture, (str, os.PathLike))
    name = f"picture {number}{f', {os.fspath(picture)!r}' if has_path else ''}"
    return prepare_image(open_picture(picture, name, spec.white), spec, name)
