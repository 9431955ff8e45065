"""Lines that have more tokens than an encoder takes: refused, or counted where they are cut."""

from typing import TYPE_CHECKING, Any

from fastattn.printable import counted

if TYPE_CHECKING:
    from fastattn.encoders.encoder import Encoder

# Lines, and characters, that are counted together.
MOST_LINES, MOST_CHARACTERS = 256, 1 << 18


class Lengths:
    """Compares the tokens of lines with what the encoder takes.

    options  of ``Encoder.encode``; those that choose a prompt count
    """

    def __init__(self, encoder: "Encoder", options: dict[str, Any]):
        from fastattn.encoders.long_text import TokenLimit  # with NumPy, which the help does without

        self._limit = TokenLimit(encoder, options)
        self._waiting: list[str] = []
        self._characters = 0
        self._lines = self._cut_lines = self._cut_tokens = 0

    def refusal(self, text: str) -> str | None:
        """Why a line is too long, or None."""
        exceeded = self._limit.exceeded([text])
        return self._limit.refusal(exceeded[0]) if exceeded else None

    def note(self, text: str) -> None:
        """Count a line that was encoded, cut perhaps."""
        self._lines += 1
        if not self._limit.may_exceed(text):
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
        lines = f"{self._cut_lines:,} of {counted(self._lines, 'line')}"
        verb = "was" if self._cut_lines == 1 else "were"
        tokens = counted(self._cut_tokens, "token")
        return f"{lines} {verb} cut at {self._limit.most:,} tokens, by {tokens} in all; --long mean cuts nothing"

    def _count(self) -> None:
        for tokens in self._limit.exceeded(self._waiting).values():
            self._cut_lines += 1
            self._cut_tokens += tokens - self._limit.most
        self._waiting, self._characters = [], 0
