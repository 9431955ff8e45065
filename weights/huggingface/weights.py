"""The weights of a Hugging Face directory, in any of the formats for weights."""

from collections.abc import Callable
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers import pytorch, safetensors
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.tensor_mapping import stored_precision

# transformers' name of an activation -> ours.
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "relu2": "relu_squared",
    "mish": "mish",
    **dict.fromkeys(("silu", "swish"), "swish"),
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
Parser = Callable[[memoryview, str], dict[str, StoredTensor]]
# The first file that exists is read, as in transformers.
FILES: dict[str, Parser] = {"model.safetensors": safetensors.parse, "pytorch_model.bin": pytorch.parse}
INDEX = ".index.json"  # the end of an index's name, where the tensors are in several files
UNSUPPORTED_FILES = ("tf_model.h5", "flax_model.msgpack")
# Names of weights that an error tells a user to rename.
VARIANTS = ("model.fp16.safetensors", "model.bf16.safetensors", "pytorch_model.fp16.bin", "consolidated.safetensors")
MISFIT = "tensors do not fit config.json"


def read_weights(folder: Folder, prefix: str = "") -> tuple[dict[str, StoredTensor], str]:
    """(tensors by name, the file's name in errors) of the files whose names begin with ``prefix``."""
    for name, parse in FILES.items():
        if folder.contains(prefix + name):
            where = folder.where(prefix + name)
            return parse(folder.read(prefix + name), where), where
        if folder.contains(prefix + name + INDEX):
            return _read_shards(folder, prefix, name, parse), folder.where(prefix + name + INDEX)
    for name in UNSUPPORTED_FILES:
        if folder.contains(prefix + name):
            raise CheckpointError(f"{folder.where(prefix + name)}: not supported; save the model as safetensors")
    missing = f"{folder.where(prefix + 'model.safetensors')}: no such file, nor {', '.join([*FILES][1:])}"
    variant = next((name for name in VARIANTS if folder.contains(prefix + name)), None)
    raise CheckpointError(f"{missing}; rename {variant} if it is the model" if variant else missing)


def as_checkpoint(folder: Folder, config: JsonObject, stored: dict[str, StoredTensor], **fields: Any) -> Checkpoint:
    """The checkpoint of a directory; ``fields``: further fields."""
    return Checkpoint(
        precision=stored_precision(stored),
        format="huggingface",
        details={"model type": config.string("model_type")},
        files=tuple(folder.files_read),
        **fields,
    )


def _read_shards(folder: Folder, prefix: str, name: str, parse: Parser) -> dict[str, StoredTensor]:
    """The tensors of the files that an index lists, all in the index's folder; ``name``: the index without INDEX."""
    index = read_object(folder, prefix + name + INDEX)
    suffix = "." + name.rpartition(".")[2]
    files: dict[str, dict[str, StoredTensor]] = {}
    tensors = {}
    for tensor_name, shard in index.nested("weight_map").values.items():
        if not isinstance(shard, str) or not shard.endswith(suffix) or any(c in shard for c in "/\\:"):
            raise CheckpointError(
                f"{index.where}: {shorten(tensor_name)} should be in a {suffix} file here, is in {shorten(shard)}"
            )
        if shard not in files:
            files[shard] = parse(folder.read(prefix + shard), folder.where(prefix + shard))
        if tensor_name not in files[shard]:
            where = folder.where(prefix + shard)
            raise CheckpointError(f"{where}: lacks {shorten(tensor_name)}, which its index places there")
        tensors[tensor_name] = files[shard][tensor_name]
    return tensors
