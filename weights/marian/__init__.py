"""Marian folders, such as those of Firefox Translations, Bergamot and OPUS-MT -> a Checkpoint.

A folder has a model in .npz or .bin (float32, float16 or int8 for intgemm), vocabularies in .spm or .yml, the decoder
configuration that names these files, perhaps a lexical shortlist. (marian-dev and browsermt/marian-dev.)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fastattn.errors import CheckpointError, TokenizerError
from fastattn.printable import first_of
from fastattn.spec.architecture import ModelSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.spec.text_spec import TranslationText
from fastattn.text.sentencepiece import SentencePiece
from fastattn.weights.containers.json_file import read_object, shorten
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.folder import Directory, Folder
from fastattn.weights.marian.config import Configuration, find_configurations, find_models, read_configuration
from fastattn.weights.marian.model_file import SETTINGS, Item, parse_bin, parse_npz
from fastattn.weights.marian.options import MarianArchitecture, read_architecture
from fastattn.weights.marian.yml import Value, parse_options, parse_vocabulary
from fastattn.weights.tensor_mapping import (
    TensorSources,
    check_sources,
    identity,
    main_precision,
    make_tensors,
    map_tensors,
    sources,
)

DESCRIPTION = "Marian folder (a model in .npz or .bin, its vocabularies, config.yml or decoder.yml)"
OTHER_FORMATS = ("config.json", "model.bin")  # files of other formats, whose folders may have any .npz


def recognize(path: Path) -> bool:
    if not path.is_dir():
        return False
    folder = Directory(path)
    models = find_models(folder)
    if any(name.endswith(".bin") for name in models):
        return True
    return bool(models or find_configurations(folder)) and not any(map(folder.contains, OTHER_FORMATS))


def find_files(folder: Directory) -> list[str]:
    """The names of the files that ``read`` opens; CheckpointError for a configuration that is not supported."""
    configuration = read_configuration(folder)
    optional_files = [*find_configurations(folder), configuration.model + ".yml", INFORMATION, *SENTENCEPIECE_FILES]
    named_files = [configuration.model, *configuration.vocabularies, *filter(None, [configuration.shortlist])]
    return [*filter(folder.contains, optional_files), *dict.fromkeys(named_files)]


def read(folder: Directory) -> Checkpoint:
    configuration = read_configuration(folder)
    where = folder.where(configuration.model)
    parse = {".npz": parse_npz, ".bin": parse_bin}.get(configuration.model[-4:])
    if parse is None:
        raise CheckpointError(f"{where}: a model should be an .npz or a .bin file")
    items = parse(folder.read(configuration.model), where)
    settings = _read_settings(items, where)
    architecture = read_architecture(settings, items, f"{where}: {SETTINGS}")
    spec = architecture.model
    tensors = read_tensors(architecture, items, configuration.alphas, where)
    text = translation_text(folder, configuration, spec)
    source, target = text.source_vocabulary, text.target_vocabulary
    name = configuration.shortlist
    shortlist = None if name is None else read_shortlist(folder, name, source, target, source is target)
    weights = (item for name, item in items.items() if name != SETTINGS)
    version = settings.get("version")
    details = {"Marian version": version} if isinstance(version, str) and version.isprintable() else {}
    precision = main_precision((item.array.dtype.name, item.array.size) for item in weights)
    details |= configuration.details
    return Checkpoint(spec, tensors, text, precision, "marian", details, tuple(folder.files_read), shortlist)


def _read_settings(items: Mapping[str, Item], where: str) -> dict[str, Value]:
    if SETTINGS not in items:
        raise CheckpointError(f"{where}: {SETTINGS} is missing, where the model's options should be")
    array = items[SETTINGS].array
    if array.dtype.name != "int8" or items[SETTINGS].multiplier is not None:
        raise CheckpointError(f"{where}: {SETTINGS} should be text in int8, is {array.dtype.name}")
    return parse_options(array.tobytes().rstrip(b"\0"), f"{where}: {SETTINGS}")


END, UNKNOWN = "</s>", "<unk>"
OLD_NAMES = {0: ("eos", END), 1: ("UNK", UNKNOWN)}  # id -> (Nematus's name of the token, its name here)
SENTENCEPIECE_FILES = ("source.spm", "target.spm")  # sentencepiece models that OPUS-MT has next to a vocab.yml
INFORMATION = "model_info.json"  # of Bergamot's folders
LANGUAGES = (re.compile(r"([a-z]{2,3})-([a-z]{2,3})\b.*"), re.compile(r"model\.([a-z]{2})([a-z]{2})\..*"))


def translation_text(folder: Folder, configuration: Configuration, spec: ModelSpec) -> TranslationText:
    """The text, with vocabularies as long as the embedding tables; one object where both languages share a file."""
    names, rows = configuration.vocabularies, [stack.vocabulary for stack in spec.stacks.values()]
    source, source_model = _read_vocabulary(folder, names[0], rows[0])
    target, target_model = source, source_model
    if names[0] != names[1]:
        target, target_model = _read_vocabulary(folder, names[1], rows[1])
    elif rows[0] != rows[1]:
        raise CheckpointError(
            f"{folder.where(names[0])}: one vocabulary for {rows[0]} source and {rows[1]} target embeddings"
        )
    if source_model is None and target_model is None and all(map(folder.contains, SENTENCEPIECE_FILES)):
        source_model, target_model = (bytes(folder.read(name)) for name in SENTENCEPIECE_FILES)
    languages = _languages(folder, configuration)
    return TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        unk_token=UNKNOWN,
        eos_token=END,
        add_source_eos=True,
        source_model=source_model,
        target_model=target_model,
        source_language=languages[0],
        target_language=languages[1],
        writes_unknowns=configuration.allows_unknowns,
        single_sentences=True,
        decoding=configuration.decoding,
    )


def _read_vocabulary(folder: Folder, name: str, rows: int) -> tuple[tuple[str, ...], bytes | None]:
    """(``rows`` tokens, "" for an id without a token; the bytes of an .spm file, else None)."""
    where = folder.where(name)
    if name.endswith(".fsv"):
        raise CheckpointError(f"{where}: factored vocabularies are not supported")
    model = None
    if name.endswith(".spm"):
        model = bytes(folder.read(name))
        try:
            tokens = SentencePiece(model).vocabulary
        except TokenizerError as error:
            raise CheckpointError(f"{where}: {error}") from None
        if len(tokens) > rows:
            raise CheckpointError(f"{where}: the embedding has {rows} rows, the vocabulary {len(tokens)} pieces")
    elif name.endswith((".yml", ".yaml", ".json")):
        by_id = parse_vocabulary(bytes(folder.read(name)), where)
        # As in Marian, ids for which the embedding has no row are ignored.
        tokens = [by_id.get(index, "") for index in range(min(rows, max(by_id, default=-1) + 1))]
        for index, (old, new) in OLD_NAMES.items():
            if index < len(tokens) and tokens[index] in ("", old):
                tokens[index] = new
    else:
        raise CheckpointError(f"{where}: vocabularies of this kind are not supported; supported: .spm, .yml, .json")
    for token in (END, UNKNOWN):
        if token not in tokens:
            raise CheckpointError(f"{where}: the vocabulary lacks {token}")
    return tuple(tokens + [""] * (rows - len(tokens))), model


def _languages(folder: Folder, configuration: Configuration) -> tuple[str, str]:
    """The codes of both languages, from INFORMATION ("en-pt-tiny") or the model's name; "" where these have none."""
    texts = [configuration.model]
    if folder.contains(INFORMATION):
        information = read_object(folder, INFORMATION)
        texts.insert(0, information.string("shortName", ""))
        for key, detail in (("modelName", "model name"), ("type", "size")):  # for ``fastattn inspect``
            if information.has(key) and len(shorten(information.string(key))) < 80:
                configuration.details[detail] = information.string(key)
    matches = (match.groups() for text in texts for pattern in LANGUAGES if (match := pattern.fullmatch(text)))
    source, target = next(matches, ("", ""))
    return source, target


