"""Attention weights as HTML: the static picture, over which a script paints the chosen head and names each weight.

The script's data is in attributes of the outermost element, and the script finds elements by their class. There are no
ids, so a page may have the same HTML twice. Controls are hidden until the script runs.
"""

import base64
import json
import os
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fastattn.errors import InputError, described
from fastattn.plot.picture import Frame, Panel, Picture, colour_scale
from fastattn.system.files import checked_path, open_file

MOST_WIDE_WEIGHTS = 1 << 19  # up to so many weights have 16 bits each; more have 8

# A theme that JupyterLab, Visual Studio Code, Colab or Sphinx states for the page takes precedence over the system's.
_LIGHT = "color-scheme:light;color:#1f2328;background:#fff"
_DARK = "color-scheme:dark;color:#e6e9ee;background:#16191f"
_LIGHT_PAGE = ":is([data-jp-theme-light=true],[data-theme=light],[theme=light],.vscode-light)"
_DARK_PAGE = ":is([data-jp-theme-light=false],[data-theme=dark],[theme=dark],.vscode-dark)"
STYLE = f"""
.fastattn-attention{{{_LIGHT};font:13px system-ui,sans-serif;padding:2px}}
@media(prefers-color-scheme:dark){{.fastattn-attention{{{_DARK}}}}}
{_LIGHT_PAGE} .fastattn-attention{{{_LIGHT}}}
{_DARK_PAGE} .fastattn-attention{{{_DARK}}}
.fastattn-attention .fastattn-paper{{fill:none}}
.fastattn-attention .fastattn-ink{{fill:currentColor}}
.fastattn-bar{{margin:8px 12px 0}}
.fastattn-bar select{{font:inherit}}
.fastattn-bar output{{display:block;height:1.5em;margin-top:4px}}
.fastattn-bar output{{overflow:hidden;white-space:nowrap;text-overflow:ellipsis}}
.fastattn-stage{{position:relative}}
.fastattn-stage svg{{display:block;width:100%;height:auto}}
.fastattn-stage canvas{{position:absolute;cursor:crosshair;image-rendering:pixelated}}
.fastattn-cursor{{position:absolute;box-sizing:border-box;pointer-events:none;outline:2px solid #21d0ff}}
"""

SCRIPT = r"""
(() => {
  const decodeBase64 = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const start = root => {
    const data = root.dataset, rows = JSON.parse(data.rows), columns = JSON.parse(data.columns);
    const T = rows.length, S = columns.length, levels = +data.levels, [blockT, blockS] = JSON.parse(data.block);
    const bytes = decodeBase64(data.weights), colours = decodeBase64(data.colours);
    const weights = levels > 255 ? new Uint16Array(bytes.buffer) : bytes;
    const find = selector => root.querySelector(selector), canvas = find("canvas"), cursor = find(".fastattn-cursor");
    const select = find("select"), output = find("output"), heading = find(".fastattn-heading");
    const height = canvas.height = Math.ceil(T / blockT), width = canvas.width = Math.ceil(S / blockS);
    const maxima = JSON.parse(data.largest), chosenHead = () => select ? select.selectedIndex : 0;
    const exponent = number => Math.floor(Math.log10(number));
    let row = 0, column = 0, isPointing = false;

    // The index of the largest weight of a block; a block is one weight, unless there are more weights than pixels.
    const indexOfLargest = (y, x) => {
      const head = chosenHead();
      let best = -1;
      for (let t = y * blockT; t < Math.min(T, (y + 1) * blockT); t++)
        for (let s = x * blockS; s < Math.min(S, (x + 1) * blockS); s++) {
          const index = (head * T + t) * S + s;
          if (best < 0 || weights[index] > weights[best]) best = index;
        }
      return best;
    };
    const paint = () => {
      const context = canvas.getContext("2d"), image = context.createImageData(width, height);
      for (let y = 0, i = 0; y < height; y++)
        for (let x = 0; x < width; x++, i += 4) {
          const colour = 3 * Math.round(weights[indexOfLargest(y, x)] * 255 / levels);
          image.data.set([colours[colour], colours[colour + 1], colours[colour + 2], 255], i);
        }
      context.putImageData(image, 0, 0);
      if (heading && select) heading.textContent = select.options[select.selectedIndex].text;
      find(".fastattn-largest").textContent = +maxima[chosenHead()].toPrecision(4);
    };
    const showWeight = (y, x) => {
      row = Math.max(0, Math.min(height - 1, y));
      column = Math.max(0, Math.min(width - 1, x));
      isPointing = true;
      const index = indexOfLargest(row, column), top = maxima[chosenHead()], value = weights[index] / levels * top;
      const digits = value && Math.max(1, Math.min(4, 1 + exponent(value) - exponent(top / levels)));
      const label = text => "\u2068" + text + "\u2069";
      output.textContent = `${value && +value.toPrecision(digits)} (row ${label(rows[Math.floor(index / S) % T])}, ` +
        `column ${label(columns[index % S])})`;
      const box = canvas.style, divide = (length, count) => `calc(${length} / ${count})`;
      cursor.style.left = `calc(${box.left} + ${box.width} * ${column} / ${width})`;
      cursor.style.top = `calc(${box.top} + ${box.height} * ${row} / ${height})`;
      cursor.style.width = divide(box.width, width);
      cursor.style.height = divide(box.height, height);
      cursor.hidden = false;
    };
    const hideWeight = () => { cursor.hidden = true; output.textContent = ""; isPointing = false; };
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    canvas.addEventListener("pointermove", event => {
      const box = canvas.getBoundingClientRect();
      showWeight(Math.floor((event.clientY - box.top) / box.height * height),
                 Math.floor((event.clientX - box.left) / box.width * width));
    });
    canvas.addEventListener("pointerleave", hideWeight);
    canvas.addEventListener("blur", hideWeight);
    canvas.addEventListener("keydown", event => {
      const step = steps[event.key];
      if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      if (isPointing) showWeight(row + step[0], column + step[1]); else showWeight(row, column);
    });
    if (select) select.addEventListener("change", () => { paint(); hideWeight(); });
    paint();
    canvas.hidden = find(".fastattn-bar").hidden = false;
  };
  for (const root of document.querySelectorAll("div.fastattn-attention")) {
    if (root.fastattnBegun) continue;
    root.fastattnBegun = true;
    start(root);
  }
})();
"""


