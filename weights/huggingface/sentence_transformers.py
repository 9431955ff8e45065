"""sentence-transformers folders: modules.json names a transformer, then pooling, dense layers and norms."""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import (
    LAYER_NORM,
    SPARSE_ACTIVATIONS,
    SPARSE_POOLINGS,
    UNIT_LENGTH,
    EncoderText,
    GeneratorText,
    PairPrompt,
    SparseText,
)
from fastattn.text.chat import ChatTemplate
from fastattn.weights.containers.json_file import JsonObject, is_text, read_json, read_object, read_optional, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface import token_vectors
from fastattn.weights.huggingface.decoders import read_decoder
from fastattn.weights.huggingface.encoders import describe_encoder, load_encoder, torch_activation
from fastattn.weights.huggingface.token_vectors import MULTI_VECTOR, PYLATE, add_expansion_token
from fastattn.weights.huggingface.tokenizer_files import CONFIG
from fastattn.weights.huggingface.weights import read_weights

TOP_CONFIG = "config_sentence_transformers.json"
MLM = "MLMTransformer"  # old name of a Transformer that predicts tokens, which is a setting now
DESCRIPTION = "sentence-transformers folder (modules.json)"
# Packages of modules' classes: classes have moved between packages over the years, and kept their names.
PACKAGES = (
    "models base.modules sentence_transformer.modules sparse_encoder.models sparse_encoder.modules "
    "multi_vector_encoder.modules cross_encoder.modules"
)
KNOWN_PATHS = ("pylate.models.", *(f"sentence_transformers.{package}." for package in PACKAGES.split()))
TRANSFORMER_CONFIGS = tuple(
    f"sentence_{name}_config.json" for name in "bert roberta distilbert camembert albert xlm-roberta xlnet".split()
)
# Old boolean setting -> mode, in the order in which sentence-transformers concatenates their vectors.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_MODES = tuple(POOLING_FLAGS.values())
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "swish", "Sigmoid": "sigmoid", "Mish": "mish"}
DENSE_ACTIVATIONS = {"torch.nn.modules.linear.Identity": "none"}
DENSE_ACTIVATIONS |= {f"torch.nn.modules.activation.{name}": act for name, act in _ACTIVATIONS.items()}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# Task of a transformer -> the name of its output in sentence-transformers, and in transformers.
OUTPUTS = {
    "feature-extraction": ("token_embeddings", "last_hidden_state"),
    "sequence-classification": ("scores", "logits"),
    "fill-mask": ("token_embeddings", "logits"),
}
# model_type of a folder, in config_sentence_transformers.json -> (its transformer's task, its modules in words and as a
# pattern). A folder without a model_type is of the first type here that has its transformer's task.
SPARSE, DENSE, CLASSIFIER = "SparseEncoder", "SentenceTransformer", "CrossEncoder"
ORDERS = {
    DENSE: (
        "feature-extraction",
        "Transformer, Pooling, any number of Dense, LayerNorm, Dropout and Normalize",
        re.compile("Transformer Pooling( Dense| LayerNorm| Dropout| Normalize)*"),
    ),
    CLASSIFIER: ("sequence-classification", "a classifying Transformer alone", re.compile("Transformer")),
    SPARSE: ("fill-mask", "a Transformer that predicts tokens, SpladePooling", re.compile("Transformer SpladePooling")),
    MULTI_VECTOR: (
        "feature-extraction",
        "Transformer, any number of Dense, MultiVectorMask, perhaps Normalize",
        re.compile("Transformer( Dense)* MultiVectorMask( Normalize)?"),
    ),
    PYLATE: ("feature-extraction", "Transformer, any number of Dense", re.compile("Transformer( Dense)*")),
}

# Settings of a Transformer module that hold arguments for transformers' classes: current names, then old names.
ARGUMENT_SETTINGS = tuple(
    "config_kwargs model_kwargs processor_kwargs config_args model_args tokenizer_args processing_kwargs".split()
)
# Arguments that change vectors at most by rounding.
HARMLESS_ARGUMENTS = tuple(
    "add_pooling_layer attn_implementation device_map dtype low_cpu_mem_usage padding_side torch_dtype "
    "trust_remote_code unpad_inputs use_cache use_fast use_memory_efficient_attention use_safetensors".split()
)


def recognize(path: Path) -> bool:
    return (path / "modules.json").exists()


