"""One short sequence through a stack without Python between its kernels: see ``fastattn.runtime.recording``."""

import threading
from typing import Any, NamedTuple

import numpy as np

from fastattn.layers.attention_inputs import WholeRows
from fastattn.models.stack import AttentionStack

# Longer sequences are not recorded: Python takes 0.3 ms of a pass through six layers, 64 rows of width 384 take 2 ms.
MOST_ROWS = 64
MOST_PASSES = 128  # of all lengths and numbers of threads: some 25 MB for 24 layers of width 1024
_NO_STOP = np.zeros(1, np.int64)


class _Pass(NamedTuple):
    """A recorded pass of sequences of one length: the program's input and result stay in place."""

    program: Any
    input_ND: np.ndarray

    def run(self, x_ND: np.ndarray) -> np.ndarray:
        np.copyto(self.input_ND, x_ND)
        self.program.run(1, _NO_STOP)
        return self.program.result.copy()


class RecordedStack:
    """A stack for one sequence of at most MOST_ROWS rows that sees all of itself; only the CPU's passes are recorded.

    A length is recorded when its second sequence comes: by then the stack has made all tables for the length. Programs
    share an arena, so one thread at a time runs them, and others run the layers as they are.
    """

    def __init__(self, stack: AttentionStack, recorder: Any):
        self._stack, self._recorder, self._lock = stack, recorder, threading.Lock()
        self._passes: dict[tuple[int, int, bool], _Pass | None] = {}  # None: the layers cannot be recorded
        self._seen: set[tuple[int, int, bool]] = set()

    def __call__(self, inputs_N: np.ndarray, rows: WholeRows) -> np.ndarray:
        """The stack's last hidden states, with the bits that the stack itself gives."""
        x_ND = self._stack.embed(inputs_N, rows)
        is_recordable = isinstance(x_ND, np.ndarray) and self._recorder.is_usable
        if not is_recordable or not self._lock.acquire(blocking=False):
            return self._stack.transform(x_ND, rows)
        try:
            key = len(x_ND), self._stack.ops.current_threads(), rows.first_only
            if recorded := self._passes.get(key):
                return recorded.run(x_ND)
            y_ND = self._stack.transform(x_ND, rows)
            if key in self._seen and key not in self._passes and len(self._passes) < MOST_PASSES:
                self._passes[key] = self._record(x_ND, rows)
            self._seen.add(key)
            return y_ND
        finally:
            self._lock.release()

    def _record(self, x_ND: np.ndarray, rows: WholeRows) -> _Pass | None:
        """The recorded pass; None where a layer computes from what a kernel wrote, so that the pass cannot be recorded.

        Such a pass may give the right rows for x, which memory may still hold, but not for other rows.
        """
        input_ND = x_ND.copy()
        program = self._recorder.record(lambda: self._stack.transform(input_ND, rows))
        if program is None:
            return None
        recorded, other_ND = _Pass(program, input_ND), -x_ND
        return recorded if np.array_equal(recorded.run(other_ND), self._stack.transform(other_ND, rows)) else None
