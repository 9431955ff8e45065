"""Encoders in Hugging Face directories: config.json, weights and a tokenizer -> a Checkpoint."""

import dataclasses
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import counted
from fastattn.spec.architecture import HeadSpec, ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.tensors import head_shapes
from fastattn.spec.text_spec import EncoderText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_object, read_optional, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.architecture import Architecture, HeadSource, architecture_in
from fastattn.weights.huggingface.token_vectors import PROJECTION, add_expansion_token, is_by_authors, read_authors_text
from fastattn.weights.huggingface.tokenizer import read_text
from fastattn.weights.huggingface.tokenizer_files import CONFIG
from fastattn.weights.huggingface.weights import MISFIT, as_checkpoint, read_weights
from fastattn.weights.tensor_mapping import TensorSources, check_sources, make_tensors, map_shapes, map_tensors

# model_type -> a module and the name of an Architecture in it; a module is imported when it is needed.
ENCODERS = {
    "albert": "bert.ALBERT",
    "bert": "bert.BERT",
    "camembert": "bert.ROBERTA",
    "deberta-v2": "deberta.DEBERTA",
    "distilbert": "bert.DISTILBERT",
    "electra": "bert.ELECTRA",
    "gemma3_text": "llama.GEMMA3",
    "gte": "rotary_bert.GTE",
    "modernbert": "rotary_bert.MODERNBERT",
    "mpnet": "bert.MPNET",
    "mt5": "t5.T5",
    "new": "rotary_bert.GTE",
    "nomic_bert": "rotary_bert.NOMIC",
    "qwen2": "llama.QWEN",
    "qwen3": "llama.QWEN",
    "roberta": "bert.ROBERTA",
    "t5": "t5.T5",
    "umt5": "t5.T5",
    "xlm-roberta": "bert.ROBERTA",
}
JINA = "bert.JINA"  # its model_type is "bert" too


def find_architecture(config: JsonObject) -> Architecture:
    """The architecture of a config.json; CheckpointError, which lists the known types, for an unknown model_type."""
    is_jina = config.values.get("model_type") == "bert" and config.values.get("position_embedding_type") == "alibi"
    architecture: Architecture = architecture_in(ENCODERS | ({"bert": JINA} if is_jina else {}), config)
    return architecture


def read_encoder(folder: Folder, prefix: str = "", max_length: int | None = None) -> Checkpoint:
    """Read the encoder whose files' names begin with ``prefix``, with its default pooling, without normalization."""
    config = read_object(folder, prefix + "config.json")
    spec, text = describe_encoder(folder, prefix, config, max_length)
    if is_by_authors(config):
        text = read_authors_text(folder, prefix, text)
        text = add_expansion_token(text, read_optional(folder, prefix + CONFIG), config.where)
    return load_encoder(folder, prefix, config, spec, text)


def describe_encoder(
    folder: Folder, prefix: str, config: JsonObject, max_length: int | None = None
) -> tuple[StackSpec, EncoderText]:
    """(spec, text) of ``read_encoder`` without reading weights, which may not be downloaded yet (``hub``)."""
    spec = find_architecture(config).spec(config)
    return spec, read_text(folder, prefix, config, spec, max_length)


def load_encoder(folder: Folder, prefix: str, config: JsonObject, spec: StackSpec, text: EncoderText) -> Checkpoint:
    """The encoder of ``describe_encoder`` with its weights, a head if the folder has one, and this ``text``."""
    architecture = find_architecture(config)
    stored, where = read_weights(folder, prefix)
    stored = with_current_names(stored, architecture, config)
    if is_by_authors(config) and text.multi_vector is not None:
        projection = take_projection(stored, PROJECTION, spec.width, where)
        text = dataclasses.replace(text, dense=((projection, None, "none"),))
    with suppress(CheckpointError):  # where there is no head, read_head below says why
        stored = with_ties(stored, _find_head(config, architecture.heads).ties(config))
    model = ModelSpec("encoder", spec)
    mapping, headless = stack_sources(architecture, config, model, stored, where), ""
    try:
        head, head_mapping = read_head(config, architecture.heads, spec, stored, where)
        text = read_labels(config, architecture.heads, text)
    except CheckpointError as error:  # the caller may need no head
        headless = str(error)
    else:
        model, mapping = dataclasses.replace(model, head=head), mapping | head_mapping
    tensors = make_tensors(mapping, stored)
    return as_checkpoint(folder, config, stored, spec=model, tensors=tensors, input=text, headless=headless)


def stack_sources(
    architecture: Architecture, config: JsonObject, model: ModelSpec, stored: dict[str, StoredTensor], where: str
) -> dict[str, TensorSources]:
    """The sources of each tensor of the model's one stack; CheckpointError unless ``stored`` has exactly these sources.

    stored  the file's tensors by current names
    where   the file's name in errors
    """
    ((name, spec),) = model.stacks.items()
    stack_tensors = {name: tensor for name, tensor in stored.items() if architecture.needs(name, config)}
    # Refused here, before the names of so many layers fill memory; layers with ``numbers`` may share tensors.
    if spec.layers > len(stack_tensors) and architecture.numbers is None:
        raise CheckpointError(
            f"{config.where}: there should be {counted(spec.layers, 'layer')}, but {where} has "
            f"{counted(len(stack_tensors), 'tensor')}"
        )
    numbers = None if architecture.numbers is None else {name: architecture.numbers(config)}
    mapping = map_tensors(architecture.table(config, spec), model, numbers)
    check_sources(mapping, stack_tensors, where, MISFIT)
    return mapping


