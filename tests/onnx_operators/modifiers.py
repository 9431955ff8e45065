"""From a graph over all scores, FlexAttention's score_mod and prob_mod, to a function of one score.

What depends on the scores' shape alone, such as ranges of positions and masks made of them, is computed beforehand and
looked up. What depends on the scores must go element by element: a sum or a maximum over keys is no function of one
score, and is refused by its name.
"""

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Modifier = Callable[[float, int, int, int, int], float]


def same(score, b, h, t, s):
    return score


def constant(value: float) -> Modifier:
    return lambda score, b, h, t, s: value


def look_up(table_BHTS: np.ndarray) -> Modifier:
    return lambda score, b, h, t, s: table_BHTS[b, h, t, s]


def add(left: Modifier, right: Modifier) -> Modifier:
    return lambda score, b, h, t, s: left(score, b, h, t, s) + right(score, b, h, t, s)


def multiply(left: Modifier, right: Modifier) -> Modifier:
    return lambda score, b, h, t, s: left(score, b, h, t, s) * right(score, b, h, t, s)


def divide(left: Modifier, right: Modifier) -> Modifier:
    return lambda score, b, h, t, s: left(score, b, h, t, s) / right(score, b, h, t, s)


def tanh(inside: Modifier) -> Modifier:
    return lambda score, b, h, t, s: math.tanh(inside(score, b, h, t, s))


def where(condition: Modifier, left: Modifier, right: Modifier) -> Modifier:
    def modify(score, b, h, t, s):
        return left(score, b, h, t, s) if condition(score, b, h, t, s) else right(score, b, h, t, s)

    return modify


ELEMENTWISE = {"Add": add, "Mul": multiply, "Div": divide, "Tanh": tanh, "Where": where}


def translate(graph: onnx.GraphProto, shape: tuple[int, int, int, int]) -> Modifier:
    """The function of a graph with one input and one output, for scores [B, H, T, S] of this shape."""
    scores, known, functions = graph.input[0].name, {}, {graph.input[0].name: same}
    known |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def function_of(name: str) -> Modifier:
        if name in functions:
            return functions[name]
        value = known[name]
        return constant(value.item()) if value.size == 1 else look_up(np.broadcast_to(value, shape).copy())

    for node in graph.node:
        if node.op_type == "Shape" or not set(node.input) & set(functions):
            feeds = {name: np.empty(shape, np.float32) if name == scores else known[name] for name in node.input}
            (known[node.output[0]],) = ReferenceEvaluator(node).run(None, feeds)
        elif node.op_type in ELEMENTWISE:
            functions[node.output[0]] = ELEMENTWISE[node.op_type](*map(function_of, node.input))
        else:
            raise NotImplementedError(f"{node.op_type} of scores is no function of one score")
    return function_of(graph.output[0].name)
