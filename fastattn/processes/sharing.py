"""How work is cut into chunks: all at once, or as it is read."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from fastattn.errors import FastattnError
from fastattn.processes.pool import Chunk
from fastattn.scheduling.request import Plan, read_ahead
from fastattn.scheduling.scheduler import Scheduler

# Texts of a chunk, where there are enough: so that a process has rows for whole products, and none waits at the end.
FEWEST, MOST = 16, 256
CHUNKS_EACH = 4
# Characters that a stream reads ahead: few at first, so that the first results come soon; then of each process.
FIRST_AHEAD, LAST_AHEAD = 4096, 32768
SHORTEST = 32  # what a text counts as at least, or a stream of empty ones would be read without end


def dealt(lengths: Sequence[int], processes: int) -> list[list[int]]:
    """The numbers of texts in chunks that take about the same time each: each gets longer ones and shorter ones."""
    count = len(lengths)
    if not count:
        return []
    chunks = min(CHUNKS_EACH * processes, -(-count // FEWEST))
    chunks = max(chunks, min(processes, count), -(-count // MOST))
    longest_first = sorted(range(count), key=lambda number: -lengths[number])
    return [longest_first[chunk::chunks] for chunk in range(chunks)]


def plan_dealt(lengths: Sequence[int], processes: int, make_chunk: Callable[[list[int]], Chunk]) -> Plan:
    """The list of the texts' results.

    make_chunk  from the numbers of texts to what has them done, one after the other
    """
    chunks = dealt(lengths, processes)
    results: list[Any] = [None] * len(lengths)
    for numbers, found in zip(chunks, (yield [make_chunk(numbers) for numbers in chunks])):
        for number, one in zip(numbers, found):
            results[number] = one
    return results


def stream(
    scheduler: Scheduler,
    processes: int,
    source: Iterator[tuple[int, Any]],
    make_chunk: Callable[[list[Any]], Chunk],
) -> Iterator[Any]:
    """Yield the results of what ``source`` gives, in order, with enough of it in progress for every process.

    source  gives (length, item); an error that it raises is raised again after the results before it. An item that is
            a FastattnError is its own result
    Closing the iterator drops what is in progress.
    """
    in_progress: deque[tuple[Future, int]] = deque()
    ahead, most, failure = 0, FIRST_AHEAD, None
    try:
        while True:
            while failure is None and ahead < most:
                enough = max(1, most // (2 * processes))
                items, length, failure = read_ahead(source, enough, MOST, SHORTEST)
                in_progress.append((scheduler.start(partial(_plan, items, make_chunk)), length))
                ahead += length
            if not in_progress:
                break
            yield from in_progress[0][0].result()
            ahead, most = ahead - in_progress.popleft()[1], min(2 * most, LAST_AHEAD * processes)
    finally:
        for future, _ in in_progress:
            future.cancel()
    if not isinstance(failure, StopIteration):
        assert failure is not None
        raise failure


def _plan(items: list[Any], make_chunk: Callable[[list[Any]], Chunk]) -> Plan:
    sent = [item for item in items if not isinstance(item, FastattnError)]
    found: Iterator[Any] = iter(())
    if sent:
        (results,) = yield [make_chunk(sent)]
        found = iter(results)
    return [item if isinstance(item, FastattnError) else next(found) for item in items]
