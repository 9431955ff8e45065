"""How many tokens texts have, beside what an encoder takes: asked before they are encoded, and cut or refused."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastattn.encoders.encoder import Encoder


class TokenLimit:
    """Compares the tokens of texts with what an encoder takes.

    options  of ``Encoder.encode``; those that choose a prompt count
    """

    def __init__(self, encoder: "Encoder", options: Mapping[str, Any]):
        self.most = encoder.max_length
        self._prompt = {name: options[name] for name in ("task", "prompt_name", "prompt") if name in options}
        self._encoder = encoder
        # A token is a byte of the text at least, but where a normalizer writes one character out as several.
        self._bytes = self.most - int(encoder.count_tokens("", **self._prompt))

    def may_exceed(self, text: str) -> bool:
        """Whether the text has so many bytes that its tokens have to be counted."""
        return len(text.encode()) > self._bytes

    def exceeded(self, texts: Sequence[str]) -> dict[int, int]:
        """Number of a text -> its tokens, of those that have too many."""
        asked = [number for number, text in enumerate(texts) if self.may_exceed(text)]
        counts = self._encoder.count_tokens([texts[number] for number in asked], **self._prompt)
        return {number: count for number, count in zip(asked, counts.tolist(), strict=True) if count > self.most}

    def refusal(self, tokens: int) -> str:
        """Why a text with so many is refused."""
        return f"{tokens:,} tokens, the model takes {self.most:,}"
