"""The special tokens that a tokenizer.json puts around a text, and how much of one fits between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer, models

from fastattn.errors import TokenizerError
from fastattn.system.records import lazy

GREATEST = 2**31 - 1  # an id, or a token type
T = TypeVar("T", np.ndarray, list[int])


@dataclass(frozen=True)
class Layout:
    """Special tokens around texts: (id, token type) before each text and after the last; a type for each text's ids."""

    special: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @lazy
    def count(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.special))

    @lazy
    def ids(self) -> tuple[np.ndarray, ...]:
        """The special ids before each text and after the last, int32."""
        return tuple(np.array([index for index, _ in part], dtype=np.int32) for part in self.special)

    def join(self, ids: Sequence[np.ndarray]) -> np.ndarray:
        """The ids of texts with the special ones around them, int32."""
        parts = [self.ids[0]]
        for text, after in zip(ids, self.ids[1:]):
            parts += [text, after]
        return np.concatenate(parts, dtype=np.int32)

    def join_types(self, lengths: Sequence[int]) -> np.ndarray:
        """The token types of ``join`` for texts of so many ids, int32."""
        kinds, counts = [kind for _, kind in self.special[0]], [1] * len(self.special[0])
        for length, of_text, after in zip(lengths, self.types, self.special[1:]):
            kinds += [of_text, *(kind for _, kind in after)]
            counts += [length, *[1] * len(after)]
        return np.repeat(np.array(kinds, dtype=np.int32), counts)


def read_layout(tokenizer: Tokenizer, texts: int) -> Layout:
    """The layout of one text or of a pair; TokenizerError unless the post-processor has each text once, in order.

    The post-processor is asked, by a tokenizer that knows a single word.
    """
    probe = Tokenizer(models.WordLevel({"x": 0}, unk_token="x"))
    if tokenizer.post_processor is not None:
        probe.post_processor = tokenizer.post_processor
    encoding = probe.encode("x") if texts == 1 else probe.encode("x", "x")
    if max([*encoding.ids, *encoding.type_ids], default=0) > GREATEST:
        raise TokenizerError(f"tokenizer.json: the post-processor should give numbers of at most {GREATEST}")
    special: list[list[tuple[int, int]]] = [[]]
    types: list[int] = []
    positions = zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, encoding.special_tokens_mask)
    for index, kind, text, is_special in positions:
        if is_special:
            special[-1].append((index, kind))
        elif text == len(types):
            types.append(kind)
            special.append([])
        else:
            types = []
            break
    if len(types) != texts:
        raise TokenizerError("tokenizer.json: the post-processor should have each text once, in order")
    return Layout(tuple(map(tuple, special)), tuple(types))


def kept(ids: T, length: int, side: str) -> T:
    """The ``length`` ids that are left where the others are cut from ``side``."""
    return ids[:length] if side == "right" else ids[max(0, len(ids) - length) :]


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many ids of two texts are kept where there is room for ``room``: the longer is cut first, then both alike."""
    if first + second <= room:
        return first, second
    least = min(first, second, room // 2)
    return (least, room - least) if first <= second else (room - least, least)
