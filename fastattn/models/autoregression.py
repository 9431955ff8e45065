"""How a decoder's block looks back at what came before in its own sequence: three ways, each a sublayer.

A sublayer takes rows to x + f(norm(x)) with ``pre_norm``, else to norm(x + f(x)). Its ``reach`` says which rows come
before: those of a cache, or of whole sequences.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fastattn.layers import FeedForward, Linear, Norm, Parameters, SelfAttention
from fastattn.spec import StackSpec


class Reach(Protocol):
    """What came before each row."""

    def attend(self, layer: int, qkv_NE: np.ndarray) -> np.ndarray: ...

    def states(self, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...


def _same(x_ND: np.ndarray) -> np.ndarray:
    return x_ND


def _norms(parameters: Parameters, name: str, spec: StackSpec) -> tuple[Callable, Callable]:
    """What is done to a sublayer's input and to its output: one of them is the norm."""
    norm = Norm(parameters, f"{name}.norm", spec)
    return (norm, _same) if spec.pre_norm else (_same, norm)


class OwnAttention:
    """Self-attention, from ``self_attention.{norm,qkv,output}``."""

    rounded = True  # what is kept of a row may be bfloat16

    def __init__(self, parameters: Parameters, number: int, spec: StackSpec):
        name = f"decoder.layers.{number}.self_attention"
        self.number = number
        self.attention = SelfAttention(parameters, name, "decoder", spec)
        self.before, self.after = _norms(parameters, name, spec)

    @staticmethod
    def state_width(spec: StackSpec) -> int:
        """Of what is kept of a row: its keys, then its values."""
        return 2 * spec.key_heads * spec.head_width

    def __call__(self, x_ND: np.ndarray, positions_N: np.ndarray, reach: Reach) -> np.ndarray:
        qkv_NE = self.attention.project(self.before(x_ND), positions_N)
        return self.after(self.attention.output(reach.attend(self.number, qkv_NE), x_ND))


class SimpleRecurrence:
    """A simpler simple recurrent unit (Kim 2019, section 3.2), from ``ssru.{norm,input}``."""

    rounded = False  # the errors of all steps would meet in the state

    def __init__(self, parameters: Parameters, number: int, spec: StackSpec):
        name = f"decoder.layers.{number}.ssru"
        self.ops, self.number = parameters.ops, number
        self.input = Linear(parameters, f"{name}.input")
        self.before, self.after = _norms(parameters, name, spec)

    @staticmethod
    def state_width(spec: StackSpec) -> int:
        """Of what is kept of a row: its cell."""
        return spec.width

    def __call__(self, x_ND: np.ndarray, positions_N: np.ndarray, reach: Reach) -> np.ndarray:
        return self.after(self.ops.ssru(self.input(self.before(x_ND)), x_ND, *reach.states(self.number)))


class AverageAttention:
    """An average attention network (Zhang 2018), from ``average_attention.{norm,inner,outer,input_gate,forget_gate}``.

    Marian's form: y = FFN(norm(average of x so far)); f(x) = sigmoid(x Wi + bi) x + sigmoid(y Wf + bf) y, the norm
    being there with ``pre_norm`` only. Without the feed-forward y is the average, without the gates f(x) is y.
    """

    rounded = False

    def __init__(self, parameters: Parameters, number: int, spec: StackSpec):
        name = f"decoder.layers.{number}.average_attention"
        self.ops, self.number = parameters.ops, number
        self.before, self.after = _norms(parameters, name, spec)
        plain = replace(spec, activation=spec.average_activation, gated=False)
        self.feed_forward: Any = FeedForward(parameters, name, plain) if spec.average_inner_width else _same
        self.gates = None
        if spec.average_gates:
            self.gates = tuple(Linear(parameters, f"{name}.{gate}_gate", "sigmoid") for gate in ("input", "forget"))

    @staticmethod
    def state_width(spec: StackSpec) -> int:
        """Of what is kept of a row: the sum up to it."""
        return spec.width

    def __call__(self, x_ND: np.ndarray, positions_N: np.ndarray, reach: Reach) -> np.ndarray:
        average_ND = self.ops.running_average(x_ND, *reach.states(self.number), positions_N)
        y_ND = self.feed_forward(self.before(average_ND))
        if self.gates is None:
            return self.after(self.ops.add_rows(x_ND, y_ND))
        input_gate, forget_gate = self.gates
        return self.after(input_gate(x_ND, forget_gate(y_ND, x_ND, y_ND), x_ND))


AUTOREGRESSIONS: dict[str, type[OwnAttention] | type[SimpleRecurrence] | type[AverageAttention]] = {
    "self-attention": OwnAttention,
    "ssru": SimpleRecurrence,
    "average-attention": AverageAttention,
}