def read(folder: Folder) -> Checkpoint:
    """Read a folder, its weights last, so that ``hub`` can refuse a model before it downloads them.

    Raises CheckpointError for an unsupported module or order of modules.
    """
    modules = _read_modules(folder)
    prefix = modules[0][1]
    top_config = read_optional(folder, TOP_CONFIG)
    config = read_object(folder, prefix + "config.json")
    name = next((name for name in TRANSFORMER_CONFIGS if folder.contains(prefix + name)), None)
    settings = JsonObject({}, folder.where(prefix)) if name is None else read_object(folder, prefix + name)
    if [module for module, _ in modules] == ["Transformer", "LogitScore"] and not prefix:
        with_top_config = partial(_read_top_config, top_config, model_type=CLASSIFIER)
        checkpoint = _read_reranker(folder, modules[1][1], settings, with_top_config)
        return dataclasses.replace(checkpoint, format="sentence-transformers")
    task = settings.string("transformer_task", "fill-mask" if modules[0][0] == MLM else "feature-extraction")
    if task not in OUTPUTS:
        raise CheckpointError(f"{settings.where}: transformer_task {shorten(task)} is not supported")
    model_type = _check_order(folder, modules, top_config, task)
    spec, text = _describe_transformer(folder, prefix, config, settings, task)
    width = spec.width
    text = _read_top_config(top_config, text, model_type)
    if text.multi_vector is not None:
        text = dataclasses.replace(text, multi_vector=token_vectors.read_lengths(settings, text.multi_vector))
    for module, module_prefix in modules[1:]:
        text, width = READERS[module](folder, module_prefix, text, width)
    token_config = read_optional(folder, prefix + CONFIG)
    for name in ("tokenizer_args", "processor_kwargs"):
        token_config.values.update(settings.nested(name).values)
    text = add_expansion_token(text, token_config, top_config.where)
    checkpoint = load_encoder(folder, prefix, config, spec, text)
    checkpoint.format = "sentence-transformers"
    return checkpoint


def _read_modules(folder: Folder) -> list[tuple[str, str]]:
    """(class, prefix of its files' names) of each module, of which the first is a transformer."""
    where = folder.where("modules.json")
    entries = read_json(folder, "modules.json")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CheckpointError(f"{where}: should hold a list of objects, holds {shorten(entries)}")
    modules = []
    for entry in (JsonObject(entry, where) for entry in entries):
        class_path = entry.string("type")
        name = class_path.rpartition(".")[2]
        if not class_path.startswith(KNOWN_PATHS) or name not in ("Transformer", MLM, "LogitScore", *READERS):
            raise CheckpointError(
                f"{where}: module {shorten(class_path)} is not supported; supported: Transformer, {', '.join(READERS)}"
            )
        path = PurePosixPath(entry.string("path", ""))
        if path.is_absolute() or ".." in path.parts or "\\" in str(path) or ":" in str(path):
            raise entry.error("path", "a folder below this one", str(path))
        module = (name, f"{path}/" if path.parts else "")
        if name == "Dense" and module in modules:  # each would load the same weights again
            raise CheckpointError(f"{where}: the dense module {shorten(str(path))} is given twice")
        modules.append(module)
    if not modules or modules[0][0] not in ("Transformer", MLM):
        raise _order_error(folder, modules, DENSE)
    return modules


def _check_order(folder: Folder, modules: list[tuple[str, str]], top_config: JsonObject, task: str) -> str:
    """The model_type of the folder, a name of ORDERS; CheckpointError unless the modules are as ORDERS says."""
    model_type = top_config.choice("model_type", ORDERS, "")
    if model_type in ("", DENSE, CLASSIFIER):  # the transformer's task decides
        model_type = next(name for name, (order_task, _, _) in ORDERS.items() if order_task == task)
    names = " ".join(module for module, _ in modules).replace(MLM, "Transformer")
    if task != ORDERS[model_type][0] or not ORDERS[model_type][2].fullmatch(names):
        raise _order_error(folder, modules, model_type)
    return model_type


def _order_error(folder: Folder, modules: list[tuple[str, str]], model_type: str) -> CheckpointError:
    return CheckpointError(
        f"{folder.where('modules.json')}: modules should be {ORDERS[model_type][1]}; "
        f"they are {', '.join(module for module, _ in modules) or 'none'}"
    )


