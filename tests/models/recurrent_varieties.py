"""Random little recurrent encoder-decoders of every variety, and their twins."""

from typing import Any

import numpy as np

from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.recurrent import MemoryAttention, Readout
from tests.models.recurrent_twin import Twin
from tests.models.tiny_models import FROM_ENCODER, LSTM, random_checkpoint, recurrent

CHO = {"cell": "gru_reset_before"}
BOTH = {"bidirectional": True}
BRIDGE = {"initial": "bridge", "initial_activation": "tanh"}
LUONG = {**LSTM, **FROM_ENCODER, "readout": Readout(("context", "hidden"), 14, "tanh"), "feeds": True}
BAHDANAU = {**BRIDGE, "readout": Readout(("hidden", "embedding", "context"), 16, "tanh")}


def luong(score: str, after: int = 2, **others: Any) -> dict[str, Any]:
    return {**LUONG, "attention": MemoryAttention(score, after, **others)}


# Name -> what the encoder and the decoder have, beside what ``recurrent`` gives them.
RECURRENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sutskever": ({**LSTM, "backward": True}, {**LSTM, **FROM_ENCODER}),
    "cho": (CHO, {**BRIDGE, "readout": Readout(("hidden", "embedding"))}),
    "bahdanau": ({**CHO, **BOTH}, {**BAHDANAU, "attention": MemoryAttention("additive", 0, 9)}),
    "tutorial": ({}, {**FROM_ENCODER, "attention": MemoryAttention("additive", 0, 12)}),
    "luong dot": (LSTM, luong("dot")),
    "few words": (
        {**LSTM, **BOTH, "units": 8, "embedding_width": 19},
        luong("general") | {"embedding_width": 20, **BRIDGE},
    ),
    "luong general": ({**LSTM, "backward": True}, luong("general")),
    "luong concat": (LSTM, luong("additive", width=12)),
    "luong local-m": (LSTM, luong("general", window=2)),
    "luong local-p": (LSTM, luong("dot", window=2, predictive=7)),
    "local-p before the cell": ({}, {"attention": MemoryAttention("additive", 0, 8, window=3, predictive=5)}),
    "not fed": ({**LSTM, "units": 8, **BOTH}, luong("general") | {"feeds": False, **BRIDGE, "projection_bias": False}),
    "hard": (LSTM, luong("general", hard=True)),
    "multi-head": (
        {**BOTH, "readout": Readout(width=20, activation="tanh")},
        {"layers": 2, "attention": MemoryAttention("multi-head", 1, 16, heads=4)},
    ),
    "between, fed": (BOTH, {**LSTM, "feeds": True, "attention": MemoryAttention("additive", 1, 6)}),
    "of no history": (
        {**BOTH, "cell": "lstm", "units": 6},
        {**FROM_ENCODER, "carries": False, "attention": MemoryAttention("general", 0)},
    ),
    "gru of no history": ({}, {**BRIDGE, "carries": False, "attention": MemoryAttention("multi-head", 0, 8, heads=2)}),
}


def recurrent_checkpoint(variety: str, dtype: type = np.float32) -> Checkpoint:
    """Its weights are large, so that what it writes depends on what it reads."""
    encoder, decoder = RECURRENT[variety]
    checkpoint = random_checkpoint(3, dtype, sharpness=5.0, stacks=recurrent(decoder, **encoder))
    for name, tensor in checkpoint.tensors.items():
        if tensor.ndim == 2 and ".projection." not in name:
            tensor *= 2
    return checkpoint


def recurrent_model(variety: str, ops: Any = reference, precision: str = "float32", dtype: Any = np.float32) -> Any:
    return build_model(recurrent_checkpoint(variety, dtype), ops, precision)


def twin(variety: str, dtype: type = np.float32) -> Twin:
    checkpoint = recurrent_checkpoint(variety, dtype)
    return Twin(checkpoint.spec, checkpoint.tensors)
