"""The blocks of GGUF's quantized tensors: integers of few bits in groups, with a scale and perhaps a minimum of each.

A type's ``unpack`` takes blocks apart; all arithmetic is ``Groups.dequantize``, whose float32 results are those of the
format's reference to the bit. Types of 32 numbers have one group a block; K types have 256 numbers, and 6 or 8 bits for
a group's scale, which multiplies a scale of the block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Groups:
    """B blocks of G groups of W numbers: values * scales, or values * scales + minima.

    values_BGW  int8 or uint8
    scales_BG   float32, as are minima_BG; None: there are none
    """

    values_BGW: np.ndarray
    scales_BG: np.ndarray
    minima_BG: np.ndarray | None = None

    def dequantize(self, out_BGW: np.ndarray) -> None:
        """Write the numbers into a float32 array."""
        np.multiply(self.values_BGW, self.scales_BG[..., None], out=out_BGW, dtype=np.float32)
        if self.minima_BG is not None:
            out_BGW += self.minima_BG[..., None]


@dataclass(frozen=True)
class BlockType:
    """``size`` bytes that hold so many ``numbers``; ``unpack`` takes uint8 [B, size]."""

    numbers: int
    size: int
    unpack: Callable[[np.ndarray], Groups]


def _halves(blocks_BS: np.ndarray, first: int) -> np.ndarray:
    """The float16 at a byte of each block, as float32 [B, 1]."""
    return np.ascontiguousarray(blocks_BS[:, first : first + 2]).view("<f2").astype(np.float32)


def _low_bits(bytes_BS: np.ndarray, width: int, bits: int) -> np.ndarray:
    """uint8 [B, groups, width]: of each ``width`` bytes first their lowest ``bits``, then the next ones, and so on."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = bytes_BS.reshape(len(bytes_BS), -1, 1, width) >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(len(bytes_BS), -1, width)


def _q8_0(blocks: np.ndarray) -> Groups:
    return Groups(blocks[:, None, 2:].view(np.int8), _halves(blocks, 0))


def _four(bytes_BS: np.ndarray) -> np.ndarray:
    """The 32 numbers of 16 bytes, [B, 1, 32]."""
    return _low_bits(bytes_BS, 16, 4).reshape(-1, 1, 32)


def _five(bytes_BS: np.ndarray) -> np.ndarray:
    """The 32 numbers of 4 bytes of highest bits and 16 of the others."""
    high = np.unpackbits(bytes_BS[:, :4], axis=1, bitorder="little")
    return _four(bytes_BS[:, 4:]) | (high << np.uint8(4))[:, None]


def _q4_0(blocks: np.ndarray) -> Groups:
    return Groups(_four(blocks[:, 2:]).view(np.int8) - np.int8(8), _halves(blocks, 0))


def _q4_1(blocks: np.ndarray) -> Groups:
    return Groups(_four(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2))


def _q5_0(blocks: np.ndarray) -> Groups:
    return Groups(_five(blocks[:, 2:]).view(np.int8) - np.int8(16), _halves(blocks, 0))


def _q5_1(blocks: np.ndarray) -> Groups:
    return Groups(_five(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2))


def _scaled(blocks: np.ndarray, values_BGW: np.ndarray) -> Groups:
    """The 8 groups of a Q4_K or Q5_K: scales and minima of 6 bits in 12 bytes, the last four of each in pieces."""
    first, second, rest = (blocks[:, begin : begin + 4] for begin in (4, 8, 12))
    scales = np.hstack([first & 63, (rest & 15) | (first >> 2 & 48)])
    minima = np.hstack([second & 63, (rest >> 4) | (second >> 2 & 48)])
    return Groups(values_BGW, _halves(blocks, 0) * scales, -(_halves(blocks, 2) * minima))


def _q4_k(blocks: np.ndarray) -> Groups:
    return _scaled(blocks, _low_bits(blocks[:, 16:], 32, 4))


def _q5_k(blocks: np.ndarray) -> Groups:
    return _scaled(blocks, _low_bits(blocks[:, 48:], 32, 4) | _low_bits(blocks[:, 16:48], 32, 1) << np.uint8(4))


def _q6_k(blocks: np.ndarray) -> Groups:
    low = _low_bits(blocks[:, :128], 64, 4).reshape(-1, 16, 16)
    high = _low_bits(blocks[:, 128:192], 32, 2).reshape(-1, 16, 16)
    values = (low | high << np.uint8(4)).view(np.int8) - np.int8(32)
    return Groups(values, _halves(blocks, 208) * blocks[:, 192:208].view(np.int8))


BLOCKS = {
    "Q8_0": BlockType(32, 34, _q8_0),
    "Q4_0": BlockType(32, 18, _q4_0),
    "Q4_1": BlockType(32, 20, _q4_1),
    "Q5_0": BlockType(32, 22, _q5_0),
    "Q5_1": BlockType(32, 24, _q5_1),
    "Q4_K": BlockType(256, 144, _q4_k),
    "Q5_K": BlockType(256, 176, _q5_k),
    "Q6_K": BlockType(256, 210, _q6_k),
}
