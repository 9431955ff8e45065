"""The parts of a stack except attention: embedding, norms, linear and feed-forward layers, convolution, recurrence."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from fastattn.errors import InputError
from fastattn.layers.attention_inputs import Rows, WholeRows
from fastattn.layers.parameters import Parameters
from fastattn.spec.architecture import Convolution, NormSpec, StackSpec
from fastattn.spec.positions import sinusoid_table

T = TypeVar("T")


class GrowingTable(Generic[T]):
    """A table that ``make`` makes for a number of positions; a longer sequence at least doubles the number."""

    def __init__(self, make: Callable[[int], T], positions: int):
        self._make, self._table = make, (positions, make(positions))

    def __call__(self, longest: int) -> T:
        """The table of at least so many positions."""
        pair = self._table
        if longest > pair[0]:
            positions = max(longest, 2 * pair[0])
            pair = self._table = positions, self._make(positions)  # another thread sees the old pair or the new one
        return pair[1]


def Norm(parameters: Parameters, name: str, spec: NormSpec) -> partial[np.ndarray]:
    """A function: the spec's norm of x [+ residual_ND], from the tensors ``name.weight`` and perhaps ``name.bias``."""
    weight_D = parameters.tensor(f"{name}.weight")
    if spec.kind == "rms":
        return partial(parameters.ops.rms_norm, weight_D=weight_D, epsilon=spec.epsilon)
    bias_D = parameters.optional(f"{name}.bias")
    return partial(parameters.ops.layer_norm, weight_D=weight_D, bias_D=bias_D, epsilon=spec.epsilon)


class Sublayer:
    """A part of a block, f with a norm ``name.norm``: x + f(norm(x)) if norms come before, else norm(x + f(x)).

    With a norm of f's output, ``name.output_norm``, the sublayer is x + output_norm(f(norm(x))), or
    x + output_norm(f(x)). A call takes x_ND and the Rows that its rows may attend to (``attention_inputs``).
    first  whether the sublayer is the first of the stack
    """

    def __init__(self, parameters: Parameters, name: str, spec: NormSpec, first: bool = False):
        self.ops, self.is_pre_norm = parameters.ops, spec.before
        has_norm = spec.input and (spec.first or not first)
        self.norm = Norm(parameters, f"{name}.norm", spec) if has_norm else None
        self.output_norm = Norm(parameters, f"{name}.output_norm", spec) if spec.output else None

    def input_of(self, x_ND: np.ndarray) -> np.ndarray:
        """The input of f, from the input of the sublayer."""
        return self.norm(x_ND) if self.is_pre_norm and self.norm is not None else x_ND

    def residual(self, x_ND: np.ndarray) -> np.ndarray | None:
        """The residual that f's last linear layer adds."""
        return x_ND if self.output_norm is None else None

    def output_of(self, x_ND: np.ndarray, y_ND: np.ndarray) -> np.ndarray:
        """The sublayer's output, from x and the output of f's last linear layer."""
        if self.output_norm is not None:
            return self.ops.add_rows(x_ND, self.output_norm(y_ND))
        return y_ND if self.is_pre_norm or self.norm is None else self.norm(y_ND)


def Linear(parameters: Parameters, name: str, activation: str = "none", precision: str = "") -> partial[np.ndarray]:
    """A function: activation(x W' + b) [* multiply_NF] [+ residual_NF], from ``name.weight`` and ``name.bias``.

    precision  of the product; "": the parameters'
    """
    return partial(parameters.ops.linear, packed=parameters.packed(name, precision), activation=activation)


class FeedForward(Sublayer):
    """outer(activation(inner(x)) [* inner_linear(x)]), from ``layer.feed_forward.{norm,inner,inner_linear,outer}``."""

    def __init__(self, parameters: Parameters, layer: str, spec: StackSpec):
        name = f"{layer}.feed_forward"
        super().__init__(parameters, name, spec.norms)
        names = (f"{name}.inner", f"{name}.inner_linear")[: 1 + spec.feed_forward.gated]
        precision = parameters.default_precision(*names)
        self.inner = Linear(parameters, names[0], spec.feed_forward.activation, precision)
        if spec.feed_forward.gated:
            gate = parameters.packed(names[1], precision)
            self.inner = partial(parameters.ops.gated, gate=gate, **self.inner.keywords)
        self.outer = Linear(parameters, f"{name}.outer")

    def __call__(self, x_ND: np.ndarray, rows: Rows, residual_ND: np.ndarray | None = None) -> np.ndarray:
        """``residual_ND`` is what f(x) is added to; None: x."""
        residual_ND = self.residual(x_ND) if residual_ND is None else residual_ND
        return self.output_of(x_ND, self.outer(self.inner(self.input_of(x_ND)), residual_NF=residual_ND))


