"""Recordings of decoder steps: one for each number of rows, of which surplus ones repeat the first."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from fastattn.arguments.steps import StepRows
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder

MOST_TOKENS = 1024  # of all rows together, in one run
MOST_RECORDINGS = 16  # of one Recordings
# With more rows, Python's part of a step or a chunk is small, and a search that ends row by row records more than it
# repeats.
MOST_ROWS = 64
_NO_STOP = np.zeros(1, np.int64)


def padded_rows(rows: int) -> int:
    """How many rows a recording for at least ``rows`` rows has: one of few numbers, mostly multiples of a tile."""
    if rows <= 8:
        return rows if rows <= 4 else 6 if rows <= 6 else 8
    grain = 8 if rows <= 128 else 16
    return -(-rows // grain) * grain


class Recordings:
    """Recordings for the cache's present tables, the least recently used of which is dropped first."""

    def __init__(self, model: Decoder, cache: KeyValueCache, recorder: Any):
        self.model, self.cache, self.recorder = model, cache, recorder
        self._rows = StepRows(0, 0)  # arrays of all recordings
        self._recordings: dict[tuple, Any] = {}
        self._tables: tuple[np.ndarray, ...] = ()  # of the cache, for which the recordings are

    @property
    def size(self) -> int:
        """About how many bytes the recordings take."""
        return self.recorder.size if self._recordings else 0

    def take(self, R: int, key: tuple, record: Callable[[StepRows], Any]) -> Any:
        """The recording for R rows, made by ``record`` where there is none; None if the step cannot be recorded.

        key  what else it depends on, besides the number of threads
        """
        self.forget_replaced()
        if R > len(self._rows):
            self._recordings.clear()
            self._rows = StepRows(padded_rows(2 * R), max(padded_rows(2 * R), MOST_TOKENS))
        self._tables = self.cache.tables
        key = R, self.model.ops.current_threads(), *key
        recording = self._recordings.pop(key, None)
        if recording is None:
            recording = record(self._rows.first(R))
            while len(self._recordings) >= MOST_RECORDINGS:
                del self._recordings[next(iter(self._recordings))]
        if recording is not None:
            self._recordings[key] = recording  # the last in the dict, which is dropped last
        return recording

    def forget_replaced(self) -> None:
        """Drop all recordings, and with them the memory of their tables, where the cache has replaced a table."""
        if not all(old is table for old, table in zip(self._tables, self.cache.tables)):
            self._recordings.clear()
            self._tables = ()

    def last_positions(self, rows: StepRows) -> None:
        """Set the rows' inputs to the greatest positions that a run of their recording may have."""
        room, limit = self.cache.histories_RS.shape[1], self.model.sizes.max_positions
        rows.tokens_R[:], rows.positions_R[:] = 0, min(room, limit or room) - 1


class RecordedLayers(Recordings):
    """The decoder's layers without Python between their kernels, for steps that Python searches on, and for prompts."""

    def __init__(self, model: Decoder, cache: KeyValueCache, recorder: Any):
        super().__init__(model, cache, recorder)
        # Numbers of rows of the last two calls, which may be of a prompt's chunk and of other sentences' step.
        self._is_usable, self._recent = model.sizes.records, deque[int](maxlen=2)

    def step(self, slots_R: np.ndarray, tokens_R: np.ndarray, positions_R: np.ndarray) -> np.ndarray | None:
        """hidden_RD of a token for each of the slots, in which a slot repeats for several tokens, in their order.

        The cache gets the tokens. None, and no step, if that is impossible. A number of rows is recorded when it comes
        again within three calls, since most searches end row by row.
        """
        B = len(slots_R)
        R = padded_rows(B)
        has_come = R in self._recent
        self._recent.append(R)
        if not (self._is_usable and self.recorder.is_usable and has_come and R <= MOST_ROWS and positions_R.min()):
            return None
        rows_R = self.cache.take_rows(B, int(positions_R.max()))
        program = self.take(R, (), self._record)
        if program is None:
            self._is_usable = False
            self.cache.target.give_back(rows_R)
            return None
        self.cache.enter(rows_R, slots_R, positions_R, tokens_R)
        rows = self._rows
        rows.tokens_R[:B], rows.positions_R[:B], rows.rows_R[:B] = tokens_R, positions_R, rows_R
        rows.previous_R[:B], rows.lengths_R[:B] = self.cache.previous_rows(slots_R, positions_R), positions_R + 1
        rows.slots_R[:B] = slots_R
        rows.memory_slots_R[:B], rows.memory_lengths_R[:B] = self.cache.memory_slots(slots_R)
        for array in (*rows.inputs, rows.slots_R, rows.memory_slots_R, rows.memory_lengths_R):
            array[B:R] = array[0]
        program.run(1, _NO_STOP)
        return program.result[:B].copy()

    def _record(self, rows: StepRows) -> Any:
        self.last_positions(rows)
        program = self.recorder.record(lambda: self.model.recordable_step(self.cache, rows))
        # What is copied after a run lies on this host.
        return program if program is not None and isinstance(program.result, np.ndarray) else None
