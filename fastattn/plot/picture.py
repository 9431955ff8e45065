"""Attention weights as a static SVG: a panel for each head, labels, and the scale of colours.

The SVG has no ids, so a page may have several SVGs. If a reader strips styles, attributes give it light colours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from math import ceil, comb

import numpy as np

from fastattn.plot.labels import clip, display_width, isolate, label_step
from fastattn.printable import counted
from fastattn.system.png import png_address

# A Bezier curve in OKLab (lightness, green to red, blue to yellow) from nearly black over violet and orange to pale
# yellow. Lightness rises all the way, so that the colours can be told apart in grey and with colour blindness.
_CURVE = ((0.19, 0.01, -0.06), (0.36, 0.10, -0.22), (0.57, 0.24, -0.03), (0.74, 0.09, 0.14), (0.96, -0.03, 0.10))
COLOURS = 256

# From OKLab to the cube roots of the signals of the eye's cones, and from the signals to linear sRGB (Ottosson 2020).
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
def colour_scale() -> np.ndarray:
    """The colours of the shares from 0 to 1, uint8 [256, red green blue], at equal distances in OKLab."""
    linear = _linear_srgb(_equidistant(_bezier(1024)))
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    colours = np.rint(255 * encoded).astype(np.uint8)
    colours.flags.writeable = False
    return colours


@cache
def hex_colours() -> list[str]:
    return [f"#{bytes(colour).hex()}" for colour in colour_scale()]


def colour_indices(shares: np.ndarray) -> np.ndarray:
    """The index of each share's nearest colour, uint8, for shares from 0 to 1."""
    return np.rint(shares * (COLOURS - 1)).astype(np.uint8)


def _bezier(points: int) -> np.ndarray:
    t, degree = np.linspace(0, 1, points)[:, None], len(_CURVE) - 1
    return np.sum([comb(degree, i) * t**i * (1 - t) ** (degree - i) * _CURVE[i] for i in range(degree + 1)], axis=0)


def _equidistant(curve: np.ndarray) -> np.ndarray:
    """COLOURS points of a curve, at equal distances along the curve."""
    ends = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    distances = np.linspace(0, ends[-1], COLOURS)
    return np.stack([np.interp(distances, ends, axis) for axis in curve.T], axis=1)