def _describe_transformer(
    folder: Folder, prefix: str, config: JsonObject, settings: JsonObject, task: str
) -> tuple[StackSpec, EncoderText]:
    """(spec, text) of the transformer; ``config`` is its config.json, ``settings`` the file of TRANSFORMER_CONFIGS."""
    for name in ARGUMENT_SETTINGS:
        unsupported = [argument for argument in settings.nested(name).values if argument not in HARMLESS_ARGUMENTS]
        if unsupported:
            raise CheckpointError(f"{settings.where}: {name}: {', '.join(map(shorten, unsupported))} is not supported")
    features, output = OUTPUTS[task]
    if settings.string("module_output_name", features) != features:
        raise settings.error("module_output_name", f"'{features}'", settings.values["module_output_name"])
    method_output = settings.nested("modality_config").nested("text").string("method_output_name", output)
    if method_output != output:
        raise CheckpointError(f"{settings.where}: method_output_name should be '{output}', is {shorten(method_output)}")
    spec, text = describe_encoder(folder, prefix, config, settings.optional_size("max_seq_length"))
    return spec, dataclasses.replace(text, lowercase=settings.boolean("do_lower_case", False))


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
    include_prompt = config.boolean("include_prompt", True)
    return dataclasses.replace(text, pooling=tuple(modes), include_prompt=include_prompt), width * len(modes)


