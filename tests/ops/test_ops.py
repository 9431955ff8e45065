"""The Protocol of the operations and the namespaces that satisfy it: the same names, the same signatures."""

import inspect
from types import FunctionType

import pytest

from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.ops.protocol import Ops
from tests.kernels.cases import CASES

NAMESPACES = pytest.mark.parametrize("namespace", [operations, reference], ids=["kernels", "reference"])
OPERATIONS = {name: member for name, member in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"}

# What test_jit and test_picked test.
ELSEWHERE = ("use_threads", "current_threads", "thread_limit", "pack_rows", "select_outputs")
ELSEWHERE += ("recorder", "take_tokens", "pick_tokens", "free_memory")  # test_recorded_steps, test_room
ELSEWHERE += ("as_rows", "packed_layout", "packed_shapes", "packed_of")  # test_packed_weights, test_backends
# tests of array_attention, mechanisms and vectors
ELSEWHERE += ("reads_float16", "compile_function", "strided_attention", "block_states", "best_keys", "nearest_rows")
ELSEWHERE += ("local_attention", "graph_attention", "unit_vectors", "as_array", "on_host")


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@NAMESPACES
def test_a_namespace_has_the_protocols_operations_and_no_other(namespace):
    for name, operation in OPERATIONS.items():
        assert operation.__doc__ and parameters(getattr(namespace, name)) == parameters(operation)[1:]  # behind self
    found = {name for name, value in vars(namespace).items() if isinstance(value, FunctionType) and name[0] != "_"}
    assert found - {"import_module"} == set(OPERATIONS)


def test_the_table_of_cases_has_every_operation():
    asked = set(ELSEWHERE)

    class Watched:
        def __getattr__(self, name):
            asked.add(name)
            return getattr(reference, name)

    for case in CASES:
        case.call(Watched(), case.arrays)
    assert asked == set(OPERATIONS)
