"""A scheduler without threads, whose seats advance when a test says so."""

from fastattn.scheduling.scheduler import Scheduler
from fastattn.scheduling.seat import Seat


class SchedulerByHand(Scheduler):
    """Starts no thread: ``tick`` is a step of every seat. ``failures`` are the errors of steps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.failures: list[Exception] = []

    def _isolate(self, seat: Seat, error: Exception) -> None:
        self.failures.append(error)
        super()._isolate(seat, error)

    def _start_thread(self, seat: Seat) -> bool:
        self._ledger.offer(seat)
        return True

    def tick(self) -> bool:
        """Whether there was anything to do."""
        for seat in list(self._ledger.seats):
            seat.is_computing = True
            if not self._ledger.leave_if_idle(seat):
                self._step(seat)
            seat.is_computing = False
        return bool(self._ledger.seats)

    def finish_all(self) -> None:
        while self.tick():
            pass

    @property
    def is_at_rest(self) -> bool:
        ledger = self._ledger
        return ledger.is_free and not (ledger.requests or ledger.weight or ledger.queue.newcomers())
