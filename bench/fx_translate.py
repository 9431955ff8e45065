"""fxtranslate, an engine for Firefox's models in Rust, from Python: a text at a time, on one thread."""

from pathlib import Path

LIBRARY = NAME = "fxtranslate"


class FxTranslate:
    """The model in a folder; FileNotFoundError for one without its files. Used by the thread that made it alone."""

    name = NAME

    def __init__(self, folder: Path):
        import fxtranslate

        vocabularies = _contents(folder, "*vocab*.spm")  # srcvocab comes before trgvocab; one serves both
        (model,), (shortlist,) = _contents(folder, "model.*.bin"), _contents(folder, "lex.*.bin")
        self._engine = fxtranslate.Translator(model, vocabularies[0], vocabularies[-1], shortlist)

    def translate(self, text: str) -> str:
        return self._engine.translate_long(text)


def _contents(folder: Path, pattern: str) -> list[bytes]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"{NAME} wants a file {pattern} in {folder}")
    return [file.read_bytes() for file in files]
