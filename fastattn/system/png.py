"""Pictures of pixels for pages (W3C, Portable Network Graphics)."""

import base64
import struct
import zlib

import numpy as np


def png_address(pixels: np.ndarray, palette: bytes = b"") -> str:
    """The data URL of uint8 [Y, X, 3], or [Y, X]: grey, or indices into a ``palette`` of 3 bytes a colour."""
    lines = np.pad(pixels.reshape(len(pixels), -1), ((0, 0), (1, 0)))  # the first byte of each line, 0, says: no filter
    colour_type = 2 if pixels.ndim == 3 else 3 if palette else 0
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, colour_type, 0, 0, 0)
    chunks = (b"IHDR" + header, b"PLTE" + palette, b"IDAT" + zlib.compress(lines.tobytes(), 6), b"IEND")
    content = b"\x89PNG\r\n\x1a\n"
    for chunk in chunks if palette else (chunks[0], *chunks[2:]):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
