"""CTranslate2 directories: ``model.bin`` of binary versions 1 to 6, vocabularies, config -> a Checkpoint.

Encoder-decoders (TransformerSpec and its forerunners) and encoders alone (TransformerEncoderSpec). Features that a
StackSpec cannot express are refused by name, all in one error.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, TranslationText
from fastattn.text.languages import language_tokens
from fastattn.weights.containers.json_file import JsonObject, decode, read_json, read_object, read_optional, shorten
from fastattn.weights.ctranslate2.file import ModelFile, Variable, link_scales, parse
from fastattn.weights.ctranslate2.spec import Attributes, find_unsupported, read_stack, read_tensors
from fastattn.weights.folder import Folder
from fastattn.weights.tensor_mapping import main_precision

DESCRIPTION = "CTranslate2 directory (model.bin)"
# Specification -> (its newest revision, the number of heads where revisions 1 and 2 stored no number).
SPECIFICATIONS = {
    "": (7, 8), "TransformerBase": (7, 8), "TransformerBig": (7, 16), "TransformerSpec": (7, None),
    "TransformerEncoderSpec": (1, None),
}  # fmt: skip
# Attributes that revisions before 5 store once for both stacks.
SHARED_ATTRIBUTES = ("num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads")
# (word of OpenNMT-tf in the names of revision 1, its replacement), in the order in which words are replaced.
FIRST_REVISION_WORDS = (
    ("transformer/", ""), (":0", ""), ("w_embs", "embeddings/weight"), ("kernel", "weight"),
    ("LayerNorm", "layer_norm"), ("dense", "projection"), ("conv1d_", "linear_"), ("conv1d", "linear_0"),
)  # fmt: skip


def recognize(path: Path) -> bool:
    return (path / "model.bin").exists()


def read(folder: Folder, prefix: str = "") -> Checkpoint:
    """Read the model whose files' names begin with ``prefix``; CheckpointError if it is malformed or not supported."""
    where = folder.where(prefix + "model.bin")
    file = _migrate(parse(folder.read(prefix + "model.bin"), where), where)
    link_scales(file.variables)
    config = read_optional(folder, prefix + "config.json")
    if file.version >= 6 and not folder.contains(prefix + "config.json"):
        raise CheckpointError(f"{config.where}: missing; binary version 6 keeps its special tokens there")
    attributes = Attributes(file.variables, where)
    spec = _model_spec(file, attributes, config)
    tensors = read_tensors(file.variables, spec, where)
    text: EncoderText | TranslationText
    if spec.decoder is None:
        text = encoder_text(folder, prefix, spec.stacks["encoder"])
    else:
        text = translation_text(folder, prefix, attributes, config, file.version, spec)
    names = (name for name in file.variables if name.endswith("weight") and name not in file.aliases)
    weights = (file.variables[name] for name in names)
    precision = main_precision((weight.dtype, weight.array.size) for weight in weights)
    details = {"binary version": str(file.version), "specification": file.spec_name or "(none: OpenNMT-tf names)"}
    details["revision"] = str(file.revision)
    if isinstance(text, TranslationText) and text.vocabulary_map is not None:
        details["vocabulary map"] = "vmap.txt; only shortlist=True uses it"
    return Checkpoint(spec, tensors, text, precision, "ctranslate2", details, tuple(folder.files_read))


def _migrate(file: ModelFile, where: str) -> ModelFile:
    """Give the variables of an old revision the names and attributes of the newest revision."""
    if file.spec_name not in SPECIFICATIONS:
        supported = ", ".join(name for name in SPECIFICATIONS if name)
        raise CheckpointError(f"{where}: {file.spec_name} models are not supported; supported: {supported}")
    newest, heads = SPECIFICATIONS[file.spec_name]
    if not 1 <= file.revision <= newest:
        raise CheckpointError(f"{where}: {file.spec_name} revision should be 1 to {newest}, is {file.revision}")
    if file.spec_name == "TransformerEncoderSpec":
        return file
    variables = dict(file.variables)
    if file.revision == 1:
        variables = {_renamed_from_first_revision(name): variable for name, variable in variables.items()}
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
            raise CheckpointError(
                f"{where}: {file.spec_name} of revision {file.revision} does not say its number of heads"
            )
        for stack in ("encoder", "decoder"):
            variables.setdefault(
                f"{stack}/num_heads", Variable(f"{stack}/num_heads", "int16", np.array(heads or 0, "<i2"))
            )
    return ModelFile(file.version, file.spec_name, file.revision, variables, file.aliases)


