"""Line plots as SVG, written without a library: panels in a row, one legend."""

import math
from dataclasses import dataclass, field
from html import escape

PANEL, HEIGHT = 300, 230  # width and height of a panel's axes
LEFT, TOP, RIGHT, BOTTOM = 62, 34, 14, 48
COLOURS = ("#0b6bcb", "#c8553d", "#3d8b5f", "#8a5fb0", "#b08900", "#555555")

Series = dict[str, list[tuple[float, float]]]


@dataclass
class Panel:
    """series: name -> points (x, y) of a line; dots: points without a line; dashed: lines of limits, not measurements.

    The x axis is logarithmic, base 2; with ``log_y`` also the y axis, base 10, and x is marked only at powers.
    """

    title: str
    x_label: str
    y_label: str
    series: Series = field(default_factory=dict)
    dashed: Series = field(default_factory=dict)
    dots: Series = field(default_factory=dict)
    log_y: bool = False

    @property
    def lines(self) -> Series:
        return {**self.series, **self.dashed, **self.dots}


def plot(panels: list[Panel]) -> str:
    """The SVG of panels in a row; a name has the same colour in all."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    step = LEFT + PANEL + RIGHT
    legend, legend_width = _legend(colours, TOP + HEIGHT + BOTTOM + 10)
    width, height = max(step * len(panels), math.ceil(legend_width)), TOP + HEIGHT + BOTTOM + 22
    body = [_panel(panel, colours, i * step) for i, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" fill="#222">\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
        + "\n".join([*body, legend])
        + "\n</svg>\n"
    )


def _legend(colours: dict[str, str], y: float) -> tuple[str, float]:
    """(the legend, the y of its end)."""
    parts, x = [], float(LEFT)
    for name, colour in colours.items():
        parts.append(_line([(x, y - 4), (x + 18, y - 4)], colour) + _text(x + 23, y, name))
        x += 23 + 7 * len(name) + 20
    return "\n".join(parts), x


def _panel(panel: Panel, colours: dict[str, str], left: float) -> str:
    points = [point for line in panel.lines.values() for point in line]
    if not points:
        return _text(left + LEFT, TOP, f"{panel.title}: nothing measured")
    low, high = math.log2(min(x for x, _ in points)), math.log2(max(x for x, _ in points))
    ticks = (_powers if panel.log_y else _ticks)([y for _, y in points])
    bottom, top = _scaled(ticks[0], panel.log_y), _scaled(ticks[-1], panel.log_y)

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return left + LEFT + along * PANEL, TOP + HEIGHT * (top - _scaled(y, panel.log_y)) / (top - bottom)

    parts = [_text(left + LEFT, TOP - 14, panel.title, weight="bold")]
    for tick in ticks:
        start, y = left + LEFT, place(2**low, tick)[1]
        parts.append(_line([(start, y), (start + PANEL, y)], "#ddd", thickness=1))
        parts.append(_text(start - 6, y + 4, f"{tick:,.10g}", anchor="end"))
    powers = [2.0**n for n in range(math.ceil(low), math.floor(high) + 1) if n % 2 == 0]  # powers of four
    for x in powers if panel.log_y else sorted({x for x, _ in points}):
        parts.append(_text(place(x, ticks[-1])[0], TOP + HEIGHT + 16, f"{x:g}", anchor="middle"))
    parts.append(_text(left + LEFT + PANEL / 2, TOP + HEIGHT + 34, panel.x_label, anchor="middle"))
    parts.append(_turned(left + 12, TOP + HEIGHT / 2, panel.y_label))
    for name, line in panel.dashed.items():
        parts.append(_line([place(*point) for point in line], colours[name], dash="5 4"))
    for name, line in panel.series.items():
        parts.append(_line([place(*point) for point in line], colours[name]))
    for name, line in {**panel.series, **panel.dots}.items():
        placed = [place(*point) for point in line]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>' for x, y in placed]
    return "\n".join(parts)


def _scaled(y: float, logarithmic: bool) -> float:
    return math.log10(y) if logarithmic else y


def _powers(values: list[float]) -> list[float]:
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _ticks(values: list[float]) -> list[float]:
    """Ticks from 0 to at least the largest value, in four to eight steps of 1, 2 or 5 times a power of ten."""
    top = max(values)
    rough = (top or 1.0) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(factor for factor in (1, 2, 5) if factor * power <= rough) * power
    return [step * i for i in range(math.ceil((top or 1.0) / step - 1e-9) + 1)]


def _line(points: list[tuple[float, float]], colour: str, dash: str = "", thickness: float = 2) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thickness}"{dashes}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _turned(x: float, y: float, text: str) -> str:
    return f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)" text-anchor="middle">{escape(text)}</text>'
