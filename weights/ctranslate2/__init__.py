"""CTranslate2 directories: ``model.bin`` of binary versions 1 to 6, vocabularies, config -> a Checkpoint.

Transformers of both stacks (TransformerSpec and its forerunners) and encoders alone (TransformerEncoderSpec).
What the file says and a StackSpec cannot is refused by name, all of it in one error.
"""

from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject, read_optional
from fastattn.weights.ctranslate2.file import ModelFile, Variable, link_scales, parse
from fastattn.weights.ctranslate2.spec import Attributes, find_unsupported, read_stack
from fastattn.weights.ctranslate2.tensors import read_tensors
from fastattn.weights.ctranslate2.text import encoder_text, translation_text
from fastattn.weights.folder import Folder
from fastattn.weights.tensor_mapping import main_precision

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


def recognize(path: Path) -> bool:
    return (path / "model.bin").exists()


def read(folder: Folder, prefix: str = "") -> Checkpoint:
    """Read the model whose files' names begin with ``prefix``.

    Raises CheckpointError for what is malformed, incomplete or not supported.
    """
    where = folder.where(prefix + "model.bin")
    file = _migrate(parse(folder.read(prefix + "model.bin"), where), where)
    link_scales(file.variables)
    config = read_optional(folder, prefix + "config.json")
    if file.version >= 6 and not folder.contains(prefix + "config.json"):
        raise CheckpointError(f"{config.where}: missing; binary version 6 keeps its special tokens there")
    attributes = Attributes(file.variables, where)
    spec = _model_spec(file, attributes, config)
    tensors = read_tensors(file.variables, spec, where)
    assert spec.encoder is not None
    if spec.decoder is None:
        text: object = encoder_text(folder, prefix, spec.encoder)
    else:
        text = translation_text(folder, prefix, attributes, config, file.version, spec)
    weights = (one for name, one in file.variables.items() if name.endswith("weight") and name not in file.aliases)
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
        input=text,  # type: ignore[arg-type]
        precision=main_precision((one.dtype, one.stored.size) for one in weights),
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
        and stacks[0].positions.kind == "table"
        and attributes.shape("encoder/embeddings_1/weight", 2)[1] == stacks[0].width
    )