def take_projection(stored: dict[str, StoredTensor], name: str, width: int, where: str) -> np.ndarray:
    """The matrix ``name`` [outputs, width], which is removed from ``stored``."""
    tensor = stored.pop(name, None)
    if tensor is None or len(tensor.shape) != 2 or tensor.shape[1] != width:
        shape = "missing" if tensor is None else list(tensor.shape)
        raise CheckpointError(f"{where}: {name} should be [outputs, {width}], is {shape}")
    return tensor.float32()


def with_current_names(
    stored: dict[str, StoredTensor], architecture: Architecture, config: JsonObject
) -> dict[str, StoredTensor]:
    """The tensors by current names, with ties; CheckpointError for a needed tensor that has two names in the file."""
    tensors_by_name: dict[str, StoredTensor] = {}
    for stored_name, tensor in stored.items():
        name = architecture.current_name(stored_name)
        if name in tensors_by_name and architecture.needs(name, config):
            raise CheckpointError(f"{tensor.where}: {name} is given twice, with and without a prefix or an old name")
        tensors_by_name[name] = tensor
    return with_ties(tensors_by_name, architecture.ties(config))


def with_ties(stored: dict[str, StoredTensor], ties: Mapping[str, str]) -> dict[str, StoredTensor]:
    """The tensors, with one tensor for each pair of tied names, if one name is missing or both have the same bits.

    Where the tensors differ, each name keeps its own, as in transformers (``PreTrainedModel.tie_weights``).
    """
    tensors = dict(stored)
    for pair in ties.items():
        first, second = (stored.get(name) for name in pair)
        if first is None or second is None or first.equals(second):
            tensors |= {name: tensor for name in pair if (tensor := second or first) is not None}
    return tensors


# problem_type -> the function from the logits of several labels to probabilities, as in transformers' pipelines.
PROBABILITIES = {
    "": "softmax",
    "regression": "none",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
# The function from logits to scores in sentence-transformers' CrossEncoder -> its name here.
SCORES = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
}


def read_head(
    config: JsonObject,
    heads: Mapping[str, HeadSource],
    stack: StackSpec,
    stored: Mapping[str, StoredTensor],
    where: str,
) -> tuple[HeadSpec, dict[str, TensorSources]]:
    """(the head, the sources of its tensors); CheckpointError where there is no head, or its tensors do not fit.

    Arguments as of ``stack_sources``.
    """
    head = _find_head(config, heads)
    spec = head.spec(config, stack, _count_labels(config) if head.has_labels else 0)
    mapping = map_shapes(head.table(config, stack), head_shapes(spec, stack.width))
    names = {name for entry in mapping.values() for name in entry.source_shapes}
    check_sources(mapping, {name: array for name, array in stored.items() if name in names}, where, MISFIT)
    return spec, mapping


def read_labels(config: JsonObject, heads: Mapping[str, HeadSource], text: EncoderText) -> EncoderText:
    """``text`` with the labels of the head, and its functions for probabilities and scores."""
    if not _find_head(config, heads).has_labels:
        return text
    labels = tuple(f"LABEL_{i}" for i in range(_count_labels(config)))
    if config.has("id2label"):
        labels_by_id = config.nested("id2label").values
        texts = [labels_by_id.get(str(i)) for i in range(len(labels_by_id))]
        if not all(map(is_text, texts)):
            raise config.error("id2label", "a label for each number from 0", labels_by_id)
        labels = tuple(map(str, texts))
    probabilities = PROBABILITIES[config.choice("problem_type", PROBABILITIES, "")]
    if probabilities != "none" and len(labels) == 1:
        probabilities = "sigmoid"
    scores = text.scores or torch_activation(config.nested("sentence_transformers"), "activation_fn")
    scores = scores or torch_activation(config, "sbert_ce_default_activation_function")
    scores = scores or ("sigmoid" if len(labels) == 1 else "none")
    return dataclasses.replace(text, labels=labels, probabilities=probabilities, scores=scores)


def torch_activation(config: JsonObject, name: str) -> str:
    """The function from logits to scores: the torch class whose path is the setting ``name``; "" without the setting.

    As in sentence-transformers, paths of other packages than torch do not count.
    """
    return SCORES[config.choice(name, SCORES)] if config.string(name, "").startswith("torch.") else ""


def _find_head(config: JsonObject, heads: Mapping[str, HeadSource]) -> HeadSource:
    """The head of the class that config.json names first."""
    names = config.values.get("architectures")
    if not isinstance(names, list) or not names or not is_text(names[0]):
        raise CheckpointError(f"{config.where}: architectures should name the model's class, is {shorten(names)}")
    for suffix, head in heads.items():
        if names[0].endswith(suffix):
            return head
    choices = f"known: {', '.join(heads)}" if heads else "none is known for this model type"
    raise CheckpointError(f"{config.where}: {shorten(names[0])} has no head that is supported; {choices}")


def _count_labels(config: JsonObject) -> int:
    """The number of labels: those of ``id2label``, else ``num_labels`` or two, as in transformers."""
    labels_by_id = config.nested("id2label").values
    return len(labels_by_id) if config.has("id2label") else config.integer("num_labels", 2, minimum=1)
