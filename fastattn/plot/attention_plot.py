"""``plot_attention``, which checks weights and labels, and the ``AttentionPlot`` that draws them."""

import operator
import os
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from fastattn.errors import InputError, described
from fastattn.plot.labels import checked_labels, checked_title, display_width
from fastattn.plot.page import html_fragment, html_page, save_picture
from fastattn.plot.picture import PANEL_OF_SEVERAL, SINGLE_PANEL, Frame, Panel, Picture, draw, frame_of

MOST_HEADS, MOST_POSITIONS, MOST_WEIGHTS = 256, 4096, 1 << 24  # the most weights take about 24 MB of HTML


def plot_attention(
    weights: Any,
    rows: Iterable[str | int] | None = None,
    columns: Iterable[str | int] | None = None,
    *,
    title: str | None = None,
    names: Iterable[str | int] | None = None,
) -> "AttentionPlot":
    """A picture of attention weights, which a notebook shows.

    weights        floating point numbers (T, S), (H, T, S) or (1, H, T, S): heads, queries, keys; at least 0. The
                   saliency of a text's tokens is (1, S)
    rows, columns  T and S labels: tokens, or numbers; None: 0, 1, 2, ...
    title          a line above the picture
    names          H names of the heads; None: head 0, head 1, ...
    InputError for anything else, NaN and infinity, and for more than 256 heads, 4,096 rows or columns, or 16,777,216
    weights in all.
    """
    weights_HTS = _check_weights(weights)
    title_text = checked_title(title)
    H, T, S = weights_HTS.shape
    labels = checked_labels("rows", rows, T), checked_labels("columns", columns, S)
    heads = [f"head {h}" for h in range(H)] if names is None else checked_labels("names", names, H)
    return AttentionPlot(weights_HTS, *labels, title_text, heads)


