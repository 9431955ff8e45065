"""Architectures of encoder-decoders in Hugging Face directories, a file for each family, found by their model_type."""

from importlib import import_module

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, shorten
from fastattn.weights.huggingface.translators.architecture import TranslatorArchitecture

# model_type -> a module and its TranslatorArchitecture; only the one that is needed is imported.
# model_type -> why there is none.
REFUSED = {"nllb-moe": "a mixture of experts", "whisper": "its input is sound, not text"}
TRANSLATORS = {
    "bart": "bart.BART",
    "m2m_100": "m2m100.M2M100",  # NLLB too
    "marian": "marian.MARIAN",
    "mbart": "bart.MBART",
    "mt5": "t5.T5",
    "pegasus": "bart.PEGASUS",
    "t5": "t5.T5",  # flan-T5 and MADLAD too
    "umt5": "t5.T5",
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