def _read_dense(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    config = read_object(folder, prefix + "config.json")
    _check_features(config, text)
    if config.boolean("use_residual", False):
        raise CheckpointError(f"{config.where}: use_residual is not supported")
    inputs, outputs = config.integer("in_features", minimum=1), config.integer("out_features", minimum=1)
    if inputs != width:
        raise config.error("in_features", f"{width}, what the module before gives", inputs)
    activation = config.choice("activation_function", DENSE_ACTIVATIONS, "torch.nn.modules.activation.Tanh")
    stored, where = read_weights(folder, prefix)
    expected: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    if config.boolean("bias", True):
        expected["linear.bias"] = (outputs,)
    _check_shapes(stored, expected, where)
    bias: np.ndarray | None = stored["linear.bias"].float32() if "linear.bias" in stored else None
    return _with_layer(text, stored["linear.weight"].float32(), bias, DENSE_ACTIVATIONS[activation]), outputs


def _with_layer(text: EncoderText, weight: np.ndarray, bias: np.ndarray | None, activation: str) -> EncoderText:
    """``text`` with one more dense layer or norm; a Normalize before it becomes a layer too."""
    dense = text.dense
    # Vectors of tokens are normalized last, wherever Normalize is among the modules.
    if text.normalize and text.multi_vector is None:
        dense, text = (*dense, (np.empty(0, np.float32), None, UNIT_LENGTH)), dataclasses.replace(text, normalize=False)
    return dataclasses.replace(text, dense=(*dense, (weight, bias, activation)))


def _read_layer_norm(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    config = read_object(folder, prefix + "config.json")
    if config.integer("dimension") != width:
        raise config.error("dimension", f"{width}, what the module before gives", config.values["dimension"])
    stored, where = read_weights(folder, prefix)
    _check_shapes(stored, {"norm.weight": (width,), "norm.bias": (width,)}, where)
    return _with_layer(text, stored["norm.weight"].float32(), stored["norm.bias"].float32(), LAYER_NORM), width


def _read_normalize(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    # The module's folder was empty for years, so it is often missing.
    if folder.contains(prefix + "config.json"):
        _check_features(read_object(folder, prefix + "config.json"), text)
    return dataclasses.replace(text, normalize=True), width


def _read_splade(folder: Folder, prefix: str, text: EncoderText, width: int) -> tuple[EncoderText, int]:
    config = read_object(folder, prefix + "config.json")
    sparse = dataclasses.replace(
        text.sparse or SparseText(),
        pooling=config.choice("pooling_strategy", SPARSE_POOLINGS, "max"),
        activation=config.choice("activation_function", SPARSE_ACTIVATIONS, "relu"),
    )
    return dataclasses.replace(text, sparse=sparse), width


def _check_features(config: JsonObject, text: EncoderText) -> None:
    """Raise CheckpointError unless a module takes and gives vectors of texts, or of tokens in a multi-vector model."""
    features = "sentence_embedding" if text.multi_vector is None else "token_embeddings"
    for name in ("module_input_name", "module_output_name"):
        if config.string(name, features) != features:
            raise config.error(name, f"'{features}'", config.values[name])


def _check_shapes(stored: dict[str, StoredTensor], expected: dict[str, tuple[int, ...]], where: str) -> None:
    actual = {name: tensor.shape for name, tensor in stored.items()}
    if actual != expected:
        expected_text, actual_text = (
            ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
            for shapes in (expected, actual)
        )
        raise CheckpointError(f"{where}: tensors should be {expected_text}, are {actual_text}")


def _read_top_config(config: JsonObject, text: EncoderText, model_type: str) -> EncoderText:
    """``text`` with the settings of config_sentence_transformers.json, for a folder of this model_type."""
    prompts: dict[str, Any] = config.nested("prompts").values
    prompts = {name: "" if prompt is None else prompt for name, prompt in prompts.items()}
    if not all(map(is_text, prompts.values())):
        raise config.error("prompts", "strings by name", prompts)
    default = config.string("default_prompt_name") if config.has("default_prompt_name") else None
    if default is not None and default not in prompts:
        raise config.error("default_prompt_name", f"one of the prompts ({', '.join(prompts) or 'none'})", default)
    text = dataclasses.replace(text, prompts=prompts, default_prompt=default)
    if model_type in (MULTI_VECTOR, PYLATE):
        return token_vectors.read_top_config(config, text)
    similarity = config.choice("similarity_fn_name", SIMILARITIES, "dot" if model_type == SPARSE else "cosine")
    width = config.optional_size("truncate_dim")
    scores = torch_activation(config, "activation_fn")
    if model_type == SPARSE:
        text = dataclasses.replace(text, sparse=SparseText(most=config.optional_size("max_active_dims")))
    return dataclasses.replace(text, similarity=similarity, scores=scores, truncate_dim=width)


# Rerankers that are language models: a Transformer, and LogitScore, which compares the logits of two tokens.
PLACEHOLDERS = {"system": "\ue000", "query": "\ue001", "document": "\ue002"}  # role -> what stands for its text


def _read_reranker(
    folder: Folder, prefix: str, settings: JsonObject, with_top_config: Callable[[EncoderText], EncoderText]
) -> Checkpoint:
    """Read a folder with a LogitScore module, whose files' names begin with ``prefix``.

    settings         those of the Transformer module
    with_top_config  takes a text, and returns it with the settings of config_sentence_transformers.json
    """
    score_config = read_object(folder, prefix + "config.json")
    if settings.string("transformer_task") != "text-generation" or not score_config.has("false_token_id"):
        raise CheckpointError(f"{score_config.where}: LogitScore needs a text-generation Transformer and two tokens")
    checkpoint = read_decoder(folder)
    text = checkpoint.text
    assert isinstance(text, GeneratorText)
    if not text.chat_template:
        raise CheckpointError(f"{score_config.where}: LogitScore needs a chat template of query and document")
    prompt, instruction = _pair_prompt(ChatTemplate(text.chat_template, text.special_tokens), score_config.where)
    ids = score_config.integer("true_token_id"), score_config.integer("false_token_id")
    if max(ids) >= checkpoint.tensors["decoder.projection.weight"].shape[0]:
        raise CheckpointError(
            f"{score_config.where}: true_token_id and false_token_id should be of the vocabulary, are {ids}"
        )
    reranker = checkpoint.as_reranker(*ids, prompt)
    assert isinstance(reranker.input, EncoderText)
    pair_text = with_top_config(reranker.input)
    if pair_text.default_prompt is None:
        if instruction is None:
            fault = "the chat template has no instruction of its own, nor is a prompt named"
            raise CheckpointError(f"{score_config.where}: {fault}")
        pair_text = dataclasses.replace(pair_text, prompts={**pair_text.prompts, "": instruction}, default_prompt="")
    length = settings.optional_size("max_seq_length") or pair_text.max_length
    pair_text = dataclasses.replace(pair_text, max_length=length, scores=pair_text.scores or "sigmoid")
    return dataclasses.replace(reranker, input=pair_text)


def _pair_prompt(template: ChatTemplate, where: str) -> tuple[PairPrompt, str | None]:
    """(the prompt that the template makes of an instruction and a pair, the template's default instruction or None)."""
    conversation = [{"role": role, "content": placeholder} for role, placeholder in PLACEHOLDERS.items()]
    text, default_text = template.render(conversation, False), template.render(conversation[1:], False)
    placeholders = "".join(PLACEHOLDERS.values())
    if "".join(re.findall(f"[{placeholders}]", text)) != placeholders:
        raise CheckpointError(f"{where}: the chat template should have instruction, query and document once, in order")
    before, query, document, after = re.split(f"[{placeholders}]", text)
    ending = "".join((query, PLACEHOLDERS["query"], document, PLACEHOLDERS["document"], after))
    has_default = default_text.startswith(before) and default_text.endswith(ending)
    has_default = has_default and len(default_text) >= len(before) + len(ending)
    instruction = default_text[len(before) : -len(ending)] if has_default else None
    # A token may span the text before the instruction and the instruction; ``PairPrompt.before`` is tokenized alone.
    return PairPrompt("", before, query, document, after), instruction


READERS: dict[str, Callable[[Folder, str, EncoderText, int], tuple[EncoderText, int]]] = {
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Dropout": lambda folder, prefix, text, width: (text, width),  # only training drops values
    "Normalize": _read_normalize,
    "SpladePooling": _read_splade,
    "MultiVectorMask": token_vectors.read_mask,
}