def _linear_srgb(oklab: np.ndarray) -> np.ndarray:
    return (oklab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T


def largest_of_blocks(shares_TS: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest share of each block of rows x columns; means would hide the few weights that are not small."""
    maxima_of_rows = np.maximum.reduceat(shares_TS, np.arange(0, shares_TS.shape[0], rows), axis=0)
    return np.maximum.reduceat(maxima_of_rows, np.arange(0, shares_TS.shape[1], columns), axis=1)


MOST_RECTANGLES = 4096  # of a picture; with more cells each panel is an image, without a tooltip for each cell
MARGIN = 12  # in pixels, like all lengths in this file
PAGE_WIDTH = 960  # the largest width of panels side by side
LETTER_WIDTH, LINE_HEIGHT = 6.4, 14  # about the mean width of a letter; the least height of a line
LONGEST_LABEL, LONGEST_TITLE = 18, 80  # in columns of ``display_width``
SCALE_WIDTH, SCALE_CAPTION = 160, "weight of a column for a row"

STYLE = (
    ".fastattn-paper{fill:#fff}.fastattn-ink{fill:#1f2328}"
    "@media(prefers-color-scheme:dark){.fastattn-paper{fill:#16191f}.fastattn-ink{fill:#e6e9ee}}"
)


@dataclass(frozen=True)
class Panel:
    """A head's name ("" for a single head), the head's weights, and the weight that has the brightest colour."""

    name: str
    weights_TS: np.ndarray
    largest: float

    @property
    def shares_TS(self) -> np.ndarray:
        return self.weights_TS / self.largest


@dataclass(frozen=True)
class Size:
    """extent: the most that all cells of a panel may take on a side; cell: the most of one cell; font: of labels."""

    extent: float
    cell: float
    font: float


SINGLE_PANEL, PANEL_OF_SEVERAL = Size(extent=560, cell=28, font=11), Size(extent=210, cell=15, font=10)


@dataclass(frozen=True)
class Frame:
    """The geometry of a panel of width x height, whose cells begin at (left, top), each cell_width x cell_height.

    Every row_step-th row and column_step-th column has a label. Labels of columns are level or slanted.
    """

    rows: list[str]
    columns: list[str]
    size: Size
    left: float
    top: float
    width: float
    height: float
    cell_width: float
    cell_height: float
    row_step: int
    column_step: int
    slanted: bool

    @property
    def cells_width(self) -> float:
        return self.cell_width * len(self.columns)

    @property
    def cells_height(self) -> float:
        return self.cell_height * len(self.rows)

    @property
    def block(self) -> tuple[int, int]:
        """How many rows and columns of cells share one pixel, if the cells are drawn as an image.

        The image has no more pixels than its place on the page: shrinking the image would blur single weights away.
        """
        return ceil(len(self.rows) / self.cells_height), ceil(len(self.columns) / self.cells_width)


def frame_of(rows: list[str], columns: list[str], size: Size, has_heading: bool) -> Frame:
    """The frame of a panel; ``has_heading``: whether the panel's name stands above the cells."""
    sides = [min(size.cell, size.extent / len(labels)) for labels in (rows, columns)]
    cell_height, cell_width = (float(int(side)) if side >= 4 else side for side in sides)
    letter = LETTER_WIDTH * size.font / SINGLE_PANEL.font
    row_step, column_step = label_step(cell_height, LINE_HEIGHT), label_step(cell_width, LINE_HEIGHT)
    widest = max(map(display_width, columns))
    if column_step > 1 and widest <= 5:  # numbers: leaving out more of them gives the shown ones room to be level
        column_step = label_step(cell_width, letter * (widest + 1.5))
    row_width, column_width = (
        letter * max(display_width(clip(label, LONGEST_LABEL)) for label in labels[::step])
        for labels, step in ((rows, row_step), (columns, column_step))
    )
    slanted = column_width + letter > column_step * cell_width
    left = row_width + 8
    top = (LINE_HEIGHT + 4 if has_heading else 0) + (0.87 * column_width + 12 if slanted else LINE_HEIGHT + 2)
    right = 0.5 * column_width if slanted else 0.0
    width, height = left + cell_width * len(columns) + right, top + cell_height * len(rows)
    return Frame(rows, columns, size, left, top, width, height, cell_width, cell_height, row_step, column_step, slanted)


@dataclass(frozen=True)
class Picture:
    """An SVG, its width and height, and the left upper corner of its first panel."""

    svg: str
    width: float
    height: float
    panel_corner: tuple[float, float]


def draw(panels: list[Panel], frame: Frame, title: str, description: str) -> Picture:
    """The picture of panels with the same largest weight; ``description`` is the picture's ARIA label."""
    most_columns = max(1, int((PAGE_WIDTH + MARGIN) // (frame.width + MARGIN)))
    rows = ceil(len(panels) / most_columns)
    columns = ceil(len(panels) / rows)
    short_title, heading = clip(title, LONGEST_TITLE), ' font-size="14" font-weight="600"'
    top = MARGIN + (24 if title else 0)
    legend_top = top + rows * (frame.height + MARGIN)
    legend, legend_width = _legend(legend_top, panels[0].largest)
    widths = [columns * (frame.width + MARGIN) - MARGIN, legend_width, 1.25 * LETTER_WIDTH * display_width(short_title)]
    width, height = max(widths) + 2 * MARGIN, legend_top + 34 + MARGIN
    as_rectangles = sum(panel.weights_TS.size for panel in panels) <= MOST_RECTANGLES and frame.block == (1, 1)
    parts = [_text(MARGIN, MARGIN + 14, short_title, full_text=title, attributes=heading)] if title else []
    for i, panel in enumerate(panels):
        x, y = MARGIN + i % columns * (frame.width + MARGIN), top + i // columns * (frame.height + MARGIN)
        parts += [f'<g transform="translate({x:.1f} {y:.1f})">', *_panel(panel, frame, as_rectangles), "</g>"]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fastattn-picture" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(description)}" '
        f'font-family="system-ui,sans-serif" font-size="12">\n<style>{STYLE}</style>\n'
        f'<rect class="fastattn-paper" width="100%" height="100%" fill="#fff"/>\n'
        '<g class="fastattn-ink" fill="#1f2328">\n' + "\n".join([*parts, legend]) + "\n</g>\n</svg>\n"
    )
    return Picture(svg, round(width), round(height), (MARGIN, top))


def _panel(panel: Panel, frame: Frame, as_rectangles: bool) -> list[str]:
    parts = [f'<g font-size="{frame.size.font:g}">', *_labels(frame), "</g>"]
    if panel.name:
        parts.append(_text(frame.left, 11, panel.name, attributes=' class="fastattn-heading" font-weight="600"'))
    parts += _rectangles(panel, frame) if as_rectangles else [_image(panel, frame)]
    parts.append(
        f'<rect x="{frame.left - 0.5:.1f}" y="{frame.top - 0.5:.1f}" width="{frame.cells_width + 1:.1f}" '
        f'height="{frame.cells_height + 1:.1f}" fill="none" stroke="#808892"/>'
    )
    return parts


def _labels(frame: Frame) -> Iterator[str]:
    middle = 0.36 * frame.size.font
    for i in range(0, len(frame.rows), frame.row_step):
        y, label = frame.top + (i + 0.5) * frame.cell_height + middle, frame.rows[i]
        yield _text(frame.left - 6, y, clip(label, LONGEST_LABEL), full_text=label, attributes=' text-anchor="end"')
    for i in range(0, len(frame.columns), frame.column_step):
        x, y, label = frame.left + (i + 0.5) * frame.cell_width, frame.top - 6, frame.columns[i]
        placement = f' transform="rotate(-60 {x:.1f} {y:.1f})"' if frame.slanted else ' text-anchor="middle"'
        y += middle if frame.slanted else 0
        yield _text(x, y, clip(label, LONGEST_LABEL), full_text=label, attributes=placement)


def _rectangles(panel: Panel, frame: Frame) -> list[str]:
    names, colours_TS = hex_colours(), colour_indices(panel.shares_TS)
    rows, columns = ([isolate(escape(clip(label, 40))) for label in labels] for labels in (frame.rows, frame.columns))
    parts = ['<g shape-rendering="crispEdges">']
    for t, row in enumerate(rows):
        for s, column in enumerate(columns):
            x, y = frame.left + s * frame.cell_width, frame.top + t * frame.cell_height
            tooltip = f"{row}, {column}: {panel.weights_TS[t, s]:.4g}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{frame.cell_width:g}" height="{frame.cell_height:g}" '
                f'fill="{names[colours_TS[t, s]]}"><title>{tooltip}</title></rect>'
            )
    return [*parts, "</g>"]


def _image(panel: Panel, frame: Frame) -> str:
    counts = f"{counted(len(frame.rows), 'row')}, {counted(len(frame.columns), 'column')}"
    name = f"{escape(panel.name) or 'weights'}: {counts}"
    indices = colour_indices(largest_of_blocks(panel.shares_TS, *frame.block))
    return (
        f'<image x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.cells_width:.1f}" '
        f'height="{frame.cells_height:.1f}" preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="{png_address(indices, colour_scale().tobytes())}"><title>{name}</title></image>'
    )


def _legend(y: float, largest: float) -> tuple[str, float]:
    """(the scale of colours from 0 to the largest weight, with a caption below; the width of both)."""
    colours, x, end = hex_colours()[::4], MARGIN + 12.0, f"{largest:.4g}"
    step = SCALE_WIDTH / len(colours)
    bar = f'y="{y:.1f}" width="{step:g}" height="10"'
    bars = [f'<rect x="{x + i * step:g}" {bar} fill="{colour}"/>' for i, colour in enumerate(colours)]
    largest_text = _text(x + SCALE_WIDTH + 5, y + 9.5, end, attributes=' class="fastattn-largest"')
    texts = [_text(MARGIN, y + 9.5, "0"), largest_text, _text(x, y + 27, SCALE_CAPTION)]
    width = 12 + max(SCALE_WIDTH + 5 + LETTER_WIDTH * 10, LETTER_WIDTH * len(SCALE_CAPTION))
    return "\n".join(['<g shape-rendering="crispEdges">', *bars, "</g>", *texts]), width


def _text(x: float, y: float, text: str, full_text: str = "", attributes: str = "") -> str:
    """A line of text, with ``full_text`` as its tooltip if the line is a part of it."""
    tooltip = f"<title>{escape(full_text)}</title>" if full_text and full_text != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}{tooltip}</text>'
