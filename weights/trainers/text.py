"""The tokenizer files that people keep beside a trainer's checkpoint, by their usual names."""

from typing import Any

from fastattn.errors import CheckpointError
from fastattn.text.subword_units import CONTINUED
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.folder import Folder

CODES = ("bpecodes", "code", "codes", "bpe.code", "bpe.codes", "bpe_codes", "codes.txt", "bpe.model")
SENTENCEPIECE = (
    ("source.spm", "target.spm"),
    *((name, name) for name in ("sentencepiece.bpe.model", "sentencepiece.model", "spm.model")),
)
SEVERAL = 2  # units that do not end their words: of fewer, any may be a word


def tokenizer_files(folder: Folder, names: list[str], vocabulary: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a TranslationText: codes, or sentencepiece models. ``names``: the folder's files, perhaps in folders.

    Raises CheckpointError where the vocabulary has units and there are no codes.
    """
    found = {name.rpartition("/")[2]: name for name in reversed(names)}
    codes = next((found[name] for name in CODES if name in found), None)
    if codes is not None:
        return {"codes": bytes(folder.read(codes))}
    if sum(token.endswith(CONTINUED) for token in vocabulary) > SEVERAL:
        raise CheckpointError(
            f"{folder.where(CODES[0])}: no such file (nor {', '.join(CODES[1:])}): the vocabulary has units of words"
            f" such as {shorten(next(token for token in vocabulary if token.endswith(CONTINUED)))}, which codes make"
        )
    for pair in SENTENCEPIECE:
        if all(name in found for name in pair):
            return dict(zip(("source_model", "target_model"), (bytes(folder.read(found[name])) for name in pair)))
    return {}
