"""Additive attention's scores (Bahdanau 2015) of a tile of query rows and packed keys: v . tanh(q + k).

``add_keys`` stands where ``multiply_keys`` of tiles.py does: the same rows, packed keys and scores, and v besides.
Queries and keys may be exponentials, e**2q and e**2k (``exponentiate``): an element then costs half a division and a
few multiply-adds instead of a tanh. No sum of a query and a key is ever stored.

One Zen 5 core (AVX-512), ns for each of T S D elements at T = S = 512, D = 128, the whole attention: 0.124 with tanh,
0.057 with exponentials and a division each, 0.043 with one for two, as with one for four. np.tanh alone: 0.39.
"""

import numpy as np

from fastattn.kernels.attention.arguments import COLUMNS, KEYS, ROWS, VECTORS
from fastattn.kernels.attention.scores import vectors_of
from fastattn.runtime.jit import inner
from fastattn.simd.attention import make_tanh_tile
from fastattn.simd.target import LANES
from fastattn.simd.vector import exp, load_part, maximum, minimum, splat, store_part

# e**(2 x) of these is a float32, and so is its inverse. Beyond, x is cut: tanh(a + b) is still 1 where a is cut to 44
# and no b is below -35.
CUT = 44.0
PART = ROWS // 2  # rows whose sums stay in registers with all that a division needs

exponential_tile, half_exponential_tile = (make_tanh_tile(PART, vectors, True) for vectors in (VECTORS, 1))
plain_tile, half_plain_tile = (make_tanh_tile(PART, vectors, False) for vectors in (VECTORS, 1))


@inner
def exponentiate(floats, count):
    """x = e**(2 x) of ``count`` floats at an address, each cut to CUT; NaN stays."""
    zero, low, high = splat(np.float32(0)), splat(np.float32(-CUT)), splat(np.float32(CUT))
    for n in range(0, count, LANES):
        value = minimum(high, maximum(low, load_part(floats + n * 4, count - n, zero)))
        store_part(exp(value + value), floats + n * 4, count - n)


@inner
def exponentiate_keys(keys, count, width):
    """``exponentiate`` of ``count`` keys that ``pack_keys`` packed."""
    panel_width = vectors_of(width)
    for c in range(0, count, COLUMNS):
        exponentiate(keys + c * panel_width * 4, width * COLUMNS)


@inner
def add_keys(query, keys, width, span, score, head):
    """Write the scores of a tile's rows and the packed keys of a span; ``head`` is an AdditiveHead."""
    factors = head.factors
    panel_width = vectors_of(width)
    for c in range(span.front, span.stop, COLUMNS):
        panel = keys + c * panel_width * 4
        for i in range(0, ROWS, PART):
            rows, target = query + i * width * 4, score + (i * KEYS + c) * 4
            if head.exponential:
                if span.stop - c > LANES:
                    exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
                else:
                    half_exponential_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
            elif span.stop - c > LANES:
                plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
            else:
                half_plain_tile(rows, width * 4, panel, COLUMNS * 4, width, factors, target, KEYS * 4)