ALPHA = "_QuantMultA"  # the scale of a product's inputs before they are rounded: NAME_QuantMultA for the weight NAME
# Names of the scale for a projection tied to the embedding table: a transposed table has no name of its own.
TIED_ALPHAS = ("none" + ALPHA, "Wemb" + ALPHA)


def read_tensors(
    architecture: MarianArchitecture, items: Mapping[str, Item], alphas: bool | None, where: str
) -> dict[str, Tensor]:
    """The canonical tensors, tied tensors as one object; CheckpointError for arrays missing, left over or misshapen.

    alphas  whether scales of inputs are used; None: if the file has such scales
    """
    layers = architecture.model.stacks["encoder"].layers
    numbers = {"encoder": range(1, layers + 1), "decoder": architecture.tied_layers}
    mapping = map_tensors(_table(architecture, items), architecture.model, numbers)
    weights = {name: item for name, item in items.items() if name != SETTINGS and not name.endswith(ALPHA)}
    check_sources(mapping, weights, where, "arrays do not fit the model's options")
    tensors = make_tensors(mapping, weights)
    if alphas is False:
        return tensors
    return _with_input_scales(mapping, tensors, architecture, items, bool(alphas), where)


def _table(architecture: MarianArchitecture, items: Mapping[str, Item]) -> dict[str, TensorSources]:
    """The table with Marian's names; a norm's name depends on its kind, and on whether norms come before blocks."""
    spec, decoder = architecture.model.stacks.values()
    tag, suffix = "ln" if spec.norms.kind == "layer" else "rms", "_pre" if spec.norms.before else ""
    linear = partial(sources, ends=("W", "b"), transposed=True, flat=True)
    norm = partial(sources, ends=("scale", "bias"), flat=True)
    tables = ("Wemb", "Wemb") if architecture.tied_source else ("encoder_Wemb", "decoder_Wemb")
    table = {
        "encoder.embedding.weight": sources(tables[0]),
        "decoder.embedding.weight": sources(tables[1]),
        "STACK.positions": sources("Wpos"),
        "STACK.embedding_norm.*": norm(f"STACK_emb_{tag}_*_pre"),
        "STACK.layers.#.self_attention.norm.*": norm(f"STACK_l#_self_Wo_{tag}_*{suffix}"),
        "STACK.layers.#.self_attention.qkv.*": linear("STACK_l#_self_*q", "STACK_l#_self_*k", "STACK_l#_self_*v"),
        "STACK.layers.#.self_attention.output.*": linear("STACK_l#_self_*o"),
        # A norm before the recurrent unit has another name than a norm behind the unit.
        "decoder.layers.#.ssru.norm.*": norm(f"decoder_l#_rnn{'' if spec.norms.before else '_ffn'}_{tag}_*{suffix}"),
        "decoder.layers.#.ssru.input.weight": linear("decoder_l#_rnn_W", "decoder_l#_rnn_Wf"),
        "decoder.layers.#.ssru.input.bias": linear(None, "decoder_l#_rnn_bf"),
        "decoder.layers.#.average_attention.norm.*": norm(f"decoder_l#_aan_ffn_{tag}_*{suffix}"),
        "decoder.layers.#.average_attention.inner.*": linear("decoder_l#_aan_*1"),
        "decoder.layers.#.average_attention.outer.*": linear("decoder_l#_aan_*2"),
        "decoder.layers.#.average_attention.input_gate.*": linear("decoder_l#_aan_*i"),
        "decoder.layers.#.average_attention.forget_gate.*": linear("decoder_l#_aan_*f"),
        "decoder.layers.#.cross_attention.norm.*": norm(f"decoder_l#_context_Wo_{tag}_*{suffix}"),
        "decoder.layers.#.cross_attention.query.*": linear("decoder_l#_context_*q"),
        "decoder.layers.#.cross_attention.key_value.*": linear("decoder_l#_context_*k", "decoder_l#_context_*v"),
        "decoder.layers.#.cross_attention.output.*": linear("decoder_l#_context_*o"),
        "STACK.layers.#.feed_forward.norm.*": norm(f"STACK_l#_ffn_ffn_{tag}_*{suffix}"),
        "STACK.layers.#.feed_forward.inner.*": linear("STACK_l#_ffn_*1"),
        "STACK.layers.#.feed_forward.outer.*": linear("STACK_l#_ffn_*2"),
        "STACK.final_norm.*": norm(f"STACK_top_{tag}_*"),
        "decoder.projection.weight": sources("decoder_ff_logit_out_Wt"),
        "decoder.projection.bias": linear("decoder_ff_logit_out_b"),
    }
    if architecture.tied_output:
        table["decoder.projection.weight"] = table["decoder.embedding.weight"]
    elif "decoder_ff_logit_out_W" in items:
        table["decoder.projection.weight"] = linear("decoder_ff_logit_out_W")
    if not architecture.has_projection:
        table |= _identity_layer("STACK.layers.#.self_attention.output")
        table |= _identity_layer("decoder.layers.#.cross_attention.output")
    if decoder.recurrence is not None and decoder.recurrence.inner_width == decoder.width:
        table |= _identity_layer("decoder.layers.#.average_attention.outer")  # the inner width is the model's
    return table


