"""Architectures that cannot be are refused when they are described, by one line."""

from dataclasses import replace

import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import (
    Convolution,
    Disentangled,
    HeadSpec,
    LocalSpec,
    ModelSpec,
    NormSpec,
    PositionSpec,
    RecurrenceSpec,
)
from tests.models.tiny_models import BASE, stack_spec

STACK, SSRU = stack_spec(**BASE), RecurrenceSpec("ssru")
DISTANCES = {"positions": "disentangled", "relative_max_distance": 9}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrence": "gru"}, "unknown recurrence 'gru'; known: ssru, average-attention"),
        ({"recurrence": "ssru", "positions": "alibi"}, "alibi positions act inside an attention"),
        ({"recurrence": "ssru", "average_inner_width": -1}, "inner_width should not be negative, is -1"),
        ({"sinusoid_start": -2}, "start should not be negative, is -2"),
        ({"recurrence": "ssru", "average_activation": "softplus"}, "unknown activation of a recurrence 'softplus'"),
        (DISTANCES | {"heads": 4, "key_heads": 2}, "looks both ways, and each of its heads has keys of its own"),
        (DISTANCES | {"causal": True}, "looks both ways, and each of its heads has keys of its own"),
        ({"vocabulary": -1}, "vocabulary should not be negative, is -1"),
    ],
)
def test_stacks(changes, message):
    with pytest.raises(CheckpointError, match=message):
        stack_spec(**(BASE | changes))


@pytest.mark.parametrize(
    "fields", [{}, {"max_distance": 1}, {"buckets": 1, "max_distance": 9}, {"buckets": 8, "max_distance": 5}]
)
def test_distances(fields):
    with pytest.raises(CheckpointError, match="disentangled attention needs a greatest distance"):
        PositionSpec("disentangled", **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": "second"}, "unknown rows of a head 'second'; known: first, last, mean, each"),
        ({"outputs": 0}, "outputs should be at least 1, is 0"),
        ({"inner_width": -1}, "inner_width should not be negative, is -1"),
        ({"inner_width": 3, "activation": "softplus"}, "unknown activation of a head 'softplus'"),
        ({"norm": NormSpec()}, "a head has a norm after its first layer, not without one"),
    ],
)
def test_heads(fields, message):
    with pytest.raises(CheckpointError, match=message):
        HeadSpec(**{"rows": "first", "outputs": 2} | fields)


def test_parts():
    with pytest.raises(CheckpointError, match="from content to positions, or from positions to content"):
        Disentangled(to_position=False, to_content=False)
    with pytest.raises(CheckpointError, match="as many rows before as after, which a width of 4 is not"):
        Convolution(4)
    with pytest.raises(CheckpointError, match="buckets of its own where positions are relative, not alibi"):
        PositionSpec("alibi", of_each_layer=True)


@pytest.mark.parametrize(
    ("stacks", "message"),
    [
        ({}, "neither an encoder nor a decoder"),
        ({"encoder": replace(STACK, recurrence=SSRU)}, "an encoder looks both ways by self-attention, not by ssru"),
        ({"decoder": replace(STACK, positions=PositionSpec(padding=1))}, "that does not count .* is an encoder's"),
        ({"decoder": replace(STACK, convolution=Convolution(3))}, "attention and convolutions are an encoder's"),
        ({"decoder": stack_spec(**BASE | DISTANCES)}, "disentangled attention and convolutions are an encoder's"),
        ({"decoder": replace(STACK, causal=True)}, "a decoder is causal by itself, and its local layers look back"),
        ({"decoder": replace(STACK, local=LocalSpec((0,), 1, 1))}, "a decoder is causal by itself, and its local"),
        ({"decoder": replace(STACK, local=LocalSpec((0,), 1, 0), recurrence=SSRU)}, "local layers have an attention"),
        ({"decoder": replace(STACK, cross_attention=True)}, "cross-attention needs an encoder"),
        ({"decoder": STACK, "head": HeadSpec("first", 2)}, "a head follows an encoder without a decoder"),
        ({"encoder": STACK, "decoder": STACK, "head": HeadSpec("first", 2)}, "a head follows an encoder without a"),
    ],
)
def test_models(stacks, message):
    with pytest.raises(CheckpointError, match=message):
        ModelSpec("encoder-decoder", **stacks)
