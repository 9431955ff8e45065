"""Cells as an image: the largest of each block of cells, in a PNG with the scale as its palette."""

import base64
import math
import struct
import zlib

import numpy as np

from fastattn.plot.colours import indices, scale


def block_size(cells: int, pixels: float) -> int:
    """How many cells in a row share a dot, so that a page never shrinks the image and so blurs single weights away."""
    return max(1, math.ceil(cells / pixels))


def largest_of_blocks(shares_TS: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest of each block of rows x columns: a mean would hide the few weights that are not small."""
    tall = np.maximum.reduceat(shares_TS, np.arange(0, shares_TS.shape[0], rows), axis=0)
    return np.maximum.reduceat(tall, np.arange(0, shares_TS.shape[1], columns), axis=1)


def png_address(shares_TS: np.ndarray) -> str:
    """``data:image/png;base64,...`` with a dot for each share."""
    return f"data:image/png;base64,{base64.b64encode(png(indices(shares_TS))).decode()}"


def png(colours_TS: np.ndarray) -> bytes:
    """A PNG of uint8 indices into the scale (W3C, Portable Network Graphics, colour type 3)."""
    height, width = colours_TS.shape
    lines = np.zeros((height, width + 1), np.uint8)  # the first byte of a line: no filter
    lines[:, 1:] = colours_TS
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", scale().tobytes()), (b"IDAT", zlib.compress(lines.tobytes(), 6)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in (*chunks, (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
