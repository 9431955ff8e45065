"""Positions, number by number as the papers write them, in float64."""

import math

import numpy as np


def sinusoids(positions: int, width: int, interleaved: bool = True, base: float = 10000.0) -> np.ndarray:
    table_PD = np.empty((positions, width))
    for p in range(positions):
        for i in range(width // 2):
            angle = p / base ** (2 * i / width)
            sine, cosine = (2 * i, 2 * i + 1) if interleaved else (i, width // 2 + i)
            table_PD[p, sine], table_PD[p, cosine] = math.sin(angle), math.cos(angle)
    return table_PD


def rotary(x_BTHK: np.ndarray, positions_T: np.ndarray, width: int, interleaved: bool, base: float = 10000.0):
    """Pairs as complex numbers, turned (Su 2021, equation 12)."""
    turned = x_BTHK.copy()
    for i in range(width // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, width // 2 + i)
        turn_T1 = np.exp(1j * positions_T * base ** (-2 * i / width))[:, None]
        pair_BTH = (x_BTHK[..., a] + 1j * x_BTHK[..., b]) * turn_T1
        turned[..., a], turned[..., b] = pair_BTH.real, pair_BTH.imag
    return turned


def alibi_slopes(heads: int) -> list[float]:
    """As the authors' code has it: for other numbers than powers of two, every second one of twice as many."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(power) + alibi_slopes(2 * power)[::2][: heads - power]


def t5_bucket(distance: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The bucket of a key so many positions after the query (Raffel 2020, section 2.1)."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    wide = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + min(exact + int(wide), buckets - 1)
