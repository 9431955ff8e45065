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
    content = b"\x89PNG\r\n\x1a\n"
    for chunk_type, data in (
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    ):
        if data or chunk_type != b"PLTE":
            content += (
                struct.pack(">I", len(data)) + chunk_type + data + struct.pack(">I", zlib.crc32(chunk_type + data))
            )
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
