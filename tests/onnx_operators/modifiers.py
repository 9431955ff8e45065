"""From a graph over all scores, FlexAttention's score_mod and prob_mod, to a function of one score.

What depends on the scores' shape alone, such as ranges of positions and masks made of them, is computed beforehand and
looked up. What depends on the scores must go element by element.
"""

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Modifier = Callable[[float, int, int, int, int], float]


ELEMENTWISE: dict[str, Callable[..., Modifier]] = {
    "Add": lambda left, right: lambda score, b, h, t, s: left(score, b, h, t, s) + right(score, b, h, t, s),
    "Mul": lambda left, right: lambda score, b, h, t, s: left(score, b, h, t, s) * right(score, b, h, t, s),
    "Div": lambda left, right: lambda score, b, h, t, s: left(score, b, h, t, s) / right(score, b, h, t, s),
    "Tanh": lambda inside: lambda score, b, h, t, s: math.tanh(inside(score, b, h, t, s)),
    "Where": lambda which, yes, no: lambda score, b, h, t, s: yes(score, b, h, t, s)
    if which(score, b, h, t, s)
    else no(score, b, h, t, s),
}


def translate(graph: onnx.GraphProto, shape: tuple[int, int, int, int]) -> Modifier:
    """The function of a graph with one input and one output, for scores [B, H, T, S] of this shape."""
    scores, known = graph.input[0].name, {}
    functions: dict[str, Modifier] = {scores: lambda score, b, h, t, s: score}
    known |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def function_of(name: str) -> Modifier:
        if name in functions:
            return functions[name]
        table_BHTS = np.broadcast_to(known[name], shape).copy()
        return lambda score, b, h, t, s: table_BHTS[b, h, t, s]

    for node in graph.node:
        if node.op_type == "Shape" or not set(node.input) & set(functions):
            feeds = {name: np.empty(shape, np.float32) if name == scores else known[name] for name in node.input}
            (known[node.output[0]],) = ReferenceEvaluator(node).run(None, feeds)
        else:
            functions[node.output[0]] = ELEMENTWISE[node.op_type](*map(function_of, node.input))
    return function_of(graph.output[0].name)