class ParallelSublayers:
    """x + mixer(x) + feed_forward(x), each with a norm of its own before it (Wang and Komatsuzaki 2021)."""

    def __init__(self, mixer: Callable[[np.ndarray, Rows], np.ndarray], feed_forward: FeedForward):
        self.mixer, self.feed_forward = mixer, feed_forward

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        return self.feed_forward(x_ND, rows, self.mixer(x_ND, rows))


def rows_without_padding(ids_N: np.ndarray, positions_N: np.ndarray, padding: int) -> np.ndarray:
    """The row of each position in a table whose row 0 is for the id ``padding``; other ids count from row 1 on.

    fairseq's make_positions does the same. ``positions_N`` are those of whole sequences, end to end.
    """
    rows_N, is_padding_N = positions_N + 1, ids_N == padding
    if is_padding_N.any():
        padding_before_N = np.cumsum(is_padding_N) - is_padding_N  # how many padding ids come before
        rows_N -= padding_before_N - padding_before_N[np.arange(len(ids_N)) - positions_N]
        rows_N[is_padding_N] = 0
    return np.asarray(rows_N)


class TypedPositions:
    """Learned positions and token types in one table [U * P, D]: row type * P + position is the sum of both vectors.

    table_PD  of positions; None: there are no learned positions, so P is 1
    """

    def __init__(self, table_PD: np.ndarray | None, types_UD: np.ndarray):
        self.types, self.positions = len(types_UD), 0 if table_PD is None else len(table_PD)
        # Positions are the first summand, as in loaders that add type 0 to the positions, so that the bits are equal.
        with np.errstate(invalid="ignore", over="ignore"):  # weights of any size are valid
            sums_UPD = types_UD[:, None] if table_PD is None else table_PD + types_UD[:, None]
        self.table_ND = np.ascontiguousarray(sums_UPD.reshape(-1, types_UD.shape[1]))

    def rows(self, positions_N: np.ndarray, types_N: np.ndarray | None) -> np.ndarray:
        """The table's row of each position and type; types_N None: type 0. InputError for an unknown type."""
        rows_N = positions_N if self.positions else np.zeros_like(positions_N)
        if types_N is None:
            return rows_N
        if len(types_N) and not 0 <= int(types_N.min()) <= int(types_N.max()) < self.types:
            raise InputError(f"token types from 0 to {self.types - 1} are known, got {types_N.max()}")
        return (rows_N + types_N * max(1, self.positions)).astype(np.int32)


def position_tables(
    parameters: Parameters, stack: str, spec: StackSpec, dtype: Any
) -> Callable[[int], np.ndarray | None]:
    """A function from a number of positions to the table that the embedding adds, or to None if attention has them.

    The function raises InputError for more positions than a learned table has.
    """
    if spec.positions.kind == "sinusoid":
        # A first table of 512 positions would take 1.6 ms of every start.
        return GrowingTable(lambda positions: sinusoid_table(positions, spec.width, dtype, spec.positions.start), 64)
    if not spec.positions.has_table:
        return lambda longest: None
    table_PD: np.ndarray = parameters.tensor(f"{stack}.positions")

    def learned_table(longest: int) -> np.ndarray:
        if longest > len(table_PD):
            raise InputError(f"the model has {len(table_PD)} positions, the sequence needs {longest}")
        return table_PD

    return learned_table


def check_ids(ids_N: np.ndarray, vocabulary: int) -> None:
    """Raise InputError for an id outside the vocabulary; -1 is valid."""
    if len(ids_N) and not -1 <= int(ids_N.min()) <= int(ids_N.max()) < vocabulary:
        bad_id = ids_N.min() if ids_N.min() < -1 else ids_N.max()
        raise InputError(f"token id {bad_id} is outside the vocabulary of {vocabulary}")


