"""CTranslate2 directories: ``model.bin`` of binary versions 1 to 6, vocabularies, config -> a Checkpoint.

Transformers of both stacks (TransformerSpec and its forerunners) and encoders alone (TransformerEncoderSpec).
What the file says and a StackSpec cannot is refused by name, all of it in one error.
"""

import re
from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec import Checkpoint, ModelSpec, StackSpec, Tensor, TranslationText
from fastattn.tensors import check_tensors, tensor_shapes
from fastattn.weights.containers.json_file import JsonObject, read_object
from fastattn.weights.ctranslate2.file import ModelFile, Variable, link_scales, parse
from fastattn.weights.ctranslate2.spec import Attributes, find_unsupported, read_stack
from fastattn.weights.ctranslate2.text import encoder_text, translation_text
from fastattn.weights.folder import Directory, Folder

DESCRIPTION = "CTranslate2 directory (model.bin)"
# Specification -> its newest revision, and the number of heads where revisions 1 and 2 did not store it.
SPECIFICATIONS = {
    "": (7, 8),
    "TransformerBase": (7, 8),
    "TransformerBig": (7, 16),
    "TransformerSpec": (7, None),
    "TransformerEncoderSpec": (1, None),
}
SHARED_ATTRIBUTES = ("num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads")

NAME = re.compile(r"(encoder|decoder)/(?:(layer)_(\d+)/)?(.+)/(gamma|beta|weight|bias)")
ENDS = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}
STACK_PARTS = {
    "embeddings": "embedding",
    "embeddings_0": "embedding",
    "layernorm_embedding": "embedding_norm",
    "layer_norm": "final_norm",
    "projection": "projection",
}
LAYER_PARTS = {
    "self_attention/layer_norm": "self_attention.norm",
    "self_attention/linear_0": "self_attention.qkv",
    "self_attention/linear_1": "self_attention.output",
    "attention/layer_norm": "cross_attention.norm",
    "attention/linear_0": "cross_attention.query",
    "attention/linear_1": "cross_attention.key_value",
    "attention/linear_2": "cross_attention.output",
    "ffn/layer_norm": "feed_forward.norm",
    "ffn/linear_0": "feed_forward.inner",
    "ffn/linear_0_noact": "feed_forward.inner_linear",
    "ffn/linear_1": "feed_forward.outer",
}
# OpenNMT-tf's words, which revision 1 kept, in the order in which they are replaced.
FIRST_REVISION_WORDS = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)


def recognise(path: Path) -> bool:
    return (path / "model.bin").exists()


def read(path: Path) -> Checkpoint:
    """Read a directory; raises CheckpointError for what is malformed, incomplete or not supported."""
    return read_folder(Directory(path))


def read_folder(folder: Folder, prefix: str = "") -> Checkpoint:
    """Read the model whose files' names begin with ``prefix``."""
    where = folder.where(prefix + "model.bin")
    file = _migrate(parse(folder.read(prefix + "model.bin"), where), where)
    link_scales(file.variables)
    config = JsonObject({}, folder.where(prefix + "config.json"))
    if folder.contains(prefix + "config.json"):
        config = read_object(folder, prefix + "config.json")
    elif file.version >= 6:
        raise CheckpointError(f"{config.where}: missing; binary version 6 keeps its special tokens there")
    attributes = Attributes(file.variables, where)
    spec = _model_spec(file, attributes, config)
    tensors = _tensors(file.variables, spec)
    check_tensors(spec, tensors, where)
    if spec.decoder is None:
        text: object = encoder_text(folder, prefix, spec.encoder)
    else:
        text = translation_text(folder, prefix, attributes, config, file.version, spec)
    details = {
        "binary version": str(file.version),
        "specification": file.spec or "(none: OpenNMT-tf names)",
        "revision": str(file.revision),
    }
    if isinstance(text, TranslationText) and text.vocabulary_map is not None:
        details["vocabulary map"] = "vmap.txt; only shortlist=True uses it"
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        text=text,  # type: ignore[arg-type]
        precision=_precision(file),
        format="ctranslate2",
        details=details,
        files=tuple(folder.used),
    )


def _migrate(file: ModelFile, where: str) -> ModelFile:
    """Give the variables of old revisions the names and attributes of today."""
    if file.spec not in SPECIFICATIONS:
        known = ", ".join(name for name in SPECIFICATIONS if name)
        raise CheckpointError(f"{where}: {file.spec} models are not supported; supported: {known}")
    newest, heads = SPECIFICATIONS[file.spec]
    if not 1 <= file.revision <= newest:
        raise CheckpointError(f"{where}: {file.spec} revision should be 1 to {newest}, is {file.revision}")
    if file.spec == "TransformerEncoderSpec":
        return file
    variables = dict(file.variables)
    if file.revision == 1:
        variables = {_first_revision_name(name): variable for name, variable in variables.items()}
        if len(variables) != len(file.variables):
            raise CheckpointError(f"{where}: two variables have the same name once renamed from revision 1")
    if file.revision < 5:
        for name in SHARED_ATTRIBUTES:
            for stack in ("encoder", "decoder"):
                if name in variables:
                    variables.setdefault(f"{stack}/{name}", variables[name])
            variables.pop(name, None)
    if file.revision < 3:
        if heads is None and "encoder/num_heads" not in variables:
            raise CheckpointError(f"{where}: {file.spec} of revision {file.revision} does not say its number of heads")
        for stack in ("encoder", "decoder"):
            variables.setdefault(f"{stack}/num_heads", _scalar(f"{stack}/num_heads", heads or 0))
    return ModelFile(file.version, file.spec, file.revision, variables, file.aliases)


