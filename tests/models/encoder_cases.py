"""Small encoders at odd sizes, weights drawn from a seed."""

from dataclasses import dataclass

import numpy as np

from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.tensors import tensor_shapes
from fastattn.spec.text_spec import EncoderText
from tests.models.tiny_models import stack_spec


@dataclass(frozen=True)
class EncoderCase:
    name: str
    spec: StackSpec
    lengths: tuple[int, ...] = (5, 1, 17, 8)
    seed: int = 0


def _bert(width: int, heads: int, layers: int, inner: int, activation: str = "gelu") -> StackSpec:
    return stack_spec(
        layers=layers, width=width, heads=heads, key_heads=heads, head_width=width // heads, inner_width=inner,
        vocabulary=61, activation=activation, norm_epsilon=1e-12, pre_norm=False, final_norm=False, embedding_norm=True,
        positions="table", max_positions=40,
    )  # fmt: skip


def _t5(width: int, heads: int, head_width: int, inner: int, gated: bool) -> StackSpec:
    return stack_spec(
        layers=2, width=width, heads=heads, key_heads=heads, head_width=head_width, inner_width=inner, vocabulary=47,
        activation="gelu_tanh" if gated else "relu", gated=gated, norm="rms", norm_epsilon=1e-6, positions="relative",
        relative_buckets=32, relative_max_distance=128, query_scale=1.0, biases=False, norm_biases=False,
    )  # fmt: skip


MBART = stack_spec(
    layers=2, width=36, heads=3, key_heads=3, head_width=12, inner_width=50, vocabulary=53, activation="gelu",
    embedding_norm=True, embedding_scale=6.0, positions="table", max_positions=30,
)  # fmt: skip
CASES = [
    EncoderCase("bert-24", _bert(48, 2, 2, 96)),
    EncoderCase("bert-40", _bert(80, 2, 3, 100), seed=1),
    EncoderCase("bert-odd", _bert(20, 4, 2, 33, "gelu_tanh"), seed=3),
    EncoderCase("bert-many-heads", _bert(33, 11, 2, 65, "relu"), seed=5),
    EncoderCase("t5", _t5(24, 3, 5, 31, gated=False), lengths=(9, 1, 150), seed=6),
    EncoderCase("t5-gated", _t5(20, 2, 16, 48, gated=True), seed=7),
    EncoderCase("mbart", MBART, seed=8),
]


def make_tensors(spec: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Every tensor that the spec asks for, uniform; norms near one, so that deep stacks neither vanish nor explode."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = rng.random(shape) - 0.5
        if len(shape) == 2:
            drawn *= 4 / np.sqrt(shape[1]) if "embedding" not in name else 1.0
        elif "norm.weight" in name:
            drawn += 1.0
        tensors[name] = drawn.astype(np.float32)
    return tensors


def make_checkpoint(case: EncoderCase) -> Checkpoint:
    spec = ModelSpec("encoder", case.spec)
    return Checkpoint(spec, make_tensors(spec, case.seed), EncoderText(b"", max_length=512))


def make_ids(case: EncoderCase) -> list[np.ndarray]:
    rng = np.random.default_rng(case.seed + 1000)
    return [(rng.random(length) * case.spec.vocabulary).astype(np.int32) for length in case.lengths]
