"""Line plots as SVG, written by hand: panels side by side, one legend. No library is needed to draw or to see them."""

import math
from dataclasses import dataclass, field
from html import escape

PANEL, HEIGHT = 300, 230  # of the axes of one panel
LEFT, TOP, RIGHT, BOTTOM = 62, 34, 14, 48
COLOURS = ("#0b6bcb", "#c8553d", "#3d8b5f", "#8a5fb0", "#b08900", "#555555")


@dataclass
class Panel:
    """series: name -> points (x, y); dashed ones are limits, not measurements. The x axis is logarithmic, base 2."""

    title: str
    x_label: str
    y_label: str
    series: dict[str, list[tuple[float, float]]]
    dashed: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def plot(panels: list[Panel]) -> str:
    """The SVG of panels in a row; a name has the same colour in all."""
    names = list(dict.fromkeys(name for panel in panels for name in (*panel.series, *panel.dashed)))
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
    """The legend and where it ends."""
    parts, x = [], float(LEFT)
    for name, colour in colours.items():
        parts.append(_line([(x, y - 4), (x + 18, y - 4)], colour) + _text(x + 23, y, name))
        x += 23 + 7 * len(name) + 20
    return "\n".join(parts), x


def _panel(panel: Panel, colours: dict[str, str], left: float) -> str:
    points = [point for line in (*panel.series.values(), *panel.dashed.values()) for point in line]
    if not points:
        return _text(left + LEFT, TOP, f"{panel.title}: nothing measured")
    low, high = math.log2(min(x for x, _ in points)), math.log2(max(x for x, _ in points))
    ticks = _ticks(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return left + LEFT + along * PANEL, TOP + HEIGHT * (1 - y / ticks[-1])

    parts = [_text(left + LEFT, TOP - 14, panel.title, weight="bold")]
    for tick in ticks:
        start, y = left + LEFT, place(2**low, tick)[1]
        parts.append(_line([(start, y), (start + PANEL, y)], "#ddd", thickness=1))
        parts.append(_text(start - 6, y + 4, f"{tick:,.10g}", anchor="end"))
    for x in sorted({x for x, _ in points}):
        parts.append(_text(place(x, 0)[0], TOP + HEIGHT + 16, f"{x:g}", anchor="middle"))
    parts.append(_text(left + LEFT + PANEL / 2, TOP + HEIGHT + 34, panel.x_label, anchor="middle"))
    parts.append(_turned(left + 12, TOP + HEIGHT / 2, panel.y_label))
    for name, line in panel.dashed.items():
        parts.append(_line([place(*point) for point in line], colours[name], dash="5 4"))
    for name, line in panel.series.items():
        placed = [place(*point) for point in line]
        parts.append(_line(placed, colours[name]))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>' for x, y in placed]
    return "\n".join(parts)


def _ticks(top: float) -> list[float]:
    """From 0 to at least ``top`` in four to eight steps of 1, 2 or 5 times a power of ten."""
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
