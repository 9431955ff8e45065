"""Writes defaults.json: what transformers and sentence-transformers take where a setting of a model is left out.

Run from the root, in an environment with both: python -m tests.goldens.make_defaults
"""

import inspect
import json
from pathlib import Path
from typing import Any

import sentence_transformers
import transformers
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from sentence_transformers.sparse_encoder.modules import SpladePooling

FILE = Path(__file__).parent / "defaults.json"
MODULES = (Dense, Dropout, LayerNorm, MultiVectorMask, Normalize, Pooling, SpladePooling)
# Those of fastattn.weights.huggingface.encoders.ENCODERS that transformers has code for.
MODEL_TYPES = (
    "albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "gemma3_text", "gte", "modernbert", "mpnet",
    "mt5", "nomic_bert", "qwen2", "qwen3", "roberta", "t5", "umt5", "xlm-roberta",
)  # fmt: skip
# Those of fastattn.weights.huggingface.decoders.DECODERS.
DECODERS = (
    "gemma2", "gemma3_text", "gpt2", "gpt_neox", "hunyuan_v1_dense", "llama", "mistral", "olmo2", "phi3", "qwen2",
    "qwen3", "smollm3",
)  # fmt: skip


def of_module(kind: type) -> dict[str, Any]:
    """The defaults of the settings that its config.json has."""
    parameters = inspect.signature(kind).parameters.values()
    found = {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}
    return {name: as_written(found[name]) for name in getattr(kind, "config_keys", ()) if name in found}


def as_written(value: Any) -> Any:
    """A function as the path of its class."""
    return f"{type(value).__module__}.{type(value).__name__}" if callable(value) else value


def main() -> None:
    configs, decoders = (
        {kind: transformers.AutoConfig.for_model(kind).to_dict() for kind in kinds} for kinds in (MODEL_TYPES, DECODERS)
    )
    modules = {kind.__name__: of_module(kind) for kind in MODULES}
    versions = f"transformers {transformers.__version__}, sentence-transformers {sentence_transformers.__version__}"
    written = {"versions": versions, "configs": configs, "decoders": decoders, "modules": modules}
    FILE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
