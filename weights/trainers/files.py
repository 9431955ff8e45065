"""What trainers' checkpoints and folders hold besides tensors: options, vocabularies, tokenizer files."""

from collections.abc import Mapping
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import MAX_INT32, ModelSpec
from fastattn.text.subword_units import CONTINUATION
from fastattn.weights.containers.json_file import is_text, shorten
from fastattn.weights.containers.pytorch import Namespace, TrainerFile
from fastattn.weights.folder import Folder
from fastattn.weights.recurrent.mapping import checked_vocabulary

# Tokenizer files that people keep beside a trainer's checkpoint, by their usual names.
CODES = ("bpecodes", "code", "codes", "bpe.code", "bpe.codes", "bpe_codes", "codes.txt", "bpe.model")
SENTENCEPIECE = (
    ("source.spm", "target.spm"),
    *((name, name) for name in ("sentencepiece.bpe.model", "sentencepiece.model", "spm.model")),
)
MAX_UNITS = 2  # how many unfinished parts of words, such as "wo@@", a vocabulary of words may have by chance


def read_options(trainer_file: TrainerFile, name: str) -> dict[str, Any]:
    """The options of a training, which are the entry ``name`` of a trainer's checkpoint."""
    training = trainer_file.entries.get(name)
    if type(training) is not Namespace:
        raise CheckpointError(f"{trainer_file.where}: {name} should hold the options of a training")
    return training


def checked_options(training: dict[str, Any], supported: Mapping[str, tuple[Any, ...]], where: str) -> dict[str, Any]:
    """The values of the options in ``supported`` ({name: values, the default first}); CheckpointError for others."""
    options = {name: training.get(name, values[0]) for name, values in supported.items()}
    for name, value in options.items():
        is_plain = value is None or isinstance(value, str | int)
        if not is_plain or value not in supported[name]:
            choices = " or ".join(map(repr, supported[name]))
            text = shorten(value) if is_plain else f"a {type(value).__name__}"
            raise CheckpointError(f"{where}: option {name} should be {choices}, is {text}")
    return options


def read_size(training: dict[str, Any], name: str, where: str) -> int:
    """An option that is a number of layers, heads or units; CheckpointError unless it is from 1 to MAX_INT32."""
    value = training.get(name)
    if type(value) is not int or not 1 <= value <= MAX_INT32:
        raise CheckpointError(f"{where}: option {name} should be a number from 1 on")
    return value


def read_vocabularies(trainer_file: TrainerFile, spec: ModelSpec) -> tuple[dict[str, Any], str]:
    """({source_vocabulary: tokens, target_vocabulary: tokens}, the decoder's start token) of OpenNMT-py's file."""
    vocab, where = trainer_file.entries.get("vocab"), trainer_file.where
    if type(vocab) is not dict:
        raise CheckpointError(f"{where}: vocab should be a dict of lists of tokens")
    start_token = vocab.get("decoder_start_token", "<s>")
    if not is_text(start_token):
        raise CheckpointError(f"{where}: vocab's decoder_start_token should be a token")
    vocabularies = {}
    for side, key, stack in zip(("source", "target"), ("src", "tgt"), spec.stacks.values()):
        tokens = vocab.get(key)
        if type(tokens) is not list or not all(map(is_text, tokens)):
            raise CheckpointError(f"{where}: vocab should have a list of tokens as {key}")
        vocabularies[f"{side}_vocabulary"] = checked_vocabulary(tokens, stack.vocabulary, where)
    return vocabularies, start_token


def read_tokenizers(folder: Folder, names: list[str], vocabulary: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a TranslationText: BPE codes, or sentencepiece models, from the folder's files ``names``.

    Raises CheckpointError where the vocabulary has subword units and there are no codes.
    """
    paths = {name.rpartition("/")[2]: name for name in reversed(names)}
    codes = next((paths[name] for name in CODES if name in paths), None)
    if codes is not None:
        return {"codes": bytes(folder.read(codes))}
    units = [token for token in vocabulary if token.endswith(CONTINUATION)]
    if len(units) > MAX_UNITS:
        raise CheckpointError(
            f"{folder.where(CODES[0])}: no such file (nor {', '.join(CODES[1:])}): the vocabulary has units of words"
            f" such as {shorten(units[0])}, which codes make"
        )
    for pair in SENTENCEPIECE:
        if all(name in paths for name in pair):
            return {f"{side}_model": bytes(folder.read(paths[name])) for side, name in zip(("source", "target"), pair)}
    return {}