def html_fragment(picture: Picture, frame: Frame, panels: list[Panel]) -> str:
    """The HTML of a picture of the first panel, over which the script paints the panel that the reader chooses."""
    # Each share becomes the nearest of levels + 1 whole numbers, of one byte or of two, little endian.
    count = sum(panel.weights_TS.size for panel in panels)
    levels, dtype = (65535, "<u2") if count <= MOST_WIDE_WEIGHTS else (255, "u1")
    weights = b"".join(np.rint(panel.shares_TS * levels).astype(dtype).tobytes() for panel in panels)
    left, top = picture.panel_corner[0] + frame.left, picture.panel_corner[1] + frame.top
    sides = {"left": left / picture.width, "top": top / picture.height, "width": frame.cells_width / picture.width}
    sides["height"] = frame.cells_height / picture.height
    position = ";".join(f"{side}:{100 * share:.4f}%" for side, share in sides.items())
    data = {
        "rows": json.dumps(frame.rows, ensure_ascii=False),
        "columns": json.dumps(frame.columns, ensure_ascii=False),
        "weights": base64.b64encode(weights).decode(),
        "levels": str(levels),
        "largest": json.dumps([panel.largest for panel in panels]),
        "block": json.dumps(frame.block),
        "colours": base64.b64encode(colour_scale().tobytes()).decode(),
    }
    options = "".join(f"<option>{escape(panel.name)}</option>" for panel in panels)
    choice = f'<label>Head <select autocomplete="off">{options}</select></label>' if len(panels) > 1 else ""
    attributes = "\n".join(f'data-{name}="{escape(value)}"' for name, value in data.items())
    return (
        f'<div class="fastattn-attention" {attributes}>\n<style>{STYLE}</style>\n'
        f'<div class="fastattn-bar" hidden>{choice}<output></output></div>\n'
        f'<div class="fastattn-stage" style="max-width:{picture.width:g}px">\n{picture.svg}'
        '<canvas hidden tabindex="0" role="img" aria-label="weights; arrow keys move from one to the next" '
        f'style="{position}"></canvas><div class="fastattn-cursor" hidden></div>\n'
        f"</div>\n<script>{SCRIPT}</script>\n</div>\n"
    )


def save_picture(picture: Any, path: str | os.PathLike[str], formats: Sequence[str]) -> None:
    """Write the attribute of a picture that the path's suffix names; the file is whole or not there."""
    name = checked_path(path)
    suffixes = [f".{form}" for form in formats]
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in suffixes:
        *first, last = suffixes
        raise InputError(f"a picture's path should end in {', '.join(first)} or {last}, got {described(name)}")
    content = getattr(picture, suffix[1:])
    with open_file(name) as output:
        output.write(content if isinstance(content, bytes) else content.encode())


def html_page(body: str, title: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>:root{{color-scheme:light dark}}</style>\n</head>\n<body>\n{body}"
        "</body>\n</html>\n"
    )
