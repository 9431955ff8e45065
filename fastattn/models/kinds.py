"""Every kind of model, by the name in its ModelSpec."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastattn.layers.parameters import NeededTensors, Parameters
from fastattn.models.decoder import Decoder, EncoderDecoder
from fastattn.models.encoder import EncoderModel
from fastattn.ops.protocol import Ops
from fastattn.spec.architecture import check_known
from fastattn.spec.checkpoint import Checkpoint

# A model with a decoder is a Decoder, a model without one an EncoderModel.
MODELS: dict[str, Callable[[Checkpoint, Parameters], Any]] = {
    "decoder": Decoder,
    "encoder": EncoderModel,
    "encoder-decoder": EncoderDecoder,
}


def build_model(
    checkpoint: Checkpoint,
    ops: Ops,
    precision: str = "float32",
    packed_file: Any = None,
    factors: Callable[[], Mapping[str, np.ndarray]] = dict,
    needed: NeededTensors | None = None,
) -> Any:
    """The model of a checkpoint; ``ops`` is ``fastattn.ops.cpu``, or another namespace of the same operations.

    precision, packed_file, factors, needed  as for Parameters
    Raises CheckpointError for an unknown kind of model, and for stacks that do not go with the kind.
    """
    check_known("kind of model", checkpoint.spec.kind, MODELS)
    parameters = Parameters(checkpoint.tensors, ops, precision, packed_file, factors, needed)
    return MODELS[checkpoint.spec.kind](checkpoint, parameters)
