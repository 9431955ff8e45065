"""From text to tokens and back: tokenizers, sentence splitting, and the check of every text."""

from fastattn.errors import InputError


def check_text(text: object) -> None:
    """Raise InputError unless a text is a str without lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(text, str):
        raise InputError(f"a text was expected, not {type(text).__name__}")
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InputError(f"the text holds a lone surrogate (U+{code:04X}) at character {error.start}") from None
