"""Marian folders, those of Firefox Translations, Bergamot and OPUS-MT among them -> a Checkpoint.

A model in .npz or .bin, float32, float16 or int8 for intgemm; vocabularies in .spm or .yml; the decoder configuration
beside them, which names them; perhaps a lexical shortlist. (marian-dev and browsermt/marian-dev.)
"""

from collections.abc import Mapping
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.folder import Directory, Folder
from fastattn.weights.marian import bin_file, npz_file
from fastattn.weights.marian.config import find_configurations, find_models, read_configuration
from fastattn.weights.marian.item import SETTINGS, Item
from fastattn.weights.marian.options import read_architecture
from fastattn.weights.marian.tensors import read_tensors
from fastattn.weights.marian.text import INFORMATION, SENTENCEPIECE_FILES, translation_text
from fastattn.weights.marian.yml import Value, parse_options
from fastattn.weights.tensor_mapping import main_precision

DESCRIPTION = "Marian folder (a model in .npz or .bin, its vocabularies, config.yml or decoder.yml)"
# Files of other formats, whose folders may hold an .npz of anything.
OTHERS = ("config.json", "model.bin")


def recognize(path: Path) -> bool:
    if not path.is_dir():
        return False
    folder = Directory(path)
    models = find_models(folder)
    if any(name.endswith(".bin") for name in models):
        return True
    return bool(models or find_configurations(folder)) and not any(map(folder.contains, OTHERS))


def find_files(folder: Directory) -> list[str]:
    """The names of the files that ``read`` opens; CheckpointError for a configuration that is not supported."""
    configuration = read_configuration(folder)
    found = [*find_configurations(folder), configuration.model + ".yml", INFORMATION, *SENTENCEPIECE_FILES]
    named = [configuration.model, *configuration.vocabularies, *filter(None, [configuration.shortlist])]
    return [*filter(folder.contains, found), *dict.fromkeys(named)]


def read(folder: Directory) -> Checkpoint:
    """Read a folder; raises CheckpointError for what is malformed, incomplete or not supported."""
    configuration = read_configuration(folder)
    where = folder.where(configuration.model)
    items = _read_items(folder, configuration.model)
    settings = _read_settings(items, where)
    architecture = read_architecture(settings, items, f"{where}: {SETTINGS}")
    spec = architecture.model
    tensors = read_tensors(architecture, items, configuration.alphas, where)
    text = translation_text(folder, configuration, spec)
    source, target = text.source_vocabulary, text.target_vocabulary
    name = configuration.shortlist
    shortlist = None if name is None else read_shortlist(folder, name, source, target, source is target)
    weights = {name: item for name, item in items.items() if name != SETTINGS}
    version = settings.get("version")
    details = {"Marian version": version} if isinstance(version, str) and version.isprintable() else {}
    return Checkpoint(
        spec=spec,
        tensors=tensors,
        input=text,
        precision=main_precision((one.stored.dtype.name, one.stored.size) for one in weights.values()),
        format="marian",
        details=details | configuration.details,
        shortlist=shortlist,
        files=tuple(folder.used),
    )


def _read_items(folder: Folder, name: str) -> dict[str, Item]:
    data, where = folder.read(name), folder.where(name)
    if name.endswith(".npz"):
        return npz_file.parse(data, where)
    if name.endswith(".bin"):
        return bin_file.parse(data, where)
    raise CheckpointError(f"{where}: a model should be an .npz or a .bin file")


def _read_settings(items: Mapping[str, Item], where: str) -> dict[str, Value]:
    if SETTINGS not in items:
        raise CheckpointError(f"{where}: {SETTINGS} is missing, where the model's options should be")
    stored = items[SETTINGS].stored
    if stored.dtype.name != "int8" or items[SETTINGS].multiplier is not None:
        raise CheckpointError(f"{where}: {SETTINGS} should be text in int8, is {stored.dtype.name}")
    return parse_options(stored.tobytes().rstrip(b"\0"), f"{where}: {SETTINGS}")
