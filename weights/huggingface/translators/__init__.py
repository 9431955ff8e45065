"""Architectures of encoder-decoders in Hugging Face directories, a file for each family, found by their model_type."""

from importlib import import_module

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.translators.architecture import TranslatorArchitecture

# model_type -> a module and its TranslatorArchitecture; only the one that is needed is imported.
TRANSLATORS = {
    "marian": "marian.MARIAN",
}


def find_translator(config: JsonObject) -> TranslatorArchitecture:
    """The architecture of a config.json; raises CheckpointError that lists the known ones."""
    kind = config.string("model_type")
    if kind not in TRANSLATORS:
        raise CheckpointError(
            f"{config.where}: model type {shorten(kind)} is not supported; known: {', '.join(TRANSLATORS)}"
        )
    module, name = TRANSLATORS[kind].split(".")
    architecture: TranslatorArchitecture = getattr(import_module(f"{__name__}.{module}"), name)
    return architecture
