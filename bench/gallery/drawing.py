"""The drawings of the gallery as SVG, for light pages and dark ones, and the small examples that they show."""

import math
import re
from html import escape

import numpy as np

from fastattn import plot_attention
from fastattn.plot.picture import SCALE_CAPTION, STYLE, colour_indices, hex_colours

SOURCE = "we meet in Berlin tomorrow morning .".split()
TARGET = "wir treffen uns morgen früh in Berlin .".split()
MEANT = [0, 1, 1, 4, 5, 2, 3, 6]  # the place in SOURCE of the word that each word of TARGET translates
SENTENCE = "the cat sat down because it was tired".split()
LOOKED_AT = [1, 1, 1, 2, 2, 1, 7, 5]  # the place in SENTENCE that each word depends on
WIDTH = 16


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def words(places: list[int], seed: int, noise: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """(queries (1, T, K), keys (1, S, K)): random keys; a query is the key of its place with noise."""
    key_SK = normal(seed, max(places) + 1, WIDTH)
    query_TK = key_SK[places] + np.float32(noise) * normal(seed + 100, len(places), WIDTH)
    return query_TK[None], key_SK[None]


def translation() -> tuple[np.ndarray, np.ndarray]:
    return words(MEANT, seed=1)


def sentence() -> tuple[np.ndarray, np.ndarray]:
    return words(LOOKED_AT, seed=2)


def even(T: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys whose scores differ little, so that a picture shows which keys are seen."""
    return normal(3, 1, T, WIDTH) / 8, normal(4, 1, S, WIDTH) / 8


EDGE, CELL, LINE = 12, 16, 16  # pixels
SEEN = "#7c5cd6"  # visible on a white page and on a dark one


def weights_picture(weights: np.ndarray, rows: list, columns: list, names: tuple[str, ...] = ()) -> str:
    """Draw weights (T, S) or (H, T, S) as ``plot_attention`` does; ``names`` are the heads'.

    The text under a pointer is left out: no page shows it for an embedded picture. Weights are rounded, so that CPUs
    whose sums differ in the last digits draw the same.
    """
    svg = plot_attention(np.round(weights, 3), rows, columns).to_svg()
    for h, name in enumerate(names):
        svg = svg.replace(f">head {h}<", f">{escape(name)}<")
    return re.sub(r"><title>[^<]*</title></rect>", "/>", svg)


def seen_picture(panels: list[tuple[str, np.ndarray]]) -> str:
    """Panels side by side, one for each (name, weights (T, S)), which show the cells whose weight is not 0."""
    parts, left, top = [], EDGE + LINE, EDGE + LINE * (1 + any(name for name, _ in panels))
    for name, weights_TS in panels:
        (T, S), seen = weights_TS.shape, weights_TS > 0
        width, height = CELL * S, CELL * T
        cells = "".join(f"M{left + CELL * s} {top + CELL * t}h{CELL}v{CELL}h-{CELL}z" for t, s in np.argwhere(seen))
        lines = "".join(f"M{left + CELL * s} {top}v{height}" for s in range(S + 1))
        lines += "".join(f"M{left} {top + CELL * t}h{width}" for t in range(T + 1))
        parts += [f'<path d="{cells}" fill="{SEEN}"/>', f'<path d="{lines}" stroke="#808892" stroke-width="0.5"/>']
        parts.append(_text(left, EDGE + 10, name, more=' font-weight="600"') if name else "")
        parts.append(_text(left, top - 5, "keys"))
        parts.append(f'<text transform="translate({left - 5} {top + height}) rotate(-90)">queries</text>')
        left += width + EDGE + LINE
    return _svg(left - LINE, top + max(len(x) for _, x in panels) * CELL + EDGE, parts, "which keys each query sees")


def matrices_picture(matrices: list[tuple[str, np.ndarray]], between: str = "") -> str:
    """Matrices of numbers >= 0 side by side, each in shares of its largest, with the signs ``between`` them."""
    parts, left, top, bottom = [], EDGE, EDGE + LINE, 0
    colours = hex_colours()
    for i, (name, matrix) in enumerate(matrices):
        shares = np.round(matrix / matrix.max(), 2)
        for (t, s), colour in np.ndenumerate(colour_indices(shares)):
            place = f'x="{left + CELL * s}" y="{top + CELL * t}" width="{CELL}" height="{CELL}"'
            parts.append(f'<rect {place} fill="{colours[colour]}"/>')
        parts.append(_text(left, EDGE + 8, name))
        left += max(CELL * matrix.shape[1], 7 * len(name)) + 2 * EDGE
        bottom = max(bottom, top + CELL * len(matrix))
        if i < len(between):
            parts.append(_text(left - EDGE, top + CELL * len(matrix) / 2 + 5, between[i], " text-anchor='middle'"))
    return _svg(left - EDGE, bottom + EDGE, parts, ", ".join(name for name, _ in matrices))


def graph_picture(panels: list[tuple[str, list[tuple[int, int]], dict[int, float]]], names: list[str]) -> str:
    """A panel for each (title, edges, node 0's weights of its neighbours and itself), which the edges' widths show."""
    radius, width, parts = 70, 2 * 70 + 5 * EDGE, []
    for i, (title, edges, weights) in enumerate(panels):
        x, y = EDGE + i * width + width / 2, EDGE + LINE + 2 * EDGE + radius
        turns = [2 * math.pi * n / len(names) - math.pi / 2 for n in range(len(names))]
        places = [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]
        parts.append(_text(EDGE + i * width + EDGE, EDGE + 8, title))
        parts += [_line(places[a], places[b], "#808892", 1) for a, b in edges]
        parts += [_line(places[0], places[n], SEEN, 14 * weight) for n, weight in weights.items() if n]
        for n, (px, py) in enumerate(places):
            circle = f'<circle cx="{px:.1f}" cy="{py:.1f}"'
            parts.append(f'{circle} r="{10 + 14 * weights[0]:.1f}" fill="{SEEN}"/>' if n == 0 else "")
            parts.append(f'{circle} r="10" class="fastattn-paper" fill="#fff" stroke="#808892"/>')
            parts.append(_text(px, py + 4, names[n], ' text-anchor="middle"'))
    height = 2 * radius + 5 * EDGE + LINE
    return _svg(len(panels) * width + 2 * EDGE, height, parts, "weights of a node for its neighbours")


def hulls_picture(panels: list[tuple[str, np.ndarray, list[int]]]) -> str:
    """A panel for each (title, points of the unit square (n, 2), the points that a line goes round)."""
    side, parts, left, top = 120, [], EDGE, 2 * EDGE + LINE
    for title, points_N2, rows in panels:
        places = [(left + side * x, top + side * (1 - y)) for x, y in points_N2.tolist()]
        frame = f'<rect x="{left}" y="{top}" width="{side}" height="{side}"'
        parts += [_text(left, EDGE + 8, title), f'{frame} fill="none" stroke="#808892" stroke-width="0.5"/>']
        parts += [_line(places[a], places[b], SEEN, 2) for a, b in zip(rows, [*rows[1:], *rows[:1]])]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#808892"/>' for x, y in places]
        left += side + 2 * EDGE
    return _svg(left - EDGE, top + side + EDGE, parts, "points and lines around them")


def captioned(svg: str, caption: str) -> str:
    """Replace the caption of the scale in a picture of ``weights_picture``."""
    return svg.replace(f">{SCALE_CAPTION}<", f">{escape(caption)}<")


def _svg(width: float, height: float, parts: list[str], described: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(described)}" '
        f'font-family="system-ui,sans-serif" font-size="12">\n<style>{STYLE}</style>\n'
        '<rect class="fastattn-paper" width="100%" height="100%" fill="#fff"/>\n'
        '<g class="fastattn-ink" fill="#1f2328">\n' + "\n".join(part for part in parts if part) + "\n</g>\n</svg>\n"
    )


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> str:
    (x, y), (u, v) = start, end
    return f'<path d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" stroke="{colour}" stroke-width="{width:.1f}"/>'