def _renamed_from_first_revision(name: str) -> str:
    for old, new in FIRST_REVISION_WORDS:
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)


def _model_spec(file: ModelFile, attributes: Attributes, config: JsonObject) -> ModelSpec:
    """The architecture; one CheckpointError lists all features that are not supported."""
    epsilon = config.number("layer_norm_epsilon") if config.has("layer_norm_epsilon") else None
    problems = find_unsupported(attributes)
    if config.integer("quantization_type", 0):
        problems.append("4-bit weights (quantization_type)")
    kind = "encoder" if file.spec_name == "TransformerEncoderSpec" else "encoder-decoder"
    stacks: list[StackSpec] = []
    for prefix in ("encoder", "decoder") if kind == "encoder-decoder" else ("encoder",):
        try:
            stacks.append(read_stack(attributes, prefix, epsilon, problems))
        except CheckpointError as error:
            problems.append(str(error))
    if "encoder/embeddings_1/weight" in file.variables and not (kind == "encoder" and _has_types(attributes, stacks)):
        problems.append("source features (encoder/embeddings_1)")
    if problems:
        raise CheckpointError(f"{attributes.where}: not supported: {'; '.join(dict.fromkeys(problems))}")
    try:
        return ModelSpec(kind, *stacks)
    except CheckpointError as error:
        raise CheckpointError(f"{attributes.where}: {error}") from None


def _has_types(attributes: Attributes, stacks: list[StackSpec]) -> bool:
    """Whether the second embedding is BERT's token types, whose row 0 can be added to the position table."""
    return (
        attributes.integer("encoder/embeddings_merge", 0) == 1
        and "encoder/embeddings_2/weight" not in attributes.variables
        and bool(stacks)
        and stacks[0].positions.kind == "table"
        and attributes.shape("encoder/embeddings_1/weight", 2)[1] == stacks[0].width
    )


# Names that converters give to sentencepiece models next to model.bin: (source, target).
SENTENCEPIECE_FILES = (
    ("source.spm", "target.spm"), ("sentencepiece.model",) * 2, ("sentencepiece.bpe.model",) * 2
)  # fmt: skip


def translation_text(
    folder: Folder, prefix: str, attributes: Attributes, config: JsonObject, version: int, spec: ModelSpec
) -> TranslationText:
    """The text settings. Special tokens are in config.json since binary version 6, before in the model's attributes."""
    tokens: dict[str, Any]
    if version >= 6:
        tokens = {name: config.string(name) for name in ("unk_token", "bos_token", "eos_token")}
        bos, eos = config.boolean("add_source_bos", False), config.boolean("add_source_eos", False)
        start = config.string("decoder_start_token") if config.has("decoder_start_token") else None
    else:
        defaults = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        tokens = {name: attributes.text(name, default) for name, default in defaults.items()}
        bos, eos = attributes.flag("with_source_bos", False), attributes.flag("with_source_eos", False)
        start = tokens["bos_token"] if attributes.flag("with_target_bos", True) else tokens["eos_token"]
        if attributes.flag("user_decoder_start_tokens", False):
            start = None
    source, target = _read_vocabularies(folder, prefix, tokens["unk_token"], list(spec.stacks.values()))
    # The vocabulary may lack the start token: CTranslate2 then uses <unk>'s id, which a model that starts from a zero
    # embedding never looks up.
    if tokens["eos_token"] not in target:
        raise CheckpointError(f"{folder.where(prefix)}: the target vocabulary lacks {shorten(tokens['eos_token'])}")
    pairs = (pair for pair in SENTENCEPIECE_FILES if all(folder.contains(prefix + name) for name in pair))
    models: list[Any] = [bytes(folder.read(prefix + name)) for name in next(pairs, ())] or [None, None]
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        **tokens,
        decoder_start_token=start,
        add_source_bos=bos,
        add_source_eos=eos,
        source_model=models[0],
        target_model=models[1],
        tokenizer=_read_if_present(folder, prefix + "tokenizer.json") if models[0] is None else None,
        vocabulary_map=_read_if_present(folder, prefix + "vmap.txt"),
        codes=_read_if_present(folder, prefix + "bpe.codes"),
        **_languages(folder, prefix, source, start),
    )


