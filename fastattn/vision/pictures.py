"""From files, Pillow's images or arrays to an image as a checkpoint's model takes it."""

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
# The exceptions of Pillow's readers for damaged files.
FAULTS: tuple[type[Exception], ...] = (OSError, ValueError, TypeError, SyntaxError, LookupError, ArithmeticError)
FAULTS += (AttributeError, RuntimeError, EOFError, MemoryError, struct.error, zlib.error)
# Not all formats that Pillow reads: for one of them it starts Ghostscript.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")


def is_picture(value: Any) -> bool:
    """Whether this is one picture, not several."""
    return isinstance(value, (str, os.PathLike, np.ndarray)) or hasattr(value, "convert")


def open_picture(picture: Any, name: str, white: bool = False) -> "Image":
    """A picture as Pillow's image in RGB, turned as its EXIF says.

    picture  a path, Pillow's image, or uint8 [Y, X, 3] or [Y, X]
    name     in errors
    white    whether transparent parts become white; else their colours show
    Raises InputError for anything else, a damaged file, and more than MOST_PIXELS. Of 16 bits a pixel 8 are used.
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
        with (
            nullcontext(picture) if isinstance(picture, Image.Image) else Image.open(picture, formats=FORMATS) as opened
        ):
            _check_pixels(opened.size, name)
            turned = ImageOps.exif_transpose(opened)
        if turned.mode.startswith("I;16"):
            turned = Image.fromarray((np.asarray(turned) >> 8).astype(np.uint8))
        if turned.mode in ("I", "F"):
            raise InputError(f"{name}: nobody knows the range of pixels of 32 bits: convert them to 8")
        if white and turned.has_transparency_data:
            turned = Image.alpha_composite(Image.new("RGBA", turned.size, "white"), turned.convert("RGBA"))
        return turned.convert("RGB")
    except InputError:
        raise
    except FAULTS + (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{name}: {' '.join(str(error).split()) or type(error).__name__}") from None


def _check_pixels(size: tuple[int, int], name: str) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise InputError(f"{name}: {size[0]:,} x {size[1]:,} pixels are more than {MOST_PIXELS:,}")


def prepare(picture: "Image", spec: PictureSpec, name: str) -> np.ndarray:
    """The image float32 [3, Y, X] of an RGB picture, as transformers' image processors make it."""
    size = _resized(picture.size, spec)
    if spec.size[1]:
        _check_pixels(size, f"{name}, resized")
        picture = picture.resize(size, spec.resample)
    values_YXC = np.asarray(picture)
    for axis, side in enumerate(spec.crop):
        if side:
            values_YXC = _middle(values_YXC, axis, side, spec.rounds)
    scaled_YXC = (values_YXC * spec.factor).astype(np.float32)
    normal_YXC = (scaled_YXC - np.array(spec.mean, np.float32)) / np.array(spec.deviation, np.float32)
    return np.ascontiguousarray(normal_YXC.transpose(2, 0, 1))


def _resized(size: tuple[int, int], spec: PictureSpec) -> tuple[int, int]:
    """The (width, height) to which a picture of that size is resized before it is cropped."""
    height, width = spec.size
    if width and not height:
        long = int(width * max(size) / min(size))
        height, width = (width, long) if size[1] < size[0] else (long, width)
    return (width, height) if width else size


def _first(spare: int, rounds: bool) -> int:
    """Where a crop from the middle begins that leaves out ``spare`` pixels; -n: n zeros come before the picture."""
    return round(spare / 2) if rounds and spare >= 0 else spare // 2


def seen_area(size: tuple[int, int], spec: PictureSpec) -> list[tuple[float, float]]:
    """The area of a picture that a model sees: shares of the width, then of the height; zeros lie beyond 0 and 1."""
    sides = zip(_resized(size, spec), spec.crop[::-1])
    firsts = [(_first(side - crop, spec.rounds), crop, side) if crop else (0, side, side) for side, crop in sides]
    return [(first / side, (first + crop) / side) for first, crop, side in firsts]


def _middle(values: np.ndarray, axis: int, size: int, rounds: bool) -> np.ndarray:
    """The middle of an axis; a shorter axis gets zeros around it, an odd one before it."""
    spare = values.shape[axis] - size
    first = _first(spare, rounds)
    if spare >= 0:
        return values.take(range(first, first + size), axis)
    widths = [(0, 0)] * values.ndim
    widths[axis] = (-first, first - spare)
    return np.pad(values, widths)


def pixel_rows(image_CYX: np.ndarray, spec: PatchSpec | ResidualSpec) -> np.ndarray:
    """An encoder's input, float32: patches [1 + P, C height width], the first row zeros; or as many rows as the last
    grid has places, which hold the image's pixels in order, then zeros."""
    if isinstance(spec, ResidualSpec):
        rows_PE = np.zeros((spec.grid[0] * spec.grid[1], spec.row_values), np.float32)
        rows_PE.reshape(-1)[: image_CYX.size] = image_CYX.transpose(1, 2, 0).reshape(-1)
        return rows_PE
    (C, Y, X), (height, width) = spec.image, spec.patch
    inside = image_CYX[:, : Y - Y % height, : X - X % width]
    cut = inside.reshape(C, Y // height, height, X // width, width).transpose(1, 3, 0, 2, 4)
    rows_PE = np.zeros((1 + spec.patches, spec.patch_values), np.float32)
    rows_PE[1:] = cut.reshape(spec.patches, spec.patch_values)
    return rows_PE


def load_image(picture: Any, number: int, spec: PictureSpec) -> np.ndarray:
    """The image float32 [3, Y, X] of a picture; InputErrors of ``open_picture`` name its number."""
    has_path = isinstance(picture, (str, os.PathLike))
    name = f"picture {number}{f', {os.fspath(picture)!r}' if has_path else ''}"
    return prepare(open_picture(picture, name, spec.white), spec, name)
