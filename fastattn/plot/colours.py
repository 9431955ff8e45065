"""The colour scale of a picture, from dark for zero to bright: the same on a light page and on a dark one."""

from functools import cache
from math import comb

import numpy as np

# A Bezier curve in OKLab (lightness, green to red, blue to yellow) from nearly black over violet and orange to pale
# yellow. Lightness rises all the way, so that it can be read in grey, and by whoever sees fewer colours.
_CURVE = ((0.19, 0.01, -0.06), (0.36, 0.10, -0.22), (0.57, 0.24, -0.03), (0.74, 0.09, 0.14), (0.96, -0.03, 0.10))
COLOURS = 256

# From OKLab to the cube roots of what the eye's cones see, and from the cones to linear sRGB (Ottosson 2020).
_TO_CONES = np.array(
    ((1, 0.3963377774, 0.2158037573), (1, -0.1055613458, -0.0638541728), (1, -0.0894841775, -1.2914855480))
)
_TO_LINEAR = np.array(
    (
        (4.0767416621, -3.3077115913, 0.2309699292),
        (-1.2684380046, 2.6097574011, -0.3413193965),
        (-0.0041960863, -0.7034186147, 1.7076147010),
    )
)


@cache
def scale() -> np.ndarray:
    """The colours of shares 0 to 1, uint8 [256, red green blue]; neighbours are equally far apart in OKLab."""
    linear = _linear(_evenly(_bezier(1024)))
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    colours = np.rint(255 * encoded).astype(np.uint8)
    colours.flags.writeable = False
    return colours


@cache
def hex_colours() -> list[str]:
    """The scale as ``#rrggbb``."""
    return [f"#{bytes(colour).hex()}" for colour in scale()]


def indices(shares: np.ndarray) -> np.ndarray:
    """The nearest colour of each share from 0 to 1, uint8."""
    return np.rint(shares * (COLOURS - 1)).astype(np.uint8)


def _bezier(points: int) -> np.ndarray:
    along, degree = np.linspace(0, 1, points)[:, None], len(_CURVE) - 1
    terms = [comb(degree, i) * along**i * (1 - along) ** (degree - i) * _CURVE[i] for i in range(degree + 1)]
    return np.sum(terms, axis=0)


def _evenly(curve: np.ndarray) -> np.ndarray:
    """COLOURS points of the curve, at equal distances along it."""
    ends = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    wanted = np.linspace(0, ends[-1], COLOURS)
    return np.stack([np.interp(wanted, ends, axis) for axis in curve.T], axis=1)


def _linear(oklab: np.ndarray) -> np.ndarray:
    return (oklab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T