def _read_if_present(folder: Folder, name: str) -> bytes | None:
    return bytes(folder.read(name)) if folder.contains(name) else None


def _languages(folder: Folder, prefix: str, vocabulary: tuple[str, ...], start: str | None) -> dict[str, Any]:
    """Fields of a multilingual model's text, from the tokens of its vocabulary: no file lists the languages."""
    languages = language_tokens(vocabulary)
    if languages is None or (start is None and not languages.target):
        return {}
    if start is None:  # mBART begins a target with its language
        languages = replace(languages, source="after", target="start")
    elif languages.target:  # older tokenizers put NLLB's source language after a text, newer ones before it
        tokenizer = read_optional(folder, prefix + "tokenizer_config.json")
        languages = replace(languages, source="after") if tokenizer.boolean("legacy_behaviour", False) else languages
    return {"languages": languages, "single_sentences": bool(languages.target)}


def encoder_text(folder: Folder, prefix: str, spec: StackSpec) -> EncoderText:
    """The text settings. A tokenizer.json must be in the model's folder: a vocabulary alone is not enough."""
    if not folder.contains(prefix + "tokenizer.json"):
        raise CheckpointError(
            f"{folder.where(prefix + 'tokenizer.json')}: missing; copy the original model's tokenizer.json there"
        )
    max_length = spec.positions.limit or 1 << 30
    if folder.contains(prefix + "tokenizer_config.json"):
        limit = read_object(folder, prefix + "tokenizer_config.json").integer("model_max_length", max_length, minimum=1)
        max_length = min(max_length, limit)
    return EncoderText(tokenizer=bytes(folder.read(prefix + "tokenizer.json")), max_length=max_length)


def _read_vocabularies(
    folder: Folder, prefix: str, unk_token: str, stacks: list[StackSpec]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(source tokens, target tokens), one for each row of their embeddings."""
    names = ["source_vocabulary", "target_vocabulary"]
    if _find_file(folder, prefix + "shared_vocabulary"):
        names = ["shared_vocabulary"] * 2
    elif not _find_file(folder, prefix + "source_vocabulary") and _find_file(folder, prefix + "source_1_vocabulary"):
        names[0] = "source_1_vocabulary"
    vocabularies = {name: _read_vocabulary(folder, prefix + name, unk_token) for name in dict.fromkeys(names)}
    source, target = (vocabularies[name] for name in names)
    for name, tokens, stack in zip(names, (source, target), stacks):
        if len(tokens) != stack.vocabulary:
            raise CheckpointError(
                f"{folder.where(prefix + name)}: the embedding has {stack.vocabulary} rows, the vocabulary"
                f" {len(tokens)} tokens ({shorten(unk_token)} included)"
            )
    return source, target


def _read_vocabulary(folder: Folder, name: str, unk_token: str) -> tuple[str, ...]:
    file = _find_file(folder, name)
    if file is None:
        raise CheckpointError(f"{folder.where(name)}.json (or .txt, or shared_vocabulary): no such file")
    if file.endswith(".json"):
        tokens = read_json(folder, file)
        if not isinstance(tokens, list) or not _are_texts(tokens):
            raise CheckpointError(f"{folder.where(file)}: should hold a list of strings")
    else:
        tokens = decode(folder.read(file), folder.where(file)).split("\n")
        tokens = tokens if tokens[-1] else tokens[:-1]
        # A token may end in a carriage return: carriage returns belong to line ends only if every line has one.
        if all(token.endswith("\r") for token in tokens):
            tokens = [token[:-1] for token in tokens]
    return tuple(tokens) if unk_token in tokens else (*tokens, unk_token)


def _find_file(folder: Folder, name: str) -> str | None:
    return next((name + suffix for suffix in (".json", ".txt") if folder.contains(name + suffix)), None)


def _are_texts(values: list) -> bool:
    """Whether ``is_text`` holds for all values; fast for tens of thousands of them."""
    try:
        return "".join(values).encode() is not None
    except (TypeError, UnicodeEncodeError):
        return False