def _first_revision_name(name: str) -> str:
    for old, new in FIRST_REVISION_WORDS:
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)


def _scalar(name: str, value: int) -> Variable:
    return Variable(name, "int16", np.array(value, "<i2"))


def _model_spec(file: ModelFile, attributes: Attributes, config: JsonObject) -> ModelSpec:
    """Read the architecture; one error holds everything that is not supported."""
    epsilon = config.number("layer_norm_epsilon") if config.has("layer_norm_epsilon") else None
    problems = find_unsupported(attributes)
    if config.integer("quantization_type", 0):
        problems.append("4-bit weights (quantization_type)")
    kind = "encoder" if file.spec == "TransformerEncoderSpec" else "encoder-decoder"
    stacks: list[StackSpec] = []
    for prefix in ("encoder", "decoder") if kind == "encoder-decoder" else ("encoder",):
        try:
            stacks.append(read_stack(attributes, prefix, epsilon, problems))
        except CheckpointError as error:
            problems.append(str(error))
    if "encoder/embeddings_1/weight" in file.variables and not (kind == "encoder" and _adds_types(attributes, stacks)):
        problems.append("source features (encoder/embeddings_1)")
    if problems:
        raise CheckpointError(f"{attributes.where}: not supported: {'; '.join(dict.fromkeys(problems))}")
    try:
        return ModelSpec(kind, *stacks)
    except CheckpointError as error:
        raise CheckpointError(f"{attributes.where}: {error}") from None


def _adds_types(attributes: Attributes, stacks: list[StackSpec]) -> bool:
    """Whether a second embedding is BERT's token types, whose row 0 can join the position table."""
    return (
        attributes.integer("encoder/embeddings_merge", 0) == 1
        and "encoder/embeddings_2/weight" not in attributes.variables
        and bool(stacks)
        and stacks[0].positions == "table"
        and attributes.shape("encoder/embeddings_1/weight", 2)[1] == stacks[0].width
    )


# Weights that are not finite, or become so, pass unremarked: they are data.
@np.errstate(over="ignore", invalid="ignore")
def _tensors(variables: dict[str, Variable], spec: ModelSpec) -> dict[str, Tensor]:
    """The canonical tensors; what has no canonical name keeps its own, for check_tensors to report."""
    tensors: dict[str, Tensor] = {}
    for name, variable in variables.items():
        if _is_read_elsewhere(name, variable):
            continue
        canonical = _canonical_name(name)
        if canonical is None:
            tensors[name] = variable.stored
            continue
        tensors[canonical] = variable.weight if name.endswith("/weight") else variable.float32
        residual = variables.get(name.removesuffix("gamma") + "layer_norm_use_residual")
        if name.endswith("/gamma") and residual is not None and residual.scalar():
            # RMS norm around one: (1 + gamma).
            tensors[canonical] = variable.float32 + np.float32(1)
    _fill_biases(tensors, spec)
    _join_relative_biases(variables, tensors, spec)
    types = variables.get("encoder/embeddings_1/weight")
    if types is not None and types.shape[0]:
        row = types.float32[0] * np.float32(spec.encoder.embedding_scale)
        positions = variables["encoder/position_encodings/encodings"].float32
        tensors["encoder.positions"] = positions + row
    return tensors


def _is_read_elsewhere(name: str, variable: Variable) -> bool:
    """Attributes, scales, and what an encoder's rows do not need (the pooler)."""
    last = name.rsplit("/", 1)[-1]
    return (
        last in Attributes.NAMES
        or last == "weight_scale"
        or last in ("relative_attention_bias", "relative_attention_max_distance")
        or name.startswith("pooler_")
        or name == "encoder/embeddings_1/weight"
    )


def _canonical_name(name: str) -> str | None:
    if name in ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings"):
        return name.split("/")[0] + ".positions"
    match = NAME.fullmatch(name)
    if match is None:
        return None
    stack, layer, number, part, end = match.groups()
    known = LAYER_PARTS if layer else STACK_PARTS
    if part not in known:
        return None
    scope = f"{stack}.layers.{int(number)}" if layer else stack
    return f"{scope}.{known[part]}.{ENDS[end]}"


def _fill_biases(tensors: dict[str, Tensor], spec: ModelSpec) -> None:
    """Where only some linear layers have a bias, the others get zeros: a StackSpec has one flag for all."""
    for name, shape in tensor_shapes(spec).items():
        weight = tensors.get(name.removesuffix("bias") + "weight")
        # Of a weight that has its own shape alone: another's could ask for more than the file's size.
        if name.endswith(".bias") and ".layers." in name and not name.endswith(".norm.bias"):
            if name not in tensors and weight is not None and weight.size and weight.shape[:1] == shape:
                tensors[name] = np.zeros(shape, np.float32)


def _join_relative_biases(variables: dict[str, Variable], tensors: dict[str, Tensor], spec: ModelSpec) -> None:
    """The first layer's bias table serves all layers, as in T5 and in CTranslate2."""
    for stack, description in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        if description is not None and description.positions == "relative":
            first = variables[f"{stack}/layer_0/self_attention/relative_attention_bias"]
            tensors[f"{stack}.relative_bias"] = first.float32


def _precision(file: ModelFile) -> str:
    """The type that holds most of the weights."""
    sizes: dict[str, int] = {}
    for name, variable in file.variables.items():
        if name.endswith("weight") and name not in file.aliases:
            sizes[variable.dtype] = sizes.get(variable.dtype, 0) + variable.stored.size
    return max(sizes, key=lambda dtype: sizes[dtype], default="float32")
