"""The speed of many cores, from what one core was seen to do: the interpreter's lock and memory's bandwidth."""

from dataclasses import dataclass

from fastattn.processes.choice import rate_under_lock


@dataclass(frozen=True)
class Work:
    """What a sentence takes.

    seconds  of one core
    held     of these, seconds with the interpreter's lock held
    bytes    read from memory, if the caches keep nothing of one step for the next
    """

    seconds: float
    held: float
    bytes: float

    @property
    def share(self) -> float:
        return self.held / self.seconds

    def rate(self, threads: int) -> float:
        """Sentences a second of threads, each with a core, that share one lock."""
        return rate_under_lock(self.seconds, self.held, threads)

    def waiting(self, threads: int) -> float:
        """Seconds that each of these threads waits for the lock, for a sentence."""
        return threads / self.rate(threads) - self.seconds


def predicted(work: Work, cores: int, processes: int = 1, bandwidth: float = float("inf"), sent: float = 0.0) -> float:
    """Sentences a second of ``cores``, split evenly among processes with a lock each.

    bandwidth  bytes a second that all cores together read from memory
    sent       seconds that the calling process holds its own lock for a sentence that another computes
    """
    fewer, more = divmod(cores, processes)  # threads of a process, and how many processes have one more
    own = more * work.rate(fewer + 1) + (processes - more) * work.rate(fewer)
    passed_on = 1 / sent if sent and processes > 1 else float("inf")
    from_memory = bandwidth / work.bytes if work.bytes else float("inf")
    return min(own, passed_on, from_memory)


def efficiency(work: Work, cores: int, processes: int = 1, bandwidth: float = float("inf"), sent: float = 0.0) -> float:
    """``predicted`` as a share of ``cores`` times one core's speed."""
    return predicted(work, cores, processes, bandwidth, sent) * work.seconds / cores
