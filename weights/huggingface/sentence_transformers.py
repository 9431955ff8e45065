"""sentence-transformers folders: modules.json names a transformer, then pooling, dense layers, normalization."""

import dataclasses
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fastattn.checkpoint import Checkpoint
from fastattn.errors import CheckpointError
from fastattn.spec import StackSpec
from fastattn.text_spec import EncoderText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_json, read_object, shorten
from fastattn.weights.folder import Directory, Folder
from fastattn.weights.huggingface.encoder import describe_encoder, read_described
from fastattn.weights.huggingface.head import torch_activation
from fastattn.weights.huggingface.weights import read_weights

DESCRIPTION = "sentence-transformers folder (modules.json)"
# The path of a module's class changed over the years; its last part did not.
KNOWN_PATHS = (
    "sentence_transformers.models.",
    "sentence_transformers.base.modules.",
    "sentence_transformers.sentence_transformer.modules.",
)
TRANSFORMER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
# Old booleans -> modes, in the order in which sentence-transformers concatenates them.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_MODES = tuple(POOLING_FLAGS.values())
DENSE_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "swish",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# What a transformer is for -> what it is called that it gives, and transformers' name of that.
OUTPUTS = {
    "feature-extraction": ("token_embeddings", "last_hidden_state"),
    "sequence-classification": ("scores", "logits"),
}

# Where a transformer's settings have arguments for transformers' classes, by their names of today and before.
ARGUMENTS = (
    "config_kwargs",
    "model_kwargs",
    "processor_kwargs",
    "config_args",
    "model_args",
    "tokenizer_args",
    "processing_kwargs",
)
# Those that change no vector, beyond the rounding of its numbers.
HARMLESS = (
    "add_pooling_layer",
    "attn_implementation",
    "device_map",
    "dtype",
    "low_cpu_mem_usage",
    "padding_side",
    "torch_dtype",
    "trust_remote_code",
    "unpad_inputs",
    "use_cache",
    "use_fast",
    "use_memory_efficient_attention",
    "use_safetensors",
)


def recognize(path: Path) -> bool:
    return (path / "modules.json").exists()


def read(path: Path) -> Checkpoint:
    """Read a folder; raises CheckpointError for an unsupported module or order of modules."""
    return read_folder(Directory(path))


def read_folder(folder: Folder) -> Checkpoint:
    """``read`` for any Folder; weights, which may not be downloaded yet (``hub``), are read last."""
    modules = _read_modules(folder)
    prefix = modules[0][1]
    config = read_object(folder, prefix + "config.json")
    classifies, spec, text = _describe_transformer(folder, prefix, config)
    if classifies != (len(modules) == 1):
        raise _wrong_order(folder, modules)
    width = spec.width
    text = _read_prompts(folder, text)
    for kind, place in modules[1:]:
        text, width = READERS[kind](folder, place, text, width)
    checkpoint = read_described(folder, prefix, config, spec, text)
    checkpoint.format = "sentence-transformers"
    return checkpoint


def _read_modules(folder: Folder) -> list[tuple[str, str]]:
    """(class, prefix of its files' names) of each module; their order is one that an EncoderText can express."""
    where = folder.where("modules.json")
    entries = read_json(folder, "modules.json")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CheckpointError(f"{where}: should hold a list of objects, holds {shorten(entries)}")
    modules = []
    for entry in (JsonObject(entry, where) for entry in entries):
        kind = _module_class(entry)
        path = PurePosixPath(entry.string("path", ""))
        if path.is_absolute() or ".." in path.parts or "\\" in str(path) or ":" in str(path):
            raise entry.error("path", "a folder below this one", str(path))
        module = (kind, f"{path}/" if path.parts else "")
        if kind == "Dense" and module in modules:  # each would load the same weights again
            raise CheckpointError(f"{where}: the dense module {shorten(str(path))} is given twice")
        modules.append(module)
    kinds = [kind for kind, _ in modules]
    dense = kinds.count("Dense")
    ends = (["Dense"] * dense, ["Dense"] * dense + ["Normalize"])
    if kinds != ["Transformer"] and (kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ends):
        raise _wrong_order(folder, modules)
    return modules


def _wrong_order(folder: Folder, modules: list[tuple[str, str]]) -> CheckpointError:
    return CheckpointError(
        f"{folder.where('modules.json')}: modules should be Transformer, Pooling, any number of Dense, perhaps "
        f"Normalize, or a classifying Transformer alone; they are {', '.join(kind for kind, _ in modules) or 'none'}"
    )


def _module_class(entry: JsonObject) -> str:
    path = entry.string("type")
    kind = path.rpartition(".")[2]
    if not path.startswith(KNOWN_PATHS) or kind not in ("Transformer", *READERS):
        raise CheckpointError(
            f"{entry.where}: module {shorten(path)} is not supported; supported: Transformer, {', '.join(READERS)}"
        )
    return kind


