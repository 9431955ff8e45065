"""The head of an encoder in a Hugging Face directory, and what config.json says of its numbers."""

import dataclasses
from collections.abc import Mapping

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import HeadSpec, StackSpec
from fastattn.spec.tensors import head_shapes
from fastattn.spec.text_spec import EncoderText
from fastattn.weights.containers.json_file import JsonObject, is_text, shorten
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.huggingface.encoders.architecture import HeadSource
from fastattn.weights.huggingface.weights import MISFIT
from fastattn.weights.tensor_mapping import TensorSources, check_sources, map_shapes

# problem_type -> what makes the numbers of several labels probabilities, as transformers' pipelines do it.
PROBABILITIES = {
    "": "softmax",
    "regression": "none",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
# What makes numbers scores in sentence-transformers' CrossEncoder -> its name here.
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
    """(the head, where its tensors come from). Raises CheckpointError where there is none, or one that does not fit.

    stored  the tensors by current names
    where   their file's name in errors
    """
    head = _find(config, heads)
    spec = head.spec(config, stack, _count_labels(config) if head.labelled else 0)
    parts = map_shapes(head.table(config, stack), head_shapes(spec, stack.width))
    needed = {name for part in parts.values() for name in part.source_shapes}
    check_sources(parts, {name: array for name, array in stored.items() if name in needed}, where, MISFIT)
    return spec, parts


def read_labels(config: JsonObject, heads: Mapping[str, HeadSource], text: EncoderText) -> EncoderText:
    """``text`` with the labels of a head that ``read_head`` has read, and what makes probabilities and scores."""
    if not _find(config, heads).labelled:
        return text
    labels = _labels(config)
    likely = PROBABILITIES[config.choice("problem_type", PROBABILITIES, "")]
    if likely != "none" and len(labels) == 1:
        likely = "sigmoid"
    scores = text.scores or torch_activation(config.nested("sentence_transformers"), "activation_fn")
    scores = scores or torch_activation(config, "sbert_ce_default_activation_function")
    scores = scores or ("sigmoid" if len(labels) == 1 else "none")
    return dataclasses.replace(text, labels=labels, probabilities=likely, scores=scores)


def torch_activation(config: JsonObject, name: str) -> str:
    """The function that makes numbers scores, by the path of torch's class under ``name``; "" where none is there.

    sentence-transformers does not trust other paths than torch's, and goes on without them.
    """
    return SCORES[config.choice(name, SCORES)] if config.string(name, "").startswith("torch.") else ""


def _find(config: JsonObject, heads: Mapping[str, HeadSource]) -> HeadSource:
    """The head of the class that config.json names first."""
    names = config.values.get("architectures")
    if not isinstance(names, list) or not names or not is_text(names[0]):
        raise CheckpointError(f"{config.where}: architectures should name the model's class, is {shorten(names)}")
    for end, head in heads.items():
        if names[0].endswith(end):
            return head
    known = f"known: {', '.join(heads)}" if heads else "none is known for this model type"
    raise CheckpointError(f"{config.where}: {shorten(names[0])} has no head that is supported; {known}")


def _count_labels(config: JsonObject) -> int:
    """The number of labels: of ``id2label``, else as in transformers ``num_labels`` or two."""
    named = config.nested("id2label").values
    return len(named) if config.has("id2label") else config.integer("num_labels", 2, minimum=1)


def _labels(config: JsonObject) -> tuple[str, ...]:
    """The labels in their order; their number is that of the head's tensors."""
    if not config.has("id2label"):
        return tuple(f"LABEL_{i}" for i in range(_count_labels(config)))
    named = config.nested("id2label").values
    labels = [named.get(str(i)) for i in range(len(named))]
    if not all(map(is_text, labels)):
        raise config.error("id2label", "a label for each number from 0", named)
    return tuple(map(str, labels))
