"""A checkpoint's tensors, as layers ask for them."""

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, partial
from typing import Any

import numpy as np

from fastattn.ops.protocol import Ops, PackedLinear
from fastattn.spec.quantized import (
    GROUP_INPUTS,
    PROJECTIONS,
    Tensor,
    UnreadTensor,
    as_float32,
    form_of,
    in_memory,
    take,
)
from fastattn.spec.rounding import quantize, rounded
from fastattn.system.records import dataclass

# The form of a table -> the precisions in which a projection of the same numbers shares its copy.
_SHARED = {"float32": ("float32",), "int8": ("int8", "int4")}


@dataclass
class NeededTensors:
    """The tensors and packed layers that a model read from its Parameters.

    tensors  by name
    layers   packed, by name and precision
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[tuple[str, str], PackedLinear] = field(default_factory=dict)


class Parameters:
    """A checkpoint's tensors, packed on demand into the operations' layout; tied weights are packed once.

    precision    of the products: "float32", "bfloat16", "int8" or "int4" (some int8 then: see ``default_precision``)
    packed_file  the PackedWeights of the cache, or None
    factors      int8 only: returns input factors by tensor name; called once, if a layer has to be quantized here
    needed       gets what the model reads; layers that it has already are not packed
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        ops: Ops,
        precision: str = "float32",
        packed_file: Any = None,
        factors: Callable[[], Mapping[str, np.ndarray]] = dict,
        needed: NeededTensors | None = None,
    ):
        self.ops, self.precision, self._packed_file, self._factors = ops, precision, packed_file, cache(factors)
        self._tensors = tensors
        # From the id of a stored tensor to what was read of it, and the tensor itself, so that it keeps its id.
        self._read: dict[int, tuple[Tensor, Tensor]] = {}
        self._needed = needed or NeededTensors()
        self._packed: dict[tuple[int, int, str], PackedLinear] = {}

    def tensor(self, name: str) -> Any:
        """An array; for linear weights and embedding tables perhaps a QuantizedTensor."""
        stored = self._needed.tensors.get(name)  # ``table`` may have replaced it
        if stored is None:
            stored = self._tensors[name]
        if id(stored) not in self._read:
            is_table = self._packed_file is not None and isinstance(stored, UnreadTensor) and stored.form == "float32"
            self._read[id(stored)] = self._packed_file.table(name, stored) if is_table else in_memory(stored), stored
        read = self._read[id(stored)][0]
        self._needed.tensors |= {alias: read for alias, tensor in self._needed.tensors.items() if tensor is stored}
        self._needed.tensors[name] = read
        return read

    def optional(self, name: str) -> Any:
        """``tensor``, or None if there is none of that name."""
        return self.tensor(name) if name in self._tensors else None

    def packed(self, name: str, precision: str = "", order_F: np.ndarray | None = None, first: int = 0) -> PackedLinear:
        """``name.weight`` and ``name.bias``, if it exists, packed by the operations.

        precision  of the products; "": ``default_precision``
        order_F    the rows of both that are packed, -1: zeros; None: all in order
        first      input that is packed; the caller computes the inputs before it, and adds the bias
        """
        precision = precision or self.default_precision(name)
        if (name, precision) not in self._needed.layers:
            weight_FD: Any = self._tensors[f"{name}.weight"]
            bias_F: Any = None if first else self._tensors.get(f"{name}.bias")
            key = id(weight_FD), id(bias_F), precision
            if key not in self._packed:
                make = partial(self._pack, f"{name}.weight", bias_F, precision, order_F, first)
                if self._packed_file is not None:
                    shape = weight_FD.shape[0] if order_F is None else len(order_F), weight_FD.shape[1] - first
                    make = partial(self._packed_file.linear, name, shape, make, precision)
                self._packed[key] = make()
            self._needed.layers[name, precision] = self._packed[key]
        return self._needed.layers[name, precision]

    def default_precision(self, *names: str) -> str:
        """The common precision of these linear layers: the model's, except in int4.

        There projections, which choose tokens, are int8, and so are layers without whole groups of inputs; layers that
        the checkpoint stores in 5 to 8 bits are int8 with a scale for each group.
        """
        if self.precision != "int4":
            return self.precision
        for precision in ("int4", "int8_groups", "int8"):  # an earlier process packed them; their weights may be absent
            if all((name, precision) in self._needed.layers for name in names):
                return precision
        weights = [self._tensors[f"{name}.weight"] for name in names]
        if any(weight.shape[1] % GROUP_INPUTS != 0 or form_of(weight) == "int8" for weight in weights):
            return "int8"
        if any(form_of(weight) == "blocks" for weight in weights):
            return "int8_groups"
        return "int4" if set(names).isdisjoint(PROJECTIONS) else "int8"

    def _pack(
        self, name: str, bias_F: np.ndarray | None, precision: str, order_F: np.ndarray | None, first: int
    ) -> PackedLinear:
        weight_FD: Any = self._tensors[name]
        if first:
            whole_FD = in_memory(weight_FD)
            weight_FD = (whole_FD if isinstance(whole_FD, np.ndarray) else as_float32(whole_FD))[:, first:]
        if order_F is not None:
            weight_FD, bias_F = take(weight_FD, order_F), None if bias_F is None else take(bias_F, order_F)
        if precision in ("int8", "int4") and form_of(weight_FD) != precision:
            factors = self._factors() if precision == self.precision == "int8" else {}
            weight_FD = rounded(weight_FD, precision, name, factors.get(name))
        return self.ops.pack_linear(weight_FD, bias_F, precision)

    def table(self, name: str) -> Tensor | PackedLinear:
        """An embedding's table; where a projection is tied to it, that projection's packed weights.

        So the table is in memory once. Without a tied projection, a float32 or int8 table stays as it is stored; a
        table of another form becomes float32 in a float32 model, else int8.
        """
        stored = self._tensors[name]
        form, tied = form_of(stored), [name for name in PROJECTIONS if self._tensors.get(f"{name}.weight") is stored]
        shared = stored
        for projection in tied:
            shared = self._needed.tensors.setdefault(f"{projection}.weight", shared)
        if tied and self.precision in _SHARED.get(form, ("float32", "int8", "int4")):
            self._needed.tensors.setdefault(name, shared)
            return self.packed(tied[0])
        if form not in _SHARED and name not in self._needed.tensors:
            weight_VD = as_float32(stored)
            self._needed.tensors[name] = weight_VD if self.precision == "float32" else quantize(weight_VD, name)
        return self.tensor(name)
