"""Texts with more tokens than an encoder takes: found, refused, or encoded in windows, whose vectors are averaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastattn.errors import InputError

if TYPE_CHECKING:  # with the tokenizers library, which an import of an Encoder does without
    from fastattn.text.huggingface import HuggingFaceTokenizer

LONG = ("truncate", "mean", "error")


class TextTooLongError(InputError):
    """A text, with its ``number`` among those given, that is longer than the encoder takes."""

    def __init__(self, number: int, tokens: int, limit: int):
        super().__init__(
            f"text number {number} has {tokens:,} tokens, the model takes {limit:,}; "
            "long='mean' encodes it in parts, long='truncate' cuts it"
        )
        self.number = number


@dataclass(frozen=True)
class Windows:
    """The ids of texts in windows of what the encoder takes.

    ids_W      of each window, its special tokens and the prompt's included
    starts_B1  where each text's windows start, and where the last one's end
    tokens_W   how many tokens of the text's own, without the prompt's, are in each
    """

    ids_W: list[np.ndarray]
    starts_B1: np.ndarray
    tokens_W: np.ndarray

    def means(self, vectors_WE: np.ndarray) -> np.ndarray:
        """The mean of the vectors of each text's windows, each weighted by its tokens, float32 [B, E]."""
        means_BE = vectors_WE[self.starts_B1[:-1]]
        for b in np.flatnonzero(np.diff(self.starts_B1) > 1):
            own = slice(self.starts_B1[b], self.starts_B1[b + 1])
            tokens_W1 = self.tokens_W[own, None].astype(np.float64)
            means_BE[b] = (tokens_W1 * vectors_WE[own]).sum(axis=0) / tokens_W1.sum()
        return means_BE


def split_long(
    tokenizer: "HuggingFaceTokenizer", texts: Sequence[str], ids_B: Sequence[np.ndarray], prompt: str, threads: int
) -> Windows | None:
    """The texts in windows, or None where none is too long.

    ids_B   what the tokenizer makes of each text, cut
    prompt  what each text begins with; it begins each window too: those of its ids that the text's ids begin with
    Raises InputError where the prompt leaves no room for a text.
    """
    whole = _whole_ids(tokenizer, texts, ids_B, threads)
    if not whole:
        return None
    prompt_ids = tokenizer.encode_whole([prompt])[0] if prompt else np.zeros(0, np.int32)
    windows_B = [
        _windows(tokenizer, whole[b], prompt_ids) if b in whole else [(ids_B[b], 0)] for b in range(len(texts))
    ]
    windows_W = [window for windows in windows_B for window in windows]
    starts_B1 = np.cumsum([0, *map(len, windows_B)])
    return Windows([ids for ids, _ in windows_W], starts_B1, np.array([tokens for _, tokens in windows_W]))


def refuse_long(
    tokenizer: "HuggingFaceTokenizer", texts: Sequence[str], ids_B: Sequence[np.ndarray], first: int, threads: int
) -> None:
    """Raise TextTooLongError for the first text that is too long; ``first`` is the number of the first of them."""
    for b, ids in _whole_ids(tokenizer, texts, ids_B, threads).items():
        raise TextTooLongError(first + b, len(ids) + tokenizer.max_length - tokenizer.room, tokenizer.max_length)


def _whole_ids(
    tokenizer: "HuggingFaceTokenizer", texts: Sequence[str], ids_B: Sequence[np.ndarray], threads: int
) -> dict[int, np.ndarray]:
    """All ids, without special tokens, of the texts that were cut, by their number."""
    full = [b for b, ids in enumerate(ids_B) if len(ids) >= tokenizer.max_length]  # cut, or of just this length
    whole = zip(full, tokenizer.encode_whole([texts[b] for b in full], threads))
    return {b: ids for b, ids in whole if len(ids) > tokenizer.room}


def _windows(
    tokenizer: "HuggingFaceTokenizer", ids: np.ndarray, prompt_ids: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """(ids, how many are the text's own) of each window of a text, in order, as few as there can be."""
    before, after = tokenizer.special_ids
    shared = min(len(ids), len(prompt_ids))
    # A tokenizer may join the prompt's end and the text's beginning in one token.
    prompt_length = int(np.argmin([*(ids[:shared] == prompt_ids[:shared]), False]))
    room = tokenizer.room - prompt_length
    if room < 1:
        raise InputError(
            f"a prompt and special tokens of {tokenizer.max_length - room:,} leave no room for the text: "
            f"the model takes {tokenizer.max_length:,}"
        )
    parts = [ids[start : start + room] for start in range(prompt_length, len(ids), room)]
    return [(np.concatenate([before, ids[:prompt_length], part, after]), len(part)) for part in parts]
