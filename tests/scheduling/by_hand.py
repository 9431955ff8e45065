"""A scheduler without threads, whose slots advance when a test says so; and calls that may never end."""

import threading

from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.state import WorkerSlot


class SchedulerByHand(Scheduler):
    """Starts no thread: ``tick`` is a step of every slot. ``failures`` are the errors of steps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.failures: list[Exception] = []

    def _isolate(self, slot: WorkerSlot, error: Exception) -> None:
        self.failures.append(error)
        super()._isolate(slot, error)

    def _start_thread(self, slot: WorkerSlot) -> bool:
        self._state.offer(slot)
        return True

    def tick(self) -> bool:
        """Whether there was anything to do."""
        for slot in list(self._state.slots):
            slot.is_computing = True
            if not self._state.free_if_idle(slot):
                self._step(slot)
            slot.is_computing = False
        return bool(self._state.slots)

    def finish_all(self) -> None:
        while self.tick():
            pass

    @property
    def is_at_rest(self) -> bool:
        state = self._state
        return state.is_free and not (state.requests or state.weight or state.queue.newcomers())


def ended(call, seconds=20.0):
    """What the call returns or raises, made in a thread of its own: one that never ends shall not hang the suite."""
    results = []

    def work():
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  for the test to see
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, "it never ended"
    return results[0]
