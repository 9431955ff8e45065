"""Greedy steps without Python between kernels: one step is recorded, and runs again until a sentence ends.

A recording is made for a number of rows, of which some may repeat the first, and for the cache's present tables. What
changes from step to step, compiled code keeps up (``kernels/steps.py``). Afterwards beams and cache are as though each
step had been made by itself.
"""

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fastattn.arguments.steps import ENOUGH, FAULT, LIVE, STOP, USED, StepRows, SubsetRows
from fastattn.decoding.candidates import CandidateRows, Candidates
from fastattn.decoding.jobs import Beams
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.decoder import Decoder

# Seconds of steps between two looks at the queue, at interrupts and at what has ended.
AT_ONCE = 0.003
FIRST_GUESS = 2e-11  # of these seconds, for a weight and a row
MOST_TOKENS = 1024  # of all rows together, at once
PROGRAMS = 16  # kept, of different numbers of rows
COLUMNS = 512  # columns of subsets that there is room for are a multiple of this


class RecordedSteps:
    """The steps of a batch of greedy search.

    scored  whether log-probabilities are wanted
    """

    def __init__(self, model: Decoder, cache: KeyValueCache, choice: Candidates, scored: bool, recorder: Any):
        self.model, self.cache, self.choice, self.scored, self.recorder = model, cache, choice, scored, recorder
        self._rows = StepRows(0, 0)
        self._programs: dict[tuple[int, int, bool], Any] = {}
        self._tables: tuple[np.ndarray, ...] = ()
        self._columns = 0
        self._seconds: dict[int, float] = {}  # of a step, by the number of rows
        self._ends_E = np.array(choice.end_ids, np.int32)

    @property
    def size(self) -> int:
        """About its bytes."""
        return self.recorder.size

    def takes(self, steps_B: np.ndarray) -> bool:
        """Whether sentences at these steps have one recording: all may end by now, or none."""
        early_B = steps_B < self.choice.options.min_decoding_length
        return bool(early_B.all() or not early_B.any())

    def run(self, beams: Beams, linear: Any, most: int | None = None) -> tuple[Beams, np.ndarray, np.ndarray] | None:
        """One step or several: (beams before the last step of each, scores_B1 and ids_B1 that it gave).

        linear  that of the sentences' OutputSubsets; None: they choose from all outputs
        most    steps; None: as many as fit the time
        Stops where a sentence ends, and before the first step at which one may. None if the step cannot be recorded.
        Raises CheckpointError as ``Output.top_k``.
        """
        B, first = len(beams.steps_B), int(beams.positions_B.max())
        R, cache = padded(B), self.cache
        steps = most or self._steps_at_once(beams, R)
        fresh_F = cache.take_rows(B * steps, first + steps - 1)
        columns = 0 if linear is None else int(beams.subsets_B3[:, 1].max())
        program = self._program(R, columns, linear, self._is_early(beams))
        if program is None:
            cache.target.give_back(fresh_F)
            return None
        rows = self._load(beams, fresh_F)
        start = perf_counter()
        program.run(steps, rows.counts[STOP:])
        used = int(rows.counts[USED])
        cache.target.give_back(fresh_F[used:])
        self._seconds[R] = (perf_counter() - start) * B / used
        self.model.output.check(not rows.counts[FAULT])
        ran = replace(beams, steps_B=rows.steps_R[:B].copy(), positions_B=rows.positions_R[:B].astype(np.int64))
        return ran, rows.scores_R[:B, None].copy(), rows.chosen_R[:B, None].copy()

    def _steps_at_once(self, beams: Beams, R: int) -> int:
        """How many steps fit the time, the sentences' limits and, if that is more than one, the cache as it is."""
        sizes, B = self.model.sizes, len(beams.steps_B)
        seconds = self._seconds.get(R, FIRST_GUESS * sizes.layer_weights * R)
        room = self.cache.histories_RS.shape[1] - int(beams.positions_B.max())
        longest = int((beams.limits_B - beams.steps_B).max())
        if self._is_early(beams):
            longest = min(longest, self.choice.options.min_decoding_length - int(beams.steps_B.max()))
        return max(1, min(int(AT_ONCE / seconds), MOST_TOKENS // B, self.cache.target.free // B, room, longest))

    def _is_early(self, beams: Beams) -> bool:
        return int(beams.steps_B[0]) < self.choice.options.min_decoding_length

    def _load(self, beams: Beams, fresh_F: np.ndarray) -> StepRows:
        """Take over where the sentences are. ``take_tokens`` moves each on, at the beginning of a step."""
        rows, B = self._rows, len(beams.steps_B)
        slots_B = beams.slots_BR[:, 0]
        rows.slots_R[:B], rows.steps_R[:B], rows.limits_R[:B] = slots_B, beams.steps_B - 1, beams.limits_B
        rows.positions_R[:B] = beams.positions_B - 1
        rows.chosen_R[:B], rows.scores_R[:B] = beams.tokens_BR[:, 0], beams.scores_BR[:, 0]
        rows.memory_slots_R[:B], rows.memory_lengths_R[:B] = self.cache.memory_slots(slots_B)
        rows.subsets_R4[:B, 1:] = beams.subsets_B3
        rows.is_over_R[:B] = 0
        for array in rows.shared:
            array[B:] = array[0]
        rows.fresh_F[: len(fresh_F)] = fresh_F
        rows.counts[:] = 0
        rows.counts[LIVE], rows.counts[ENOUGH] = B, 1
        return rows

    # recording

    def _program(self, R: int, columns: int, linear: Any, is_early: bool) -> Any:
        """The program for R rows; None if there can be none."""
        tables = self.cache.tables
        if (
            R > len(self._rows)
            or columns > self._columns
            or any(a is not b for a, b in zip(tables, self._tables, strict=False))
            or not self._tables
        ):
            self._programs.clear()
            self._tables = tables
            self._columns = max(self._columns, -(-columns // COLUMNS) * COLUMNS)
            if R > len(self._rows):
                self._rows = StepRows(padded(2 * R), max(padded(2 * R), MOST_TOKENS))
        key = R, self.model.ops.current_threads(), is_early
        program = self._programs.pop(key, None)
        if program is None:
            program = self._record(self._rows.first(R), linear, is_early)
            while len(self._programs) >= PROGRAMS:
                del self._programs[next(iter(self._programs))]
        if program is not None:
            self._programs[key] = program  # the last to be dropped
        return program

    def _record(self, rows: StepRows, linear: Any, is_early: bool) -> Any:
        model, ops = self.model, self.model.ops
        steps = 1 if is_early else max(1, self.choice.options.min_decoding_length)
        edits = self.choice.edits(CandidateRows(np.full(len(rows), steps)))
        edits = model.output.capped(edits)
        outputs = model.output.projection if linear is None else SubsetRows(linear, rows.subsets_R4, self._columns)
        normalized = self.scored or edits.suppressed_RJ is not None
        rows.tokens_R[:] = 0
        rows.positions_R[:] = self._last_position()

        def step() -> None:
            ops.take_tokens(rows, *self.cache.written_tables)
            hidden_RD = model.step_of(self.cache, rows)
            ops.pick_tokens(hidden_RD, outputs, edits, normalized, self._ends_E, rows)

        return self.recorder.record(step)

    def _last_position(self) -> int:
        """The last that the cache's tables and the model have room for."""
        room, limit = self.cache.histories_RS.shape[1], self.model.sizes.max_positions
        return (min(room, limit) if limit else room) - 1


def padded(rows: int) -> int:
    """The number of rows of the recording for so many: few numbers, near those that are whole tiles."""
    if rows <= 8:
        return rows if rows <= 4 else 6 if rows <= 6 else 8
    grain = 8 if rows <= 128 else 16
    return -(-rows // grain) * grain
