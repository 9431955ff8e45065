"""Streams of texts: some thousand tokens are read ahead, so that memory is bounded however many texts there are."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import DecodingService
from fastattn.errors import FastattnError
from fastattn.scheduling.request import Plan, Request, read_ahead

# Source tokens that are read ahead of a stream of texts: few at first, so that the first results come soon.
FIRST_WINDOW = 1024
LAST_WINDOW = 16384
WINDOW_A_THREAD = 8192  # where there are so many threads that this is more in all
WINDOWS = 2  # in progress at once


def in_windows(
    service: DecodingService,
    source: Iterator[tuple[int, Any]],
    make_plan: Callable[[list[Any], int], Plan],
    options: DecodingOptions,
    return_exceptions: bool,
) -> Iterator[Any]:
    """Yield the result of each text of a source of (tokens, text), in order.

    make_plan  (texts, the number of the first) -> the plan of their results
    Errors come after the results before them; with return_exceptions a text's error takes its place.
    After the first window, whose results come as soon as they can, the next one is read and begun before the results of
    one are given out: neither the search nor the caller waits for the other.
    """
    scheduler = service.scheduler(options)
    window, done, failure = FIRST_WINDOW, 0, None
    last_window = max(LAST_WINDOW, WINDOW_A_THREAD * service.threads)
    begun: deque[Request] = deque()
    try:
        while failure is None or begun:
            results: list[Any] = []
            if failure is None:
                documents, _, failure = read_ahead(source, window)
                plan = partial(make_plan, documents, done)
                # A callback is this thread's to call, and the only window its own work.
                if options.callback is not None or not done or failure is not None and not begun:
                    results = scheduler.run(plan)
                elif documents:
                    begun.append(scheduler.start(plan))
                window, done = min(2 * window, last_window), done + len(documents)
            if begun and (failure is not None or len(begun) == WINDOWS):
                results = begun[0].result()
                begun.popleft()
            for result in results:
                if isinstance(result, FastattnError) and not return_exceptions:
                    raise result
                yield result
    finally:
        for request in begun:
            request.cancel()
    if not isinstance(failure, StopIteration):
        raise failure


def read_each(texts: Iterable[Any], read: Callable[[int, Any], tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """A source for ``in_windows``: what ``read`` makes of (number, text), (tokens, text), or its error for the text."""
    for number, text in enumerate(texts):
        try:
            found: tuple[int, Any] = read(number, text)
        except FastattnError as error:
            found = 1, error
        yield found
