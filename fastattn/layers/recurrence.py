"""Replacements of a decoder's self-attention with a recurrent state, which takes in all rows up to the present one.

row_width  of that state, which is never ``rounded``: the errors of all steps would add up in it.
"""

import numpy as np

from fastattn.layers.attention_inputs import Rows
from fastattn.layers.linear import Linear
from fastattn.layers.norm import Sublayer
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import StackSpec


class SimpleRecurrence(Sublayer):
    """A simpler simple recurrent unit (Kim 2019, section 3.2) of ``layer.ssru.{norm,input}``; the state is its cell."""

    rounded = False

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.ssru"
        super().__init__(parameters, name, spec.norms)
        self.number, self.row_width = number, spec.width
        self.input = Linear(parameters, f"{name}.input")

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        states = rows.states(self.number, x_ND)
        return self.leaving(x_ND, self.ops.ssru(self.input(self.entering(x_ND)), x_ND, *states))


class AverageAttention(Sublayer):
    """An average attention network (Zhang 2018); its state is the sum of all rows so far.

    Marian's form: y = FFN(norm(average of x so far)); f(x) = sigmoid(x Wi + bi) x + sigmoid(y Wf + bf) y, the norm
    being there where norms come before only. Without the feed-forward y is the average, without the gates f(x) is y.
    From ``layer.average_attention.{norm,inner,outer,input_gate,forget_gate}``.
    """

    rounded = False

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        assert spec.recurrence is not None
        name = f"{layer}.average_attention"
        super().__init__(parameters, name, spec.norms)
        self.number, self.row_width = number, spec.width
        self.inner = self.outer = None
        if spec.recurrence.inner_width:
            self.inner = Linear(parameters, f"{name}.inner", spec.recurrence.activation)
            self.outer = Linear(parameters, f"{name}.outer")
        self.gates = None
        if spec.recurrence.gates:
            self.gates = tuple(Linear(parameters, f"{name}.{gate}_gate", "sigmoid") for gate in ("input", "forget"))

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        y_ND = self.ops.running_average(x_ND, *rows.states(self.number, x_ND), rows.positions_N)
        y_ND = self.entering(y_ND)
        if self.inner is not None and self.outer is not None:
            y_ND = self.outer(self.inner(y_ND))
        if self.gates is None:
            y_ND = self.ops.add_rows(x_ND, y_ND)
        else:
            input_gate, forget_gate = self.gates
            y_ND = forget_gate(y_ND, residual_NF=x_ND, multiply_NF=y_ND)
            y_ND = input_gate(x_ND, residual_NF=y_ND, multiply_NF=x_ND)
        return self.leaving(x_ND, y_ND)


RECURRENCES: dict[str, type[SimpleRecurrence] | type[AverageAttention]] = {
    "ssru": SimpleRecurrence,
    "average-attention": AverageAttention,
}
