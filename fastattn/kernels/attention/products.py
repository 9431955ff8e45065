"""What a score is made of, known when the kernel is compiled by the type of ``product`` and ``details``:

dot products            0, which are multiplied by the scale's factor
additive attention      [H, D + 1] of ``vector_factors``; flags_BH: whether a head's queries and keys are exponentials
disentangled attention  the tables and the layout of ``PackedDistances``: dot products, and more of them
"""

from numba import types

from fastattn.kernels.attention.constants import STRIP
from fastattn.kernels.attention.distance_tile import add_distances, distances_of_head, write_strip
from fastattn.kernels.attention.tiles import multiply_keys
from fastattn.runtime.jit import inner_by_type
from fastattn.simd.vector import address


def is_dot(product):
    """Whether scores are dot products."""
    raise NotImplementedError("compiled code only")


def head_factors(product, details, b, h):
    """A head's part: of additive attention (address of its factors, whether its queries and keys are exponentials)."""
    raise NotImplementedError("compiled code only")


def prepare_queries(product, head, rows, count):
    """Make exponentials of ``count`` floats of queries, where the head's are."""
    raise NotImplementedError("compiled code only")


def prepare_keys(product, head, keys, count, width):
    """Make exponentials of packed keys, where the head's are."""
    raise NotImplementedError("compiled code only")


def prepare_rows(product, head, i, padded, t, s, here, key, scratch):
    """Compute what the tiles of a strip of rows, the block's from i on and queries from t on, take from ``scratch``."""
    raise NotImplementedError("compiled code only")


def score_keys(product, head, query, keys, width, front, stop, score, place, scratch):
    """Write the scores of a tile's rows and the packed keys ``front`` to ``stop``, as ``multiply_keys`` does.

    place  the first row's number in the block; its query, the block's last query, the first packed key
    """
    raise NotImplementedError("compiled code only")


def _is_disentangled(product):
    return product.ndim == 3


@inner_by_type(is_dot)
def _is_dot(product):
    return (lambda product: True) if isinstance(product, types.Integer) else (lambda product: False)


@inner_by_type(head_factors)
def _head_factors(product, details, b, h):
    if isinstance(product, types.Integer):
        return lambda product, details, b, h: (0, False)
    if _is_disentangled(product):
        return lambda product, details, b, h: distances_of_head(product, details, h)

    def of_head(product, details, b, h):
        return address(product) + h * product.shape[1] * 4, details[b, h] != 0

    return of_head


# The tiles of additive attention are imported where it is: every start imports this.


@inner_by_type(prepare_queries)
def _prepare_queries(product, head, rows, count):
    if isinstance(product, types.Integer) or _is_disentangled(product):
        return lambda product, head, rows, count: None
    from fastattn.kernels.attention.additive_tile import exponentiate

    def run(product, head, rows, count):
        if head[1]:
            exponentiate(rows, count)

    return run


@inner_by_type(prepare_keys)
def _prepare_keys(product, head, keys, count, width):
    if isinstance(product, types.Integer) or _is_disentangled(product):
        return lambda product, head, keys, count, width: None
    from fastattn.kernels.attention.additive_tile import exponentiate_keys

    def run(product, head, keys, count, width):
        if head[1]:
            exponentiate_keys(keys, count, width)

    return run


@inner_by_type(prepare_rows)
def _prepare_rows(product, head, i, padded, t, s, here, key, scratch):
    if isinstance(product, types.Integer) or not _is_disentangled(product):
        return lambda product, head, i, padded, t, s, here, key, scratch: None

    def run(product, head, i, padded, t, s, here, key, scratch):
        if head[1] != 0 and i % STRIP == 0:
            write_strip(head, i, padded, t, s, here, key, scratch)

    return run


@inner_by_type(score_keys)
def _score_keys(product, head, query, keys, width, front, stop, score, place, scratch):
    if isinstance(product, types.Integer):

        def multiply(product, head, query, keys, width, front, stop, score, place, scratch):
            multiply_keys(query, keys, width, front, stop, score)

        return multiply
    if _is_disentangled(product):

        def multiply_more(product, head, query, keys, width, front, stop, score, place, scratch):
            multiply_keys(query, keys, width, front, stop, score)
            add_distances(head, place, query, front, stop, score, scratch)

        return multiply_more
    from fastattn.kernels.attention.additive_tile import add_keys

    def add(product, head, query, keys, width, front, stop, score, place, scratch):
        add_keys(query, keys, width, front, stop, score, head[0], head[1])

    return add