class AttentionPlot:
    """A picture of attention weights, made by ``plot_attention``.

    A weight's colour shows its share of the largest weight of all heads; a mean of heads has shares of its own largest.
    A notebook shows the HTML, in which the reader chooses a head, and reads a weight under the pointer or by the arrow
    keys. The HTML loads nothing, and shows its SVG if scripts do not run. There is no ``_repr_svg_``, since notebooks
    would store the picture twice and show the HTML.
    """

    def __init__(self, weights_HTS: np.ndarray, rows: list[str], columns: list[str], title: str, names: list[str]):
        self._largest = float(weights_HTS.max()) or 1.0
        self._weights_HTS = weights_HTS
        self._rows, self._columns, self._title, self._names = rows, columns, title, names

    def __repr__(self) -> str:
        return f"<AttentionPlot: {self._description}>"

    def _repr_html_(self) -> str:
        panels = self._panels("mean") + self._panels("all") if len(self._weights_HTS) > 1 else self._panels(0)
        picture, frame = self._draw(panels[:1])
        return html_fragment(picture, frame, panels)

    @property
    def html(self) -> str:
        """A whole page with the HTML that a notebook shows."""
        return html_page(self._repr_html_(), self._title or "Attention weights")

    @property
    def svg(self) -> str:
        """The static picture of all heads."""
        return self.to_svg()

    def to_svg(self, head: int | Literal["mean", "all"] = "all") -> str:
        """A static picture of one head (from 0), of the mean of the heads, or of all heads side by side.

        The picture follows the reader's choice of light or dark. The pointer shows a cell's weight if there are at most
        4,096 cells, none smaller than a pixel.
        """
        return self._draw(self._panels(head))[0].svg

    def to_text(self, head: int | Literal["mean"] = "mean") -> str:
        """Lines for a terminal: a shade for each weight of one head or of the mean, then the columns by number."""
        (panel,) = self._panels(head)
        shades = np.array(list(" \u2591\u2592\u2593\u2588"))
        cells_TS = shades[np.minimum((panel.shares_TS * 5).astype(int), 4)]
        width = max(map(display_width, self._rows))
        numbers = "".join(f"{s:<2}" if s % 5 == 0 else "  " for s in range(len(self._columns)))
        lines = [f"{' ' * width}  {numbers}".rstrip()]
        for row, cells_S in zip(self._rows, cells_TS):
            lines.append(f"{' ' * (width - display_width(row))}{row}  {''.join(2 * cell for cell in cells_S)}".rstrip())
        return "\n".join([*lines, "", *(f"{s:>4} {column}" for s, column in enumerate(self._columns))])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``svg`` or ``html``, as the path's suffix says; the file is there whole or not at all."""
        save_picture(self, path, ("svg", "html"))

    @property
    def _description(self) -> str:
        counts = zip(self._weights_HTS.shape, ("head", "row", "column"))
        shape = ", ".join(f"{number} {name}{'s' * (number > 1)}" for number, name in counts)
        return f"{self._title + ': ' if self._title else ''}attention weights, {shape}"

    def _panels(self, head: Any) -> list[Panel]:
        """The panels that ``to_svg`` draws for its ``head``."""
        H = len(self._weights_HTS)
        if isinstance(head, str) and head == "all":
            return [self._panels(h)[0] for h in range(H)]
        if isinstance(head, str) and head == "mean":
            mean_TS = (self._weights_HTS / self._largest).mean(axis=0, dtype=np.float64) * self._largest  # no overflow
            # The mean's largest weight is far below the heads' if these attend to different columns.
            return [Panel(f"mean of {H} heads" if H > 1 else "", mean_TS, float(mean_TS.max()) or 1.0)]
        try:
            h = -1 if isinstance(head, bool) else operator.index(head)
        except TypeError:
            h = -1
        if not 0 <= h < H:
            raise InputError(f"head should be 'mean', 'all' or a whole number from 0 to {H - 1}, got {described(head)}")
        return [Panel(self._names[h] if H > 1 else "", self._weights_HTS[h], self._largest)]

    def _draw(self, panels: list[Panel]) -> tuple[Picture, Frame]:
        size = SINGLE_PANEL if len(panels) == 1 else PANEL_OF_SEVERAL
        frame = frame_of(self._rows, self._columns, size, has_heading=bool(panels[0].name))
        return draw(panels, frame, self._title, self._description), frame


def _check_weights(weights: Any) -> np.ndarray:
    """The weights as a new array (H, T, S), float32 or float64; InputError for anything else."""
    try:
        array = np.asarray(weights)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"weights should be an array of numbers, got a {type(weights).__name__}") from None
    if array.dtype.kind != "f":
        raise InputError(f"weights should be floating point numbers, got {array.dtype}")
    if array.ndim not in (2, 3, 4) or (array.ndim == 4 and len(array) != 1):
        raise InputError(f"weights should be (T, S), (H, T, S) or (1, H, T, S), got {array.shape}")
    if not array.size:
        raise InputError(f"weights should have at least one head, row and column, got {array.shape}")
    array = array.reshape(-1, *array.shape[-2:])
    H, T, S = array.shape
    if H > MOST_HEADS or max(T, S) > MOST_POSITIONS or array.size > MOST_WEIGHTS:
        raise InputError(
            f"weights should be at most {MOST_HEADS} heads, {MOST_POSITIONS:,} rows, as many columns, "
            f"and {MOST_WEIGHTS:,} in all, got {array.shape}"
        )
    with np.errstate(over="ignore"):  # a long double may become infinite, which is refused below
        weights_HTS = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32)
    np.add(weights_HTS, 0.0, out=weights_HTS)  # turns -0 into 0
    if not np.isfinite(weights_HTS).all():
        raise InputError("weights should be finite, got NaN or infinity")
    if weights_HTS.min() < 0:
        raise InputError(f"weights should be at least 0, got {weights_HTS.min():g}")
    return weights_HTS
