"""Saliency of a picture's places, by occlusion (Zeiler and Fergus 2014): whatever the model, and without gradients."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastattn.errors import InputError, check_count
from fastattn.spec.images import PictureSpec
from fastattn.vision.pictures import load_image

MOST_COVERS = 1 << 12
TOGETHER = 64  # covered images in memory at once


class ImageScorer(Protocol):
    """A model that says how much covered images differ from a whole one."""

    @property
    def image_spec(self) -> PictureSpec:
        """How a picture becomes an image; InputError for a model that takes none."""

    def image_changes(self, image_CYX: np.ndarray) -> Callable[[list[np.ndarray]], np.ndarray]:
        """A function of images: float [images], how far the model's answer for each is from that for this one."""


def saliency(model: ImageScorer, image: Any, *, size: int = 32, stride: int = 16) -> np.ndarray:
    """How much each place matters: float32 [y, x], a grid over the image as the model sees it, numbers of at least 0.
    A model that crops sees the middle of the picture alone: ``plot_image_attention`` with that model draws it there.

    model  an Encoder: the cosine distance by which the vector moves; or a Captioner: the log-probability that its
           caption loses, a word
    image  a path, an image of Pillow, an array of uint8 [Y, X, 3] or [Y, X]
    size, stride  of the grey square that covers the places one after another, in pixels of that image
    A place is the mean over the squares that cover it. There are no gradients here: occlusion needs none, and asks the
    model itself. InputError for what is no sound picture, and for more than 4,096 squares.
    """
    check_count("size", size)
    check_count("stride", stride)
    image_CYX = load_image(image, 0, model.image_spec)
    _, height, width = image_CYX.shape
    size, stride = min(size, max(height, width)), min(stride, max(height, width))
    tops, lefts = (range(0, max(1, side - size + stride), stride) for side in (height, width))
    places = [(top, left) for top in tops for left in lefts]
    if len(places) > MOST_COVERS:
        raise InputError(f"{len(places):,} squares are more than {MOST_COVERS:,}: a longer stride has fewer")
    grey_C11 = image_CYX.mean(axis=(1, 2), keepdims=True)
    sums_YX, counts_YX = np.zeros((height, width)), np.zeros((height, width))
    changes_of, changes = model.image_changes(image_CYX), []
    for first in range(0, len(places), TOGETHER):
        covered = [image_CYX.copy() for _ in places[first : first + TOGETHER]]
        for one_CYX, (top, left) in zip(covered, places[first:]):
            one_CYX[:, top : top + size, left : left + size] = grey_C11
        changes += changes_of(covered).tolist()
    for (top, left), change in zip(places, changes):
        sums_YX[top : top + size, left : left + size] += max(float(change), 0.0)
        counts_YX[top : top + size, left : left + size] += 1
    means_YX = sums_YX / np.maximum(counts_YX, 1)
    rows, columns = (-(-side // stride) for side in (height, width))
    edges = [np.minimum(np.arange(n) * stride, side - 1) for n, side in ((rows, height), (columns, width))]
    areas_YX = np.add.reduceat(np.add.reduceat(means_YX, edges[0], axis=0), edges[1], axis=1)
    sizes_YX = np.add.reduceat(np.add.reduceat(np.ones((height, width)), edges[0], axis=0), edges[1], axis=1)
    return np.asarray(areas_YX / sizes_YX, np.float32)
