"""Every kind of stack, by the name in its spec."""

from collections.abc import Callable
from typing import Any

from fastattn.layers.parameters import Parameters
from fastattn.models.recurrent import build_recurrent
from fastattn.models.stack import AttentionStack, PatchStack, Stack
from fastattn.spec.architecture import check_known

STACKS: dict[str, Callable[[Parameters, str, Any], Stack]] = {
    "attention": AttentionStack,
    "patches": PatchStack,
    "recurrent": build_recurrent,
}


def build_stack(parameters: Parameters, name: str, spec: Any) -> Stack:
    """The stack whose tensors are ``name.*``; CheckpointError for an unknown kind."""
    check_known("kind of stack", spec.kind, STACKS)
    return STACKS[spec.kind](parameters, name, spec)
