"""Blocks of queries and keys that a mask leaves empty, in part or whole: what a kernel need not compute or ask."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.errors import InputError
from fastattn.functions import compile_function
from fastattn.kernels.attention.block_states import block_states

NONE, SOME, ALL = 0, 1, 2
MAX_BLOCK = 1 << 20  # queries or keys
MAX_BLOCKS = 1 << 30


class BlockMask:
    """Which blocks of queries and keys are seen; attention skips those that are not (FlexAttention, Dong 2024).

    states_BHTS  uint8 [B or 1, H or 1, blocks of queries, blocks of keys]: 0 none of a block's keys are seen, 2 all
                 are, 1 some are: there ``mask_mod`` says which, and without one all
    queries, keys  the numbers of queries and keys
    block        (queries, keys) of a block
    """

    def __init__(
        self,
        states: np.ndarray,
        queries: int,
        keys: int,
        block: tuple[int, int] = (128, 128),
        mask_mod: Callable | None = None,
    ):
        self.block = _block(block)
        expected = -(-queries // self.block[0]), -(-keys // self.block[1])
        states = np.asarray(states)
        if states.ndim > 4 or states.shape[-2:] != expected:
            raise InputError(f"states: expected blocks {expected} in the last axes, got shape {states.shape}")
        if states.dtype.kind not in "biu" or (
            states.size and not NONE <= int(states.min()) <= int(states.max()) <= ALL
        ):
            raise InputError("states: expected 0 (none are seen), 1 (some are) or 2 (all are)")
        self.states_BHTS = np.ascontiguousarray(states.reshape((1,) * (4 - states.ndim) + states.shape), np.uint8)
        self.queries, self.keys, self.mask_mod = queries, keys, mask_mod
        self.mask: np.ndarray | None = None

    @classmethod
    def from_mask(cls, mask: np.ndarray, block: tuple[int, int] | int = 128) -> "BlockMask":
        """Of a boolean array that broadcasts to (B, H, T, S), True is seen; it is kept for the blocks seen in part."""
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or not 2 <= mask.ndim <= 4:
            raise InputError("mask: expected a boolean array (..., queries, keys)")
        T, S = mask.shape[-2:]
        made = cls(_states(mask, _block(block)), T, S, _block(block))
        made.mask = mask if (made.states_BHTS == SOME).any() else None
        return made

    def __repr__(self) -> str:
        kept = float((self.states_BHTS != NONE).mean()) if self.states_BHTS.size else 0.0
        return f"BlockMask({self.queries} x {self.keys}, blocks of {self.block[0]} x {self.block[1]}, {kept:.0%} kept)"

    @classmethod
    def from_function(
        cls, mask_mod: Callable, B: int, H: int, queries: int, keys: int, block: tuple[int, int] | int = 128
    ) -> "BlockMask":
        """Of ``mask_mod(b, h, t, s)`` for B sentences and H heads; B or H of 1 if it does not depend on them.

        It is asked about every query and key, unless it is made of comparisons of positions alone; after that only in
        blocks that are seen in part.
        """
        sizes = {"B": B, "H": H, "queries": queries, "keys": keys}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
                raise InputError(f"{name}: expected a number from 0 on, got {size!r}")
        sides = _block(block)
        if B * H * -(-queries // sides[0]) * max(-(-keys // sides[1]), 1) > MAX_BLOCKS:
            raise InputError(f"block: expected one so large that there are at most {MAX_BLOCKS} blocks, got {block!r}")
        states = block_states(compile_function(mask_mod, "mask_mod"), (B, H, queries, keys), sides)
        return cls(states, queries, keys, sides, mask_mod)

    @property
    def table(self) -> tuple:
        """As the kernel takes it: states; steps of batches and heads, queries and keys of a block, blocks of keys."""
        b, h, rows, columns = self.states_BHTS.shape
        steps = rows * columns * h if b > 1 else 0, rows * columns if h > 1 else 0
        return (self.states_BHTS.reshape(-1), *steps, *self.block, columns)

    def seen(self, b: int, h: int, rows_R: np.ndarray) -> np.ndarray:
        """Which keys some queries see, by blocks alone, bool [R, keys]."""
        states_BHTS = self.states_BHTS
        states_TS = states_BHTS[b if len(states_BHTS) > 1 else 0, h if states_BHTS.shape[1] > 1 else 0]
        return (states_TS[rows_R // self.block[0]] != NONE).repeat(self.block[1], axis=1)[:, : self.keys]

    def fit(self, B: int, H: int, queries: int, keys: int) -> None:
        """InputError unless it is one for arrays of this shape."""
        b, h = self.states_BHTS.shape[:2]
        if (self.queries, self.keys) != (queries, keys) or b not in (1, B) or h not in (1, H):
            raise InputError(
                f"block_mask: expected one for batch {B}, {H} heads, {queries} queries and {keys} keys, got one for "
                f"batch {b}, {h} heads, {self.queries} queries and {self.keys} keys"
            )


def _block(block: Any) -> tuple[int, int]:
    sides = (block, block) if isinstance(block, (int, np.integer)) else tuple(block)
    if len(sides) != 2 or not all(isinstance(s, (int, np.integer)) and 1 <= s <= MAX_BLOCK for s in sides):
        raise InputError(f"block: expected (queries, keys) from 1 to {MAX_BLOCK}, got {block!r}")
    return int(sides[0]), int(sides[1])


def _states(mask: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    """The states of the blocks of a boolean array."""
    counts, sizes = mask.astype(np.int64), np.ones(mask.shape[-2:], np.int64)
    for axis, size in zip((-2, -1), block):
        firsts = np.arange(0, mask.shape[axis], size)
        counts, sizes = np.add.reduceat(counts, firsts, axis), np.add.reduceat(sizes, firsts, axis)
    return np.where(counts == 0, NONE, np.where(counts == sizes, ALL, SOME)).astype(np.uint8)
