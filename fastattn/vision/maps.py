"""Maps over a picture: how they are drawn, and saliency by occlusion (Zeiler and Fergus 2014)."""

import base64
import io
import os
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, Protocol

import numpy as np

from fastattn.errors import InputError, check_count, described
from fastattn.plot.labels import checked_labels, checked_title, clip
from fastattn.plot.page import html_page, save_picture
from fastattn.spec.images import PictureSpec
from fastattn.vision.pictures import load_image, open_picture, visible_area

MOST_SQUARES = 1 << 12  # places of the grey square in an image
BATCH_IMAGES = 64  # images with a grey square that are in memory at once
SIDE, GAP, LINE = 160, 8, 20  # pixels: the longer side of a panel, the gap between panels, the height of a label
MOST_MAPS, MOST_CELLS = 256, 1 << 20  # maps of a picture; numbers of a map
DARKEST = 0.2  # the brightness where a map is 0
BILINEAR = 2  # Pillow's number of the filter


def plot_image_attention(
    image: Any,
    maps: Any,
    labels: Iterable[str | int] | None = None,
    *,
    title: str | None = None,
    columns: int = 4,
    model: Any = None,
) -> "ImageMaps":
    """A picture, and for each map the picture again: bright where the map is large, dark where the map is 0.

    image   a path, an image of Pillow, an array of uint8 [Y, X, 3] or [Y, X]
    maps    floating point numbers at least 0, (W, y, x) or (y, x): grids over the image, such as a Caption's
            ``attention_WYX``; brightness is a share of a map's largest number
    labels  of the maps: words; None: 0, 1, 2, ...
    model   the Encoder or Captioner that made the maps: they lie over the part of the picture that the model sees
            after cropping; None: over the whole picture
    InputError for anything else, and for more than 256 maps.
    """
    maps_WYX = np.asarray(maps)
    if maps_WYX.dtype.kind != "f" or maps_WYX.ndim not in (2, 3) or 0 in maps_WYX.shape[-2:]:
        raise InputError(f"maps should be floating point numbers (W, y, x) or (y, x), got {described(maps)}")
    maps_WYX = maps_WYX[None] if maps_WYX.ndim == 2 else maps_WYX
    if len(maps_WYX) > MOST_MAPS or maps_WYX.shape[1] * maps_WYX.shape[2] > MOST_CELLS:
        raise InputError(f"at most {MOST_MAPS} maps of {MOST_CELLS:,} places are drawn, got {maps_WYX.shape}")
    if not (np.isfinite(maps_WYX) & (maps_WYX >= 0)).all():
        raise InputError("maps should be numbers of at least 0, some are not")
    title_text = checked_title(title)
    if type(columns) is not int or columns < 1:
        raise InputError(f"columns should be a number of at least 1, got {described(columns)}")
    names = checked_labels("labels", labels, len(maps_WYX))
    if model is not None and not hasattr(model, "image_spec"):
        raise InputError(f"model should be an Encoder or a Captioner, got {described(model)}")
    spec = None if model is None else model.image_spec
    picture = open_picture(image, "image", spec is not None and spec.white)
    area = [(0.0, 1.0)] * 2 if spec is None else visible_area(picture.size, spec)
    return ImageMaps(picture, area, maps_WYX, names, title_text, columns)


