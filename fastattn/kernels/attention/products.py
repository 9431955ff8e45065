"""What a score is made of, known when the kernel is compiled: dot products, or additive attention's sums.

``product`` is 0 for dot products, which are multiplied by the scale's factor; or an array, for its type alone,
of additive attention's ``vector_factors``: their queries and keys are exponentials where a head's flag says so.
"""

from numba import types

from fastattn.kernels.attention.tiles import multiply_keys
from fastattn.runtime.jit import inner_by_type
from fastattn.simd.vector import address


def is_dot(product):
    """Whether scores are dot products."""
    raise NotImplementedError("compiled code only")


def head_factors(product, flags_BH, b, h):
    """(address of a head's factors, whether its queries and keys are exponentials)."""
    raise NotImplementedError("compiled code only")


def prepare_queries(product, head, rows, count):
    """Make exponentials of ``count`` floats of queries, where the head's are."""
    raise NotImplementedError("compiled code only")


def prepare_keys(product, head, keys, count, width):
    """Make exponentials of packed keys, where the head's are."""
    raise NotImplementedError("compiled code only")


def score_keys(product, head, query, keys, width, front, stop, score):
    """Write the scores of a tile's rows and the packed keys ``front`` to ``stop``, as ``multiply_keys`` does."""
    raise NotImplementedError("compiled code only")


@inner_by_type(is_dot)
def _is_dot(product):
    return (lambda product: True) if isinstance(product, types.Integer) else (lambda product: False)


@inner_by_type(head_factors)
def _head_factors(product, flags_BH, b, h):
    def of_head(product, flags_BH, b, h):
        return address(product) + h * product.shape[1] * 4, flags_BH[b, h] != 0

    return (lambda product, flags_BH, b, h: (0, False)) if isinstance(product, types.Integer) else of_head


# The tiles of additive attention are imported where it is: every start imports this.


@inner_by_type(prepare_queries)
def _prepare_queries(product, head, rows, count):
    if isinstance(product, types.Integer):
        return lambda product, head, rows, count: None
    from fastattn.kernels.attention.additive_tile import exponentiate

    def run(product, head, rows, count):
        if head[1]:
            exponentiate(rows, count)

    return run


@inner_by_type(prepare_keys)
def _prepare_keys(product, head, keys, count, width):
    if isinstance(product, types.Integer):
        return lambda product, head, keys, count, width: None
    from fastattn.kernels.attention.additive_tile import exponentiate_keys

    def run(product, head, keys, count, width):
        if head[1]:
            exponentiate_keys(keys, count, width)

    return run


@inner_by_type(score_keys)
def _score_keys(product, head, query, keys, width, front, stop, score):
    if isinstance(product, types.Integer):

        def multiply(product, head, query, keys, width, front, stop, score):
            multiply_keys(query, keys, width, front, stop, score)

        return multiply
    from fastattn.kernels.attention.additive_tile import add_keys

    def add(product, head, query, keys, width, front, stop, score):
        add_keys(query, keys, width, front, stop, score, head[0], head[1])

    return add
