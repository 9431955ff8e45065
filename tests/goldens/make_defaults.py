"""Writes defaults.json: what transformers and sentence-transformers take where a setting of a model is left out."""

import inspect
from typing import Any

import sentence_transformers
import transformers
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from sentence_transformers.sparse_encoder.modules import SpladePooling

from fastattn.weights.huggingface.decoders import DECODERS
from fastattn.weights.huggingface.encoders import ENCODERS
from tests.goldens.writing import versions, write_json

MODULES = (Dense, Dropout, LayerNorm, MultiVectorMask, Normalize, Pooling, SpladePooling)


def of_module(kind: type) -> dict[str, Any]:
    """The defaults of the settings that its config.json has; of a function, the path of its class."""
    parameters = inspect.signature(kind).parameters.values()
    found = {one.name: one.default for one in parameters if one.default is not one.empty}
    paths = {n: f"{type(v).__module__}.{type(v).__name__}" for n, v in found.items() if callable(v)}
    return {name: (found | paths)[name] for name in getattr(kind, "config_keys", ()) if name in found}


if __name__ == "__main__":
    there = {*transformers.CONFIG_MAPPING} - {"gemma3"}  # whose config.json has a gemma3_text's in it
    configs, decoders = (
        {kind: transformers.AutoConfig.for_model(kind).to_dict() for kind in there & {*table}}
        for table in (ENCODERS, DECODERS)
    )
    written = {"versions": versions(transformers, sentence_transformers), "configs": configs, "decoders": decoders}
    modules = {kind.__name__: of_module(kind) for kind in MODULES}
    write_json("defaults", written | {"modules": modules}, indent=1, sort_keys=True)
