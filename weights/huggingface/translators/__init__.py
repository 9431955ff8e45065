"""Architectures of encoder-decoders in Hugging Face directories, a file for each family, found by their model_type."""

from fastattn.weights.containers.json_file import JsonObject
from fastattn.weights.huggingface.encoders.architecture import found_in
from fastattn.weights.huggingface.translators.architecture import TranslatorArchitecture

# model_type -> why there is none.
REFUSED = {"nllb-moe": "a mixture of experts", "whisper": "its input is sound, not text"}
# model_type -> a module and its TranslatorArchitecture; only the one that is needed is imported.
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
    architecture: TranslatorArchitecture = found_in(TRANSLATORS, config, __name__)
    return architecture
