"""Which tensors a checkpoint of an architecture holds, and what is wrong with those that it has.

Canonical tensor names, all float32 (matrices perhaps as a QuantizedTensor, which stands for float32), weights as
[outputs, inputs]; STACK is ``encoder`` or ``decoder``::

    STACK.embedding.weight                       [V, D]
    STACK.positions                              [P, D]   positions == "table"
    STACK.relative_bias                          [buckets, H]   positions == "relative"
    STACK.embedding_norm.{weight,bias}           [D]
    STACK.layers.N.self_attention.norm.*         [D]
    STACK.layers.N.self_attention.qkv.*          [(H + 2 G) K, D]   rows: queries, keys, values
    STACK.layers.N.self_attention.output.*       [D, H K]
    decoder.layers.N.ssru.norm.*                 [D]   autoregression == "ssru", in place of self_attention
    decoder.layers.N.ssru.input.*                [2 D, D]   rows: cell inputs, forget gates
    decoder.layers.N.average_attention.norm.*    [D]   autoregression == "average-attention", likewise
    decoder.layers.N.average_attention.inner.*   [A, D]   average_inner_width > 0
    decoder.layers.N.average_attention.outer.*   [D, A]   likewise
    decoder.layers.N.average_attention.input_gate.*, .forget_gate.*   [D, D]   average_gates
    decoder.layers.N.cross_attention.norm.*, .query.*, .key_value.*, .output.*
    STACK.layers.N.feed_forward.norm.*           [D]
    STACK.layers.N.feed_forward.inner.*          [F, D]   the activated product
    STACK.layers.N.feed_forward.inner_linear.*   [F, D]   gated only: multiplies the activated one
    STACK.layers.N.feed_forward.outer.*          [D, F]
    STACK.final_norm.*                           [D]
    decoder.projection.*                         [V, D]
"""

from collections.abc import Mapping
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.shown import first_of
from fastattn.spec import ModelSpec, StackSpec, Tensor


def _linear(shapes: dict, name: str, outputs: int, inputs: int, bias: bool) -> None:
    shapes[name + ".weight"] = (outputs, inputs)
    if bias:
        shapes[name + ".bias"] = (outputs,)


def _norm(shapes: dict, name: str, spec: StackSpec) -> None:
    shapes[name + ".weight"] = (spec.width,)
    if spec.norm == "layer" and spec.norm_biases:
        shapes[name + ".bias"] = (spec.width,)


def _self_attention(shapes: dict, layer: str, spec: StackSpec) -> None:
    name, queries, keys = f"{layer}.self_attention", spec.heads * spec.head_width, spec.key_heads * spec.head_width
    _norm(shapes, f"{name}.norm", spec)
    _linear(shapes, f"{name}.qkv", queries + 2 * keys, spec.width, spec.biases)
    _linear(shapes, f"{name}.output", spec.width, queries, spec.biases)


def _ssru(shapes: dict, layer: str, spec: StackSpec) -> None:
    _norm(shapes, f"{layer}.ssru.norm", spec)
    _linear(shapes, f"{layer}.ssru.input", 2 * spec.width, spec.width, spec.biases)


def _average_attention(shapes: dict, layer: str, spec: StackSpec) -> None:
    name = f"{layer}.average_attention"
    _norm(shapes, f"{name}.norm", spec)
    if spec.average_inner_width:
        _linear(shapes, f"{name}.inner", spec.average_inner_width, spec.width, spec.biases)
        _linear(shapes, f"{name}.outer", spec.width, spec.average_inner_width, spec.biases)
    if spec.average_gates:
        _linear(shapes, f"{name}.input_gate", spec.width, spec.width, spec.biases)
        _linear(shapes, f"{name}.forget_gate", spec.width, spec.width, spec.biases)


_AUTOREGRESSION_SHAPES = {"self-attention": _self_attention, "ssru": _ssru, "average-attention": _average_attention}


def _stack_shapes(prefix: str, spec: StackSpec) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}.embedding.weight": (spec.vocabulary, spec.width)}
    if spec.positions == "table":
        shapes[f"{prefix}.positions"] = (spec.max_positions, spec.width)
    if spec.positions == "relative":
        shapes[f"{prefix}.relative_bias"] = (spec.relative_buckets, spec.heads)
    if spec.embedding_norm:
        _norm(shapes, f"{prefix}.embedding_norm", spec)
    queries, keys = spec.heads * spec.head_width, spec.key_heads * spec.head_width
    for i in range(spec.layers):
        layer = f"{prefix}.layers.{i}"
        _AUTOREGRESSION_SHAPES[spec.autoregression](shapes, layer, spec)
        if spec.cross_attention:
            _norm(shapes, f"{layer}.cross_attention.norm", spec)
            _linear(shapes, f"{layer}.cross_attention.query", queries, spec.width, spec.biases)
            _linear(shapes, f"{layer}.cross_attention.key_value", 2 * keys, spec.width, spec.biases)
            _linear(shapes, f"{layer}.cross_attention.output", spec.width, queries, spec.biases)
        _norm(shapes, f"{layer}.feed_forward.norm", spec)
        _linear(shapes, f"{layer}.feed_forward.inner", spec.inner_width, spec.width, spec.biases)
        if spec.gated:
            _linear(shapes, f"{layer}.feed_forward.inner_linear", spec.inner_width, spec.width, spec.biases)
        _linear(shapes, f"{layer}.feed_forward.outer", spec.width, spec.inner_width, spec.biases)
    if spec.final_norm:
        _norm(shapes, f"{prefix}.final_norm", spec)
    return shapes


def tensor_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every tensor that a checkpoint of this spec must hold."""
    shapes = _stack_shapes("encoder", spec.encoder)
    if spec.decoder is not None:
        shapes |= _stack_shapes("decoder", spec.decoder)
        _linear(shapes, "decoder.projection", spec.decoder.vocabulary, spec.decoder.width, spec.decoder.projection_bias)
    return shapes


def find_misfits(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Any]) -> list[str]:
    """What is missing, left over or misshapen among tensors, anything with a shape, that should be as expected.

    Of each the first ones, and how many more there are.
    """
    missing = [f"missing {name} {list(shape)}" for name, shape in expected.items() if name not in found]
    unexpected = [f"unexpected {name} {list(found[name].shape)}" for name in found if name not in expected]
    misshapen = [
        f"{name} should be {list(shape)}, is {list(found[name].shape)}"
        for name, shape in expected.items()
        if name in found and found[name].shape != shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    return [problem for kind, problems in kinds.items() for problem in first_of(problems, kind)]


def check_tensors(spec: ModelSpec, tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise one CheckpointError that names everything missing, left over or misshapen."""
    expected = tensor_shapes(spec)
    problems = find_misfits(expected, tensors)
    problems += [
        f"{name} is a table, which has no inputs and no factors for them"
        for name in expected
        if name.endswith("embedding.weight") and getattr(tensors.get(name), "input_factors_D", None) is not None
    ]
    if problems:
        raise CheckpointError(f"{source}: tensors do not fit the architecture: " + "; ".join(problems))
