"""The decoder configuration of a Marian folder: which files are the model, and how to decode.

It is a config*.yml in folders of Bergamot and Firefox, decoder.yml in OPUS-MT's, model.npz.decoder.yml in Marian's.
Without a configuration, the files' names must be unambiguous.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import DecodingSettings
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.folder import Directory, Folder
from fastattn.weights.marian.model_file import is_model
from fastattn.weights.marian.options import Options
from fastattn.weights.marian.yml import Value, parse_options

CONFIGURATION = re.compile(r"(config[^/]*|decoder|[^/]+\.decoder)\.ya?ml")
MODEL = re.compile(r"[^/]+(?<!\.optimizer)\.npz|model[^/]*\.bin")
VOCABULARY = re.compile(r"(src|trg|)vocab[^/]*\.(spm|ya?ml)")
# Value of gemm-precision -> "alpha" if inputs are scaled by numbers in the model's file.
GEMM_PRECISIONS = {
    "float32": "", "int16": "", "int8": "", "int8shift": "", "int8shiftAll": "",
    "int8Alpha": "alpha", "int8shiftAlpha": "alpha", "int8shiftAlphaAll": "alpha",
}  # fmt: skip
# Option -> the values without effect.
HARMLESS_VALUES: dict[str, tuple[Value, ...]] = {
    **dict.fromkeys(("ignore-model-config", "interpolate-env-vars"), ("false",)),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "input-reorder": ([],),
    **dict.fromkeys(("no-spm-encode", "no-spm-decode"), ("false",)),
    "clip-gemm": ("0", "0.0"),
    "force-decode": ("false",),
    "encryption-key-path": ("",),
}
# Option of the search -> the field of DecodingSettings.
SETTINGS = {
    "beam-size": "beam_size", "normalize": "length_penalty", "word-penalty": "word_penalty",
    "max-length-factor": "max_length_factor",
}  # fmt: skip
# Options for batches, devices and output, which callers decide here, or which have no effect.
IGNORED = frozenset(
    "max-length max-length-crop max-length-break "
    "allow-special n-best n-best-feature alignment word-scores skip-cost weights output-approx-knn "
    "mini-batch mini-batch-words maxi-batch maxi-batch-sort data-threads workspace cpu-threads devices num-devices "
    "model-mmap precision fp16 optimize gemm-type quantize-range use-legacy-batching dump-quantmult seed version "
    "quiet quiet-translation log log-level log-time-zone stat-freq port input output tsv tsv-fields "
    "ssplit-mode ssplit-prefix-file cache-size quality build-info check-nan config".split()
)


@dataclass(frozen=True)
class Configuration:
    """The files of a model by their names in the folder, and how to decode."""

    model: str
    vocabularies: tuple[str, str]
    shortlist: str | None = None
    alphas: bool | None = None  # whether the model's scales of inputs are used; None: if the file has such scales
    allows_unknowns: bool = False  # whether translations may have <unk>
    decoding: DecodingSettings = DecodingSettings()  # settings of the search
    details: dict[str, str] = field(default_factory=dict)


def find_models(folder: Directory) -> list[str]:
    """The names of a folder's Marian models; a .bin shows by its first bytes, before its download by its name."""
    return [name for name in folder.names() if _is_model(folder, name)]


def _is_model(folder: Directory, name: str) -> bool:
    if not name.endswith(".bin") or name in folder.pending_files:
        return MODEL.fullmatch(name) is not None
    with (folder.path / name).open("rb") as stream:
        return is_model(stream.read(8))


def find_configurations(folder: Directory) -> list[str]:
    return [name for name in folder.names() if CONFIGURATION.fullmatch(name)]


def read_configuration(folder: Directory) -> Configuration:
    """The folder's configuration; CheckpointError lists all options that are invalid, unknown or not supported."""
    names = find_configurations(folder)
    if len(names) > 1:
        names = [name for name in names if name in ("config.yml", "decoder.yml")] or names
    if len(names) > 1:
        raise CheckpointError(f"{folder.where('')}: several configurations, {', '.join(map(ascii, names))}; keep one")
    return _read_file(folder, names[0]) if names else _guess_configuration(folder)


