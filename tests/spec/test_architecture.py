"""Architectures that cannot be are refused when they are described, by one line."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fastattn.errors import CheckpointError
from fastattn.spec import architecture as spec
from tests.messages import refused
from tests.models.tiny_models import BASE, stack_spec

STACK, SSRU, SPEC_OF_HEAD = stack_spec(**BASE), {"recurrence": "ssru"}, {"rows": "first", "outputs": 2}
DISTANCES = {"positions": "disentangled", "relative_max_distance": 9}
LOOKING_BACK, HEAD = spec.LocalSpec((0,), 1, 0), spec.HeadSpec("first", 2)
RECURRENT = replace(STACK, recurrence=spec.RecurrenceSpec("ssru"))
REFUSED: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "stacks": (lambda **changes: stack_spec(**BASE | changes), [
        {"recurrence": "gru"}, SSRU | {"positions": "alibi"}, SSRU | {"average_inner_width": -1},
        {"sinusoid_start": -2}, SSRU | {"average_activation": "softplus"}, DISTANCES | {"heads": 4, "key_heads": 2},
        DISTANCES | {"causal": True}, {"vocabulary": -1},
    ]),
    "distances": (partial(spec.PositionSpec, "disentangled"), [
        {}, {"max_distance": 1}, {"buckets": 1, "max_distance": 9}, {"buckets": 8, "max_distance": 5},
    ]),
    "positions": (spec.PositionSpec, [{"kind": "alibi", "of_each_layer": True}]),
    "disentangled": (spec.Disentangled, [{"to_position": False, "to_content": False}]),
    "convolutions": (spec.Convolution, [{"width": 4}]),
    "heads": (lambda **fields: spec.HeadSpec(**SPEC_OF_HEAD | fields), [
        {"rows": "second"}, {"outputs": 0}, {"inner_width": -1}, {"inner_width": 3, "activation": "softplus"},
        {"norm": spec.NormSpec()},
    ]),
    "models": (partial(spec.ModelSpec, "encoder-decoder"), [
        {}, {"encoder": RECURRENT}, {"decoder": replace(STACK, positions=spec.PositionSpec(padding=1))},
        {"decoder": replace(STACK, convolution=spec.Convolution(3))}, {"decoder": stack_spec(**BASE | DISTANCES)},
        {"decoder": replace(STACK, causal=True)}, {"decoder": replace(STACK, local=spec.LocalSpec((0,), 1, 1))},
        {"decoder": replace(RECURRENT, local=LOOKING_BACK)}, {"decoder": replace(STACK, cross_attention=True)},
        {"decoder": STACK, "head": HEAD}, {"encoder": STACK, "decoder": STACK, "head": HEAD},
    ]),
}  # fmt: skip


@pytest.mark.parametrize("part", REFUSED)
def test_what_cannot_be(part: str) -> None:
    describe, changes = REFUSED[part]
    for fields in changes:
        with refused(CheckpointError):
            describe(**fields)