def _describe_transformer(folder: Folder, prefix: str, encoder: JsonObject) -> tuple[bool, StackSpec, EncoderText]:
    """(whether its head's numbers are wanted, spec, text) of the transformer; ``encoder`` is its config.json."""
    name = next((name for name in TRANSFORMER_CONFIGS if folder.contains(prefix + name)), None)
    if name is None:
        return False, *describe_encoder(folder, prefix, encoder)
    config = read_object(folder, prefix + name)
    for name in ARGUMENTS:
        others = [argument for argument in config.nested(name).values if argument not in HARMLESS]
        if others:
            raise CheckpointError(f"{config.where}: {name}: {', '.join(map(shorten, others))} is not supported")
    task = config.string("transformer_task", "feature-extraction")
    if task not in OUTPUTS:
        raise CheckpointError(f"{config.where}: transformer_task {shorten(task)} is not supported")
    features, output = OUTPUTS[task]
    if config.string("module_output_name", features) != features:
        raise config.error("module_output_name", f"'{features}'", config.values["module_output_name"])
    found = config.nested("modality_config").nested("text").string("method_output_name", output)
    if found != output:
        raise CheckpointError(f"{config.where}: method_output_name should be '{output}', is {shorten(found)}")
    limit = config.integer("max_seq_length", minimum=1) if config.has("max_seq_length") else None
    spec, text = describe_encoder(folder, prefix, encoder, limit)
    text = dataclasses.replace(text, lowercase=config.boolean("do_lower_case", False))
    return task == "sequence-classification", spec, text


def _read_pooling(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    config = read_object(folder, prefix + "config.json")
    for name in ("embedding_dimension", "word_embedding_dimension"):
        if config.integer(name, width) != width:
            raise config.error(name, f"the encoder's width {width}", config.values[name])
    modes = config.values.get("pooling_mode")
    if modes is None:
        modes = [mode for name, mode in POOLING_FLAGS.items() if config.boolean(name, False)] or ["mean"]
    elif isinstance(modes, str):
        modes = [modes]
    if not isinstance(modes, list) or not modes or not all(mode in POOLING_MODES for mode in modes):
        raise config.error("pooling_mode", f"one or more of {', '.join(POOLING_MODES)}", modes)
    return (
        dataclasses.replace(text, pooling=tuple(modes), include_prompt=config.boolean("include_prompt", True)),
        width * len(modes),
    )


def _read_dense(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    config = read_object(folder, prefix + "config.json")
    _check_names(config)
    if config.boolean("use_residual", False):
        raise CheckpointError(f"{config.where}: use_residual is not supported")
    inputs, outputs = config.integer("in_features", minimum=1), config.integer("out_features", minimum=1)
    if inputs != width:
        raise config.error("in_features", f"{width}, what the module before gives", inputs)
    activation = config.string("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in DENSE_ACTIVATIONS:
        raise config.error("activation_function", f"one of {', '.join(DENSE_ACTIVATIONS)}", activation)
    stored, where = read_weights(folder, prefix)
    expected: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    if config.boolean("bias", True):
        expected["linear.bias"] = (outputs,)
    found = {name: tensor.shape for name, tensor in stored.items()}
    if found != expected:
        raise CheckpointError(f"{where}: tensors should be {_shapes(expected)}, are {_shapes(found)}")
    bias: np.ndarray | None = stored["linear.bias"].float32() if "linear.bias" in stored else None
    layer = (stored["linear.weight"].float32(), bias, DENSE_ACTIVATIONS[activation])
    return dataclasses.replace(text, dense=(*text.dense, layer)), outputs


def _read_normalize(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    # The folder was empty for years, and so is often missing.
    if folder.contains(prefix + "config.json"):
        _check_names(read_object(folder, prefix + "config.json"))
    return dataclasses.replace(text, normalize=True), width


def _check_names(config: JsonObject) -> None:
    for name in ("module_input_name", "module_output_name"):
        if config.string(name, "sentence_embedding") != "sentence_embedding":
            raise config.error(name, "'sentence_embedding'", config.values[name])


def _shapes(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))


def _read_prompts(folder: Folder, text: EncoderText) -> EncoderText:
    """``text`` with config_sentence_transformers.json's prompts, similarity, width and activation, if it exists."""
    if not folder.contains("config_sentence_transformers.json"):
        return text
    config = read_object(folder, "config_sentence_transformers.json")
    kind = config.string("model_type", "SentenceTransformer")
    if kind not in ("SentenceTransformer", "CrossEncoder"):
        raise config.error("model_type", "'SentenceTransformer' or 'CrossEncoder'", kind)
    prompts: dict[str, Any] = config.nested("prompts").values
    prompts = {name: "" if prompt is None else prompt for name, prompt in prompts.items()}
    if not all(map(is_text, prompts.values())):
        raise config.error("prompts", "strings by name", prompts)
    default = config.string("default_prompt_name") if config.has("default_prompt_name") else None
    if default is not None and default not in prompts:
        raise config.error("default_prompt_name", f"one of the prompts ({', '.join(prompts) or 'none'})", default)
    similarity = config.string("similarity_fn_name", "cosine")
    if similarity not in SIMILARITIES:
        raise config.error("similarity_fn_name", f"one of {', '.join(SIMILARITIES)}", similarity)
    scores = torch_activation(config, "activation_fn")
    width = config.integer("truncate_dim", minimum=1) if config.has("truncate_dim") else None
    return dataclasses.replace(
        text, prompts=prompts, default_prompt=default, similarity=similarity, scores=scores, truncate_dim=width
    )


READERS: dict[str, Callable[[Folder, str, EncoderText, int], tuple[EncoderText, int]]] = {
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "Normalize": _read_normalize,
}