def _identity_layer(name: str) -> dict[str, TensorSources]:
    """The identity, for a linear layer that the model does not have."""
    return {f"{name}.weight": sources(default=identity), f"{name}.bias": sources(None)}


def _with_input_scales(
    mapping: Mapping[str, TensorSources],
    tensors: Mapping[str, Tensor],
    architecture: MarianArchitecture,
    items: Mapping[str, Item],
    required: bool,
    where: str,
) -> dict[str, Tensor]:
    """The tensors, with input scales for int8 matrices; an embedding table has one only if it is the projection too.

    required  whether a missing scale is an error, even if all scales are missing
    """
    problems: list[str] = []
    tied_table = tensors["decoder.projection.weight"] if architecture.tied_output else None
    with_scale: dict[int, Tensor] = {}
    for name, tensor in tensors.items():
        is_table_alone = name.endswith("embedding.weight") and tensor is not tied_table
        if id(tensor) not in with_scale and isinstance(tensor, QuantizedTensor) and not is_table_alone:
            scale_names = [(f"{stored_name}{ALPHA}",) for stored_name in mapping[name].names]
            scale = _input_scale([TIED_ALPHAS] if tensor is tied_table else scale_names, items, required, problems)
            with_scale[id(tensor)] = replace(tensor, input_scale=scale)
    if problems:
        raise CheckpointError(f"{where}: {'; '.join(first_of(problems, 'of the kind'))}")
    return {name: with_scale.get(id(tensor), tensor) for name, tensor in tensors.items()}


def _input_scale(
    name_lists: Sequence[tuple[str, ...]], items: Mapping[str, Item], required: bool, problems: list[str]
) -> float | None:
    """The input scale that all weights of a tensor share; ``name_lists`` has the possible names of each weight's."""
    alphas, missing_names = [], []
    for names in name_lists:
        # browsermt also stores the scale of a table as an int8 array, under another name.
        stored_names = [name for name in names if name in items and items[name].multiplier is None]
        alphas += stored_names[:1]
        missing_names += [] if stored_names else [" or ".join(names)]
    if missing_names:
        problems += [f"missing {name}, a scale of inputs" for name in missing_names if required or alphas]
        return None
    scales = np.concatenate([items[name].vector for name in alphas])
    if len(scales) != len(alphas) or (scales != scales[0]).any():
        problems.append(f"{', '.join(alphas)} should be one number, the same for all, as they scale the same inputs")
        return None
    scale = float(scales[0])
    if not 1e-30 < scale < 1e30:
        problems.append(f"{alphas[0]} should be from 1e-30 to 1e30, is {scale}")
        return None
    return scale
