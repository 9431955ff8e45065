"""Lines that have more tokens than an encoder takes: refused, or counted where they are cut."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastattn.encoder import Encoder

# Lines, and characters, that are counted together.
MOST_LINES, MOST_CHARACTERS = 256, 1 << 18


class Lengths:
    """Compares the tokens of lines with what the encoder takes.

    options  of ``Encoder.encode``; those that choose a prompt count
    """

    def __init__(self, encoder: "Encoder", options: dict[str, Any]):
        self._encoder = encoder
        self._prompt = {name: options[name] for name in ("task", "prompt_name", "prompt") if name in options}
        # A token is a byte of the line at least, but where a normalizer writes one character out as several.
        self._bytes = encoder.max_length - int(encoder.count_tokens("", **self._prompt))
        self._waiting: list[str] = []
        self._characters = 0
        self._lines = self._cut_lines = self._cut_tokens = 0

    def refusal(self, text: str) -> str | None:
        """Why a line is too long, or None."""
        if len(text.encode()) <= self._bytes:
            return None
        tokens = int(self._encoder.count_tokens(text, **self._prompt))
        limit = self._encoder.max_length
        return f"{tokens:,} tokens, the model takes {limit:,}" if tokens > limit else None

    def note(self, text: str) -> None:
        """Count a line that was encoded, cut perhaps."""
        self._lines += 1
        if len(text.encode()) <= self._bytes:
            return
        self._waiting.append(text)
        self._characters += len(text)
        if len(self._waiting) >= MOST_LINES or self._characters >= MOST_CHARACTERS:
            self._count()

    def remark(self) -> str | None:
        """What was cut of all lines, or None."""
        self._count()
        if not self._cut_lines:
            return None
        lines = f"{self._cut_lines:,} of {self._lines:,} line{'s' * (self._lines != 1)}"
        verb = "was" if self._cut_lines == 1 else "were"
        tokens = f"{self._cut_tokens:,} token{'s' * (self._cut_tokens != 1)}"
        return (
            f"{lines} {verb} cut at {self._encoder.max_length:,} tokens, by {tokens} in all; --long mean cuts nothing"
        )

    def _count(self) -> None:
        for tokens in self._encoder.count_tokens(self._waiting, **self._prompt):
            if tokens > self._encoder.max_length:
                self._cut_lines += 1
                self._cut_tokens += int(tokens) - self._encoder.max_length
        self._waiting, self._characters = [], 0
