"""Blocks of queries and keys that a mask hides, shows in part or shows whole, so that kernels can skip work."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.arguments.attention import ALL, NONE, SOME, mask_states
from fastattn.array_attention.arguments import FAR, is_integer
from fastattn.errors import InputError, described
from fastattn.ops import backend

MAX_SIDE = 1 << 20  # queries or keys of a block
MAX_BLOCKS = 1 << 30


class BlockMask:
    """Which blocks of queries and keys are seen; attention skips hidden blocks (FlexAttention, Dong 2024).

    states_BHTS  uint8 [B or 1, H or 1, blocks of queries, blocks of keys]. 0: no key of the block is seen; 2: all keys
                 are; 1: ``mask_mod`` or ``mask`` says which keys are; without either, all keys are
    queries, keys  how many queries and keys there are
    block        how many queries and keys a block has
    """

    mask: np.ndarray | None  # the argument of ``from_mask``, if blocks have state 1; True: seen

    def __init__(
        self,
        states: np.ndarray,
        queries: int,
        keys: int,
        block: tuple[int, int] = (128, 128),
        mask_mod: Callable | None = None,
    ):
        self.queries, self.keys = _checked_size("queries", queries), _checked_size("keys", keys)
        self.block = _checked_sides(block)
        expected = self._block_counts()
        try:
            states = np.asarray(states)
        except ValueError:  # lists of different lengths
            raise InputError(f"states: expected blocks {expected}, got nested lists") from None
        if states.ndim > 4 or states.shape[-2:] != expected:
            raise InputError(f"states: expected blocks {expected} in the last axes, got shape {states.shape}")
        if states.dtype.kind not in "biu" or (
            states.size and not NONE <= int(states.min()) <= int(states.max()) <= ALL
        ):
            raise InputError("states: expected 0 (none are seen), 1 (some are) or 2 (all are)")
        self.states_BHTS = np.ascontiguousarray(states.reshape((1,) * (4 - states.ndim) + states.shape), np.uint8)
        self.mask_mod, self.mask = mask_mod, None

    @classmethod
    def from_mask(cls, mask: np.ndarray, block: tuple[int, int] | int = 128) -> "BlockMask":
        """The blocks of a boolean array that broadcasts to (B, H, T, S); True is seen. State 1 keeps the array."""
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or not 2 <= mask.ndim <= 4:
            raise InputError("mask: expected a boolean array (..., queries, keys)")
        T, S = mask.shape[-2:]
        block_mask = cls(mask_states(mask, _checked_sides(block)), T, S, _checked_sides(block))
        block_mask.mask = mask if (block_mask.states_BHTS == SOME).any() else None
        return block_mask

    def __repr__(self) -> str:
        share = float((self.states_BHTS != NONE).mean()) if self.states_BHTS.size else 0.0
        return f"BlockMask({self.queries} x {self.keys}, blocks of {self.block[0]} x {self.block[1]}, {share:.0%} kept)"

    @classmethod
    def from_function(
        cls,
        mask_mod: Callable,
        B: int,
        H: int,
        queries: int,
        keys: int,
        block: tuple[int, int] | int = 128,
        device: str = "cpu",
    ) -> "BlockMask":
        """The blocks of ``mask_mod(b, h, t, s)`` for B sentences and H heads; B or H is 1 if b or h is ignored.

        This calls ``mask_mod`` for every query and key, unless ``mask_mod`` only compares positions; attention calls it
        only in blocks of state 1.
        """
        B, H = _checked_size("B", B), _checked_size("H", H)
        queries, keys, sides = _checked_size("queries", queries), _checked_size("keys", keys), _checked_sides(block)
        if math.prod(max(n, 1) for n in (B, H, -(-queries // sides[0]), -(-keys // sides[1]))) > MAX_BLOCKS:
            raise InputError(f"block: expected one so large that there are at most {MAX_BLOCKS} blocks, got {sides}")
        ops = backend(device)
        states = ops.block_states(ops.compile_function(mask_mod, "mask_mod"), (B, H, queries, keys), sides)
        return cls(states, queries, keys, sides, mask_mod)

    def _block_counts(self) -> tuple[int, int]:
        """The numbers of blocks of queries and of keys."""
        return -(-self.queries // self.block[0]), -(-self.keys // self.block[1])

    def check_fits(self, B: int, H: int, queries: int, keys: int) -> None:
        """InputError unless the mask fits arrays of this shape."""
        if self.states_BHTS.shape[2:] != self._block_counts():
            raise InputError("block_mask: expected states, queries, keys and block as they were made, got others")
        b, h = self.states_BHTS.shape[:2]
        if (self.queries, self.keys) != (queries, keys) or b not in (1, B) or h not in (1, H):
            expected = f"batch {B}, {H} heads, {queries} queries and {keys} keys"
            got = f"batch {b}, {h} heads, {self.queries} queries and {self.keys} keys"
            raise InputError(f"block_mask: expected one for {expected}, got one for {got}")


def _checked_sides(block: Any) -> tuple[int, int]:
    sides = tuple(block) if isinstance(block, (tuple, list)) else (block, block)
    if len(sides) != 2 or not all(is_integer(side) and 1 <= side <= MAX_SIDE for side in sides):
        raise InputError(f"block: expected (queries, keys) from 1 to {MAX_SIDE}, got {described(block)}")
    return int(sides[0]), int(sides[1])


def _checked_size(name: str, size: Any) -> int:
    if not is_integer(size) or not 0 <= size <= FAR:
        raise InputError(f"{name}: expected a number from 0 to 2**60, got {described(size)}")
    return int(size)