class Embedding:
    """From ids, positions and token types to rows: table[id] * scale + position + type, norm and projection to width D.

    The spec says which of position, type, norm and projection there are, and whether the norm comes first. The id -1
    embeds to zeros, to which its position is added. InputError for an id outside the vocabulary and an unknown type.
    """

    def __init__(self, parameters: Parameters, stack: str, spec: StackSpec):
        self.ops, self.scale = parameters.ops, spec.embedding_scale
        self.table, self.vocabulary = parameters.table(f"{stack}.embedding.weight"), spec.vocabulary
        self.dtype = parameters.tensor(f"{stack}.embedding.weight").dtype
        self.padding = spec.positions.padding if spec.positions.has_table else -1
        self.positions = position_tables(parameters, stack, spec, self.dtype)
        self.typed_positions = None
        if spec.token_types:
            table_PD = parameters.optional(f"{stack}.positions")
            self.typed_positions = TypedPositions(table_PD, parameters.tensor(f"{stack}.token_types"))
        norm = Norm(parameters, f"{stack}.embedding_norm", spec.norms) if spec.norms.embedding else None
        projection = Linear(parameters, f"{stack}.embedding_projection") if spec.embedding_width else None
        order = (projection, norm) if spec.norm_after_projection else (norm, projection)
        self.last_steps = [step for step in order if step is not None]

    def __call__(self, ids_N: np.ndarray, positions_N: np.ndarray, types_N: np.ndarray | None = None) -> np.ndarray:
        check_ids(ids_N, self.vocabulary)
        if self.padding >= 0:
            positions_N = rows_without_padding(ids_N, positions_N, self.padding)
        table_PD = self.positions(int(positions_N.max()) + 1 if len(positions_N) else 0)
        if self.typed_positions is not None:
            table_PD, positions_N = self.typed_positions.table_ND, self.typed_positions.rows(positions_N, types_N)
        x_ND = self.ops.embed(ids_N, self.table, self.scale, positions_N, table_PD)
        for step in self.last_steps:
            x_ND = step(x_ND)
        return x_ND


class ConvolvedBlock:
    """norm(block(x) + activation(convolution of x)), from ``stack.convolution`` and ``stack.convolution_norm``.

    block  the sublayers of the stack's first block
    The convolution reads zeros beyond a sequence's ends.
    """

    def __init__(
        self,
        parameters: Parameters,
        stack: str,
        spec: StackSpec,
        convolution: Convolution,
        block: Sequence[Callable[[np.ndarray, Rows], np.ndarray]],
    ):
        self.ops, self.reach, self.block = parameters.ops, convolution.width // 2, block
        self.linear = Linear(parameters, f"{stack}.convolution", convolution.activation)
        self.norm = Norm(parameters, f"{stack}.convolution_norm", spec.norms)

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        assert isinstance(rows, WholeRows)
        y_ND = x_ND
        for sublayer in self.block:
            y_ND = sublayer(y_ND, rows)
        neighbours_NE = self.ops.neighbours(x_ND, rows.starts_B1, self.reach, self.reach)
        return self.norm(self.linear(neighbours_NE, residual_NF=y_ND))


# Recurrences replace a decoder's self-attention by a state of ``row_width``, which sums up all rows so far. The state
# is never rounded to bfloat16, since the errors of all steps would add up.


class SimpleRecurrence(Sublayer):
    """A simpler simple recurrent unit (Kim 2019, section 3.2) of ``layer.ssru.{norm,input}``; the state is its cell."""

    rounds_rows = False

    def __init__(self, parameters: Parameters, layer: str, number: int, spec: StackSpec):
        name = f"{layer}.ssru"
        super().__init__(parameters, name, spec.norms)
        self.number, self.row_width = number, spec.width
        self.input = Linear(parameters, f"{name}.input")

    def __call__(self, x_ND: np.ndarray, rows: Rows) -> np.ndarray:
        states = rows.states(self.number, x_ND)
        return self.output_of(x_ND, self.ops.ssru(self.input(self.input_of(x_ND)), x_ND, *states))


class AverageAttention(Sublayer):
    """An average attention network (Zhang 2018); its state is the sum of all rows so far.

    As in Marian, y = FFN(norm(average of x so far)); f(x) = sigmoid(x Wi + bi) x + sigmoid(y Wf + bf) y. The norm
    exists only if norms come before. Without the feed-forward layers y is the average; without the gates f(x) is y.
    From ``layer.average_attention.{norm,inner,outer,input_gate,forget_gate}``.
    """

    rounds_rows = False

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
        y_ND = self.input_of(self.ops.running_average(x_ND, *rows.states(self.number, x_ND), rows.positions_N))
        if self.inner is not None and self.outer is not None:
            y_ND = self.outer(self.inner(y_ND))
        if self.gates is None:
            y_ND = self.ops.add_rows(x_ND, y_ND)
        else:
            input_gate, forget_gate = self.gates
            y_ND = forget_gate(y_ND, residual_NF=x_ND, multiply_NF=y_ND)
            y_ND = input_gate(x_ND, residual_NF=y_ND, multiply_NF=x_ND)
        return self.output_of(x_ND, y_ND)


RECURRENCES: dict[str, type[SimpleRecurrence] | type[AverageAttention]] = {
    "ssru": SimpleRecurrence,
    "average-attention": AverageAttention,
}