class ImageMaps:
    """Panels of ``plot_image_attention``: the picture, then a panel for each map. A notebook shows the SVG."""

    def __init__(
        self,
        picture: Any,
        area: list[tuple[float, float]],
        maps_WYX: np.ndarray,
        labels: list[str],
        title: str,
        columns: int,
    ):
        self._title, self._columns = title, columns
        scale = SIDE / max(picture.size)
        self._size = tuple(max(1, round(side * scale)) for side in picture.size)
        resized = picture.resize(self._size, BILINEAR)
        self._panels = [("", resized), *zip(labels, (_lit_picture(resized, area, map_YX) for map_YX in maps_WYX))]

    def __repr__(self) -> str:
        return f"<ImageMaps: {len(self._panels) - 1} maps{f' of {self._title}' if self._title else ''}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def _layout(self, top: int) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        """((width, height) of the sheet, each panel's left upper corner); ``top``: pixels above the panels."""
        width, height = self._size[0] + GAP, self._size[1] + LINE + GAP
        columns = min(self._columns, len(self._panels))
        corners = [(GAP + i % columns * width, GAP + top + i // columns * height) for i in range(len(self._panels))]
        return (columns * width + GAP, corners[-1][1] + height), corners

    @property
    def svg(self) -> str:
        """The panels in rows, with their labels, as an SVG that loads no other file."""
        (width, height), (W, H), corners = self._size, *self._layout(LINE * bool(self._title))
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" height="{H}" viewBox="0 0 {W} {H}" '
            'font-family="sans-serif" font-size="13" fill="currentColor" role="img">',
            "<style>@media (prefers-color-scheme: dark) { svg { color: #ddd } }</style>",
        ]
        if self._title:
            lines.append(f'<text x="{GAP}" y="{LINE - 4}">{escape(clip(self._title, W // 7))}</text>')
        for (x, y), (label, panel) in zip(corners, self._panels):
            data = f"data:image/png;base64,{base64.b64encode(_png(panel)).decode()}"
            lines.append(f'<image x="{x}" y="{y}" width="{width}" height="{height}" href="{data}"/>')
            tag = f'<text x="{x + width / 2:g}" y="{y + height + 15}" text-anchor="middle">'
            lines.append(f"{tag}{escape(clip(label, width // 7))}</text>")
        return "\n".join([*lines, "</svg>\n"])

    @property
    def html(self) -> str:
        """A page with the SVG."""
        return html_page(self.svg, self._title or "Attention over a picture")

    @property
    def png(self) -> bytes:
        """The panels in rows, with their labels, as the bytes of a PNG."""
        from PIL import Image, ImageDraw

        (width, height), (size, corners) = self._size, self._layout(0)
        sheet = Image.new("RGB", size, "white")
        pen = ImageDraw.Draw(sheet)
        for (x, y), (label, panel) in zip(corners, self._panels):
            sheet.paste(panel, (x, y))
            pen.text((x + width // 2, y + height + LINE // 2), clip(label, width // 7), "black", anchor="mm")
        return _png(sheet)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``svg``, ``html`` or ``png``, as the path's suffix says; the file is there whole or not at all."""
        save_picture(self, path, ("svg", "html", "png"))


def _lit_picture(picture: Any, area: list[tuple[float, float]], map_YX: np.ndarray) -> Any:
    """The picture, each point as bright as the map there, relative to the map's largest number.

    area  of the picture under the map, as ``visible_area`` returns it
    """
    from PIL import Image

    share_YX = (map_YX / (map_YX.max() or 1)).astype(np.float32)
    edges = [[round(share * side) for share in shares] for shares, side in zip(area, picture.size)]
    brightness, size = Image.new("F", picture.size), [max(1, end - first) for first, end in edges]
    brightness.paste(Image.fromarray(share_YX).resize(size, BILINEAR), (edges[0][0], edges[1][0]))
    brightness_YX = np.asarray(brightness).clip(0, 1)
    lit_YXC = np.asarray(picture) * (DARKEST + (1 - DARKEST) * brightness_YX[..., None])
    return Image.fromarray(lit_YXC.round().astype(np.uint8))


def _png(picture: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


class ImageScorer(Protocol):
    """A model that measures how much covered images differ from the uncovered image."""

    @property
    def image_spec(self) -> PictureSpec:
        """How a picture becomes an image; InputError for a model without pictures."""

    def image_changes(self, image_CYX: np.ndarray) -> Callable[[list[np.ndarray]], np.ndarray]:
        """A function from images to how far the answer for each differs from the answer for ``image_CYX``: [images]."""


def saliency(model: ImageScorer, image: Any, *, size: int = 32, stride: int = 16) -> np.ndarray:
    """The saliency of each cell of a grid over the image that the model sees: float32 [y, x], at least 0.
    Where a model crops pictures to the middle, ``plot_image_attention`` with that model draws the map over the middle.

    model  an Encoder: saliency is the cosine distance between the vectors of the image and of the image with a grey
           square; or a Captioner: it is the log-probability per word that the image's caption loses by it
    image  a path, an image of Pillow, an array of uint8 [Y, X, 3] or [Y, X]
    size, stride  of the square, in pixels of the image that the model sees
    A pixel has the mean over the squares that cover it, a cell the mean of its pixels. Occlusion needs no gradients.
    InputError for anything but a sound picture, and for more than 4,096 squares.
    """
    check_count("size", size)
    check_count("stride", stride)
    image_CYX = load_image(image, 0, model.image_spec)
    _, height, width = image_CYX.shape
    size, stride = min(size, max(height, width)), min(stride, max(height, width))
    tops, lefts = (range(0, max(1, side - size + stride), stride) for side in (height, width))
    corners = [(top, left) for top in tops for left in lefts]
    if len(corners) > MOST_SQUARES:
        raise InputError(f"{len(corners):,} squares are more than {MOST_SQUARES:,}: a longer stride has fewer")
    grey_C11 = image_CYX.mean(axis=(1, 2), keepdims=True)
    sums_YX, counts_YX = np.zeros((height, width)), np.zeros((height, width))
    changes_of, changes = model.image_changes(image_CYX), []
    for first in range(0, len(corners), BATCH_IMAGES):
        covered_images = [image_CYX.copy() for _ in corners[first : first + BATCH_IMAGES]]
        for covered_CYX, (top, left) in zip(covered_images, corners[first:]):
            covered_CYX[:, top : top + size, left : left + size] = grey_C11
        changes += changes_of(covered_images).tolist()
    for (top, left), change in zip(corners, changes):
        sums_YX[top : top + size, left : left + size] += max(float(change), 0.0)
        counts_YX[top : top + size, left : left + size] += 1
    means_YX = sums_YX / np.maximum(counts_YX, 1)
    rows, columns = (-(-side // stride) for side in (height, width))
    edges = [np.minimum(np.arange(n) * stride, side - 1) for n, side in ((rows, height), (columns, width))]
    cell_sums_YX = np.add.reduceat(np.add.reduceat(means_YX, edges[0], axis=0), edges[1], axis=1)
    cell_sizes_YX = np.add.reduceat(np.add.reduceat(np.ones((height, width)), edges[0], axis=0), edges[1], axis=1)
    return np.asarray(cell_sums_YX / cell_sizes_YX, np.float32)
