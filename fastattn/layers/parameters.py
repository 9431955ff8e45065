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
from fastattn.spec.rounding import quantize, round_on_read
from fastattn.system.records import dataclass

# The form of a table -> the precisions of products in which the table and a projection that is tied to it are one copy.
_SHARING_PRECISIONS = {"float32": ("float32",), "int8": ("int8", "int4")}


@dataclass
class NeededTensors:
    """The tensors and packed layers that a model has asked its Parameters for.

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
    needed       gets all that the model asks for; a layer that ``needed`` has already is not packed again
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
        # id of a stored tensor -> (the tensor in memory, the stored tensor, whose id no other object gets meanwhile)
        self._in_memory: dict[int, tuple[Tensor, Tensor]] = {}
        self._needed = needed or NeededTensors()
        self._packed: dict[tuple[int, int, str], PackedLinear] = {}

    def tensor(self, name: str) -> Any:
        """An array; for linear weights and embedding tables perhaps a QuantizedTensor."""
        stored = self._needed.tensors.get(name)  # the method ``table`` may have put another tensor there
        if stored is None:
            stored = self._tensors[name]
        if id(stored) not in self._in_memory:
            is_table = self._packed_file is not None and isinstance(stored, UnreadTensor) and stored.form == "float32"
            loaded = self._packed_file.table(name, stored) if is_table else in_memory(stored)
            self._in_memory[id(stored)] = loaded, stored
        loaded, _ = self._in_memory[id(stored)]
        self._needed.tensors |= {alias: loaded for alias, tensor in self._needed.tensors.items() if tensor is stored}
        self._needed.tensors[name] = loaded
        return loaded

    def optional(self, name: str) -> Any:
        """``tensor``, or None if there is none of that name."""
        return self.tensor(name) if name in self._tensors else None

    def packed(self, name: str, precision: str = "", order_F: np.ndarray | None = None, first: int = 0) -> PackedLinear:
        """``name.weight``, and ``name.bias`` if it exists, packed by the operations.

        precision  of the products; "": ``default_precision``
        order_F    the numbers of the rows of weight and bias to pack, -1: a row of zeros; None: all in order
        first      the first input to pack; the caller computes the product of the inputs before it, and adds the bias
        """
        precision = precision or self.default_precision(name)
        if (name, precision) not in self._needed.layers:
            weight_FD: Any = self._tensors[f"{name}.weight"]
            bias_F: Any = None if first else self._tensors.get(f"{name}.bias")
            key = id(weight_FD), id(bias_F), precision
            if key not in self._packed:
                pack = partial(self._pack, f"{name}.weight", bias_F, precision, order_F, first)
                if self._packed_file is not None:
                    shape = weight_FD.shape[0] if order_F is None else len(order_F), weight_FD.shape[1] - first
                    pack = partial(self._packed_file.linear, name, shape, pack, precision)
                self._packed[key] = pack()
            self._needed.layers[name, precision] = self._packed[key]
        return self._needed.layers[name, precision]

    def default_precision(self, *names: str) -> str:
        """The common precision of these linear layers: that of the model unless that is int4.

        In an int4 model the projections that choose tokens are int8, and so are layers without whole groups of inputs;
        layers that the checkpoint stores in 5 to 8 bits are int8 with a scale for each group.
        """
        if self.precision != "int4":
            return self.precision
        for precision in ("int4", "int8_groups", "int8"):  # where an earlier process packed weights, they may be absent
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
            all_FD = in_memory(weight_FD)
            weight_FD = (all_FD if isinstance(all_FD, np.ndarray) else as_float32(all_FD))[:, first:]
        if order_F is not None:
            weight_FD, bias_F = take(weight_FD, order_F), None if bias_F is None else take(bias_F, order_F)
        if precision in ("int8", "int4") and form_of(weight_FD) != precision:
            factors = self._factors() if precision == self.precision == "int8" else {}
            weight_FD = round_on_read(weight_FD, precision, name, factors.get(name))
        return self.ops.pack_linear(weight_FD, bias_F, precision)

    def table(self, name: str) -> Tensor | PackedLinear:
        """An embedding's table; where a projection is tied to the table, usually the projection's packed weights.

        So the weights are in memory once. Otherwise a float32 or int8 table stays as it is stored; a table of another
        form becomes float32 in a float32 model, else int8.
        """
        stored = self._tensors[name]
        form, tensor = form_of(stored), stored
        projections = [name for name in PROJECTIONS if self._tensors.get(f"{name}.weight") is stored]
        for projection in projections:
            tensor = self._needed.tensors.setdefault(f"{projection}.weight", tensor)
        if projections and self.precision in _SHARING_PRECISIONS.get(form, ("float32", "int8", "int4")):
            self._needed.tensors.setdefault(name, tensor)
            return self.packed(projections[0])
        if form not in _SHARING_PRECISIONS and name not in self._needed.tensors:
            weight_VD = as_float32(stored)
            self._needed.tensors[name] = weight_VD if self.precision == "float32" else quantize(weight_VD, name)
        return self.tensor(name)
