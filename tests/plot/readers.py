"""What a plot's SVG and HTML hold, read back by parsers."""

import base64
import io
import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
from PIL import Image

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "input", "br", "img"}
HOSTILE = ["</script><b>x", '"><img src=x onerror=alert(1)>', "a&amp;b'", "\x00\n\x1b[2J", "\u202eevil", "\ud800\uffff"]


def softmax(*shape, seed=0):
    exponentials = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return (exponentials / exponentials.sum(axis=-1, keepdims=True)).astype(np.float32)


class Reader(HTMLParser):
    """elements: (tag, attributes, tags around it); texts: (tag, text). Fails where an end tag closes nothing."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs), tuple(self._open)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self._open)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    def named(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    @property
    def root(self):
        return next(found for found in self.named("div") if found["class"] == "fastattn-attention")


def rectangles(svg):
    """(colour, tooltip) of each cell."""
    found = [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if len(rect)]
    return [(rect.get("fill"), rect[0].text) for rect in found]


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def sent_weights(html):
    """(H or H + 1, T, S): what the script shows, the mean first."""
    data = Reader(html).root
    levels, largest = int(data["data-levels"]), json.loads(data["data-largest"])
    raw = np.frombuffer(base64.b64decode(data["data-weights"]), "<u2" if levels == 65535 else np.uint8)
    T, S = (len(json.loads(data[f"data-{axis}"])) for axis in ("rows", "columns"))
    return raw.reshape(len(largest), T, S) / levels * np.reshape(largest, (-1, 1, 1)), levels, largest


def images(svg):
    """The dots, (height, width) uint8 indices, and the palette of each panel that is an image."""
    found = []
    for image in ElementTree.fromstring(svg).iter(f"{SVG}image"):
        data = base64.b64decode(image.get("href").removeprefix("data:image/png;base64,"))
        with Image.open(io.BytesIO(data), formats=["PNG"]) as read:
            assert (read.mode, read.info) == ("P", {})
            found.append((np.asarray(read), np.reshape(read.getpalette(), (-1, 3))))
    return found


def contrast(*hexes):
    """WCAG 2.2's contrast ratio of two colours, ``#rgb`` or ``#rrggbb``."""
    lights = []
    for digits in (code[1:] if len(code) == 7 else "".join(2 * digit for digit in code[1:]) for code in hexes):
        channels = np.frombuffer(bytes.fromhex(digits), np.uint8) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        lights.append(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return max(lights) / min(lights)