def _guess_configuration(folder: Directory) -> Configuration:
    models = find_models(folder)
    if len(models) != 1:
        files = f"found {', '.join(map(ascii, models))}" if models else "found none"
        raise CheckpointError(f"{folder.where('')}: without a config.yml there should be one model; {files}")
    if folder.contains(models[0] + ".yml"):  # the options of training
        values = parse_options(bytes(folder.read(models[0] + ".yml")), folder.where(models[0] + ".yml"))
        vocabularies = values.get("vocabs")
        if isinstance(vocabularies, list) and vocabularies:
            names_inside = [_name_inside(folder, path, False) for path in vocabularies]
            return Configuration(models[0], (names_inside[0], names_inside[-1]))
    matches = [match for match in map(VOCABULARY.fullmatch, folder.names()) if match]
    names = {match[1]: match[0] for match in matches}  # by prefix
    if len(matches) == 1 and "" in names:
        return Configuration(models[0], (names[""], names[""]))
    if len(matches) == 2 and set(names) == {"src", "trg"}:
        return Configuration(models[0], (names["src"], names["trg"]))
    files = ", ".join(ascii(match[0]) for match in matches) or "none"
    raise CheckpointError(
        f"{folder.where('')}: without a config.yml there should be one vocab*.spm or vocab*.yml, or srcvocab* and"
        f" trgvocab*; found {files}"
    )


def _read_file(folder: Folder, name: str) -> Configuration:
    where = folder.where(name)
    values = parse_options(bytes(folder.read(name)), where)
    options = Options(values, HARMLESS_VALUES)
    are_relative = options.flag("relative-paths")
    models = options.texts("models") or options.texts("model")
    vocabularies = options.texts("vocabs")
    if len(models) != 1:
        options.problems.append(f"models should be one, are {len(models)}")
    if not 1 <= len(vocabularies) <= 2:
        options.problems.append(f"vocabs should be the source's and the target's, are {len(vocabularies)}")
    texts = options.texts("shortlist")  # the shortlist's file; then perhaps the numbers 100 100 0, or a flag
    if texts and texts[1:] not in ([], ["false"], ["true"], ["100"], ["100", "100"], ["100", "100", "0"]):
        options.problems.append(f"shortlist {shorten(texts)}; the numbers behind the file should be 100 100 0")
    shortlist = texts[0] if texts and texts[0] != "false" else ""
    alphas, allows_unknowns = _alphas(options, values), options.flag("allow-unk")
    decoding = _decoding(options)
    problems = options.problems + options.find_unknown(IGNORED)
    if problems:
        raise CheckpointError(f"{where}: not supported: {'; '.join(dict.fromkeys(problems))}")
    names = [_name_inside(folder, path, are_relative) for path in vocabularies]
    return Configuration(
        model=_name_inside(folder, models[0], are_relative),
        vocabularies=(names[0], names[-1]),
        shortlist=_name_inside(folder, shortlist, are_relative) if shortlist else None,
        alphas=alphas,
        allows_unknowns=allows_unknowns,
        decoding=decoding,
    )


def _decoding(options: Options) -> DecodingSettings:
    """The settings of the search that the file has; Marian's defaults (12 beams, no normalization) are not applied."""
    settings: dict[str, Any] = {}
    not_followed = []
    for name, setting in SETTINGS.items():
        number = options.number(name)
        if number is not None and setting == "beam_size" and number.is_integer():
            settings[setting] = int(number)
        elif number is not None and setting != "beam_size":
            settings[setting] = number
        elif options.values.get(name) is not None:
            not_followed.append(f"{name} {shorten(options.values[name])}")
    sampling = options.texts("output-sampling")
    if sampling and sampling != ["false"]:
        not_followed.append(f"output-sampling {shorten(' '.join(sampling))}")
    return DecodingSettings(**settings, not_followed=tuple(not_followed))


def _alphas(options: Options, values: Mapping[str, Value]) -> bool | None:
    """``Configuration.alphas``."""
    precision = options.choice("gemm-precision", GEMM_PRECISIONS, "float32")
    flags = [name for name in GEMM_PRECISIONS if options.flag(name)]  # each name is also an option by itself
    if "gemm-precision" not in values and not flags:
        return None
    return bool(precision or any(GEMM_PRECISIONS[name] for name in flags))


def _name_inside(folder: Folder, path: str, is_relative: bool) -> str:
    """The name of a file in the folder: its whole path if that ``is_relative`` to the folder, else the last part."""
    parts = path.replace("\\", "/").split("/")
    parts = [part for part in (parts if is_relative else parts[-1:]) if part != "."]
    name = "/".join(parts)
    if not parts or not all(parts) or ".." in parts or ":" in parts[0] or not name.isprintable():
        raise CheckpointError(f"{folder.where('')}: {shorten(path)} lies outside the folder")
    if not folder.contains(name):
        raise CheckpointError(f"{folder.where(name)}: no such file, but the configuration names it")
    return name
