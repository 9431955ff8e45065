"""What a score is made of, known when the kernel is compiled by the type of ``product`` and ``details``:

dot products            0, which are multiplied by the scale's factor
additive attention      [H, D + 1] of ``vector_factors``; flags_BH: whether a head's queries and keys are exponentials
disentangled attention  the tables and the layout of ``PackedDistances``: dot products, and more of them
"""

from numba import types

from fastattn.kernels.attention.arguments import STRIP, AdditiveHead
from fastattn.kernels.attention.distance_tile import add_distances, distances_of_head, write_strip
from fastattn.kernels.attention.tiles import multiply_keys
from fastattn.runtime.jit import inner_overload
from fastattn.simd.vector import address


def _is_dot(product):
    return isinstance(product, types.Integer)


def _is_disentangled(product):
    return not _is_dot(product) and product.ndim == 3


def _is_additive(product):
    return not _is_dot(product) and product.ndim == 2


@inner_overload
def is_dot(product):
    """Whether scores are dot products."""
    return (lambda product: True) if _is_dot(product) else (lambda product: False)


@inner_overload
def product_head(product, details, b, h):
    """A head's part of the details: an AdditiveHead or a DistanceHead."""
    if _is_dot(product):
        return lambda product, details, b, h: AdditiveHead(0, False)
    if _is_disentangled(product):
        return lambda product, details, b, h: distances_of_head(product, details, h)
    return lambda product, details, b, h: AdditiveHead(address(product) + h * product.shape[1] * 4, details[b, h] != 0)


# The tiles of additive attention are imported where it is: every start imports this.


@inner_overload
def prepare_queries(product, head, rows, count):
    """Make exponentials of ``count`` floats of queries, where the head's are."""
    if not _is_additive(product):
        return lambda product, head, rows, count: None
    from fastattn.kernels.attention.additive_tile import exponentiate

    def run(product, head, rows, count):
        if head.exponential:
            exponentiate(rows, count)

    return run


@inner_overload
def prepare_keys(product, head, keys, count, width):
    """Make exponentials of packed keys, where the head's are."""
    if not _is_additive(product):
        return lambda product, head, keys, count, width: None
    from fastattn.kernels.attention.additive_tile import exponentiate_keys

    def run(product, head, keys, count, width):
        if head.exponential:
            exponentiate_keys(keys, count, width)

    return run


@inner_overload
def prepare_rows(product, block, i, s, count):
    """Compute what the tiles of a strip of rows, the block's from i on, take from its spare scratch for some keys."""
    if not _is_disentangled(product):
        return lambda product, block, i, s, count: None

    def run(product, block, i, s, count):
        if block.scores.head.queries != 0 and i % STRIP == 0:
            write_strip(block.scores.head, i, block.rows, s, count, block.key, block.scratch.spare)

    return run


@inner_overload
def score_keys(product, head, query, keys, width, span, scores, position, spare):
    """Write the scores of a tile's rows and the packed keys of a span, as ``multiply_keys`` does."""
    if _is_dot(product):
        return lambda product, head, query, keys, width, span, scores, position, spare: multiply_keys(
            query, keys, width, span, scores
        )
    if _is_disentangled(product):

        def multiply_more(product, head, query, keys, width, span, scores, position, spare):
            multiply_keys(query, keys, width, span, scores)
            add_distances(head, position, query, span, scores, spare)

        return multiply_more
    from fastattn.kernels.attention.additive_tile import add_keys

    return lambda product, head, query, keys, width, span, scores, position, spare: add_keys(
        query, keys, width, span, scores, head
    )
