"""A worker process, which reads messages from its standard input, has a model do the work, and answers.

The process ends as soon as its input ends: when the program that started it closes the pipe or ends.
"""

import importlib
import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, BinaryIO, NoReturn

from fastattn.errors import FastattnError, OutOfMemoryError
from fastattn.processes.messages import PipeClosed, message_parts, read_message, write_parts
from fastattn.system.atomic_files import discard_unfinished

BEAT = 5.0  # seconds between two signs of life, which a thread sends during long work too


def main() -> None:
    """Serve requests until the input ends.

    The first message names a module and the arguments of the module's ``serve``; the last argument is the number of
    threads. ``serve`` returns a dictionary: kind of request -> function of (caller, *content) that returns a Future.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = _own_streams()
    answer = _AnswerSender(answers)
    module, *arguments = _read_or_end(requests, answer)
    # By default the tokenizers library starts as many threads as there are CPUs, in each process.
    os.environ.setdefault("RAYON_NUM_THREADS", str(arguments[-1]))
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = lambda message, *_, **options: answer(0, "warning", str(message))
    messages: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    reader = threading.Thread(target=_read_messages, args=(requests, messages, answer), daemon=True)
    reader.start()
    threading.Thread(target=_send_heartbeats, args=(answer,), daemon=True).start()
    try:
        functions: dict[str, Callable[..., Future]] = importlib.import_module(module).serve(*arguments)
    except Exception as error:  # noqa: BLE001  the program raises it
        answer(0, "unusable", _fastattn_error(error))
        reader.join()
        return
    answer(0, "loaded", None)
    in_progress: dict[int, Future] = {}
    while True:
        number, kind, content, caller = messages.get()
        if kind == "cancel":
            if (future := in_progress.pop(number, None)) is not None:
                future.cancel()
            continue
        try:
            in_progress[number] = future = functions[kind](caller, *content)
        except Exception as error:  # noqa: BLE001  the caller raises it
            answer(number, "failed", _fastattn_error(error))
        else:
            future.add_done_callback(partial(_finish, number, in_progress, answer))


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """(requests, answers): the two pipes, which nothing else can use from now on. Printed text goes to stderr."""
    requests, answers = os.dup(0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    os.dup2(2, 1)
    return open(requests, "rb", buffering=0), open(answers, "wb", buffering=0)


def _send_heartbeats(answer: "_AnswerSender") -> None:
    while True:
        answer(0, "alive", None)
        time.sleep(BEAT)


def _read_messages(requests: BinaryIO, messages: "queue.SimpleQueue[list[Any]]", answer: "_AnswerSender") -> None:
    while True:
        messages.put(_read_or_end(requests, answer))


def _read_or_end(requests: BinaryIO, answer: "_AnswerSender") -> list[Any]:
    try:
        return read_message(requests)
    except PipeClosed:
        _end_process()
    except Exception as error:  # noqa: BLE001  not a message, or no memory: the input cannot be read any further
        answer(0, "unusable", _fastattn_error(error))
        _end_process(1)


def _end_process(status: int = 0) -> NoReturn:
    discard_unfinished()
    os._exit(status)


class _AnswerSender:
    """Sends the answers of all threads, one after the other; an answer with the number 0 belongs to no request."""

    def __init__(self, stream: BinaryIO):
        self._stream, self._lock = stream, threading.Lock()

    def __call__(self, number: int, kind: str, content: Any) -> None:
        parts = message_parts([number, kind, content])
        with self._lock:
            try:
                write_parts(self._stream, parts)
            except PipeClosed:
                _end_process()


def _finish(number: int, in_progress: dict[int, Future], answer: _AnswerSender, future: Future) -> None:
    if in_progress.pop(number, None) is None or future.cancelled():
        return
    try:
        answer(number, "done", future.result())
    except Exception as error:  # noqa: BLE001  the caller raises it
        answer(number, "failed", _fastattn_error(error))


def _fastattn_error(error: BaseException) -> FastattnError:
    if isinstance(error, FastattnError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError(str(error))
    return FastattnError(f"a worker process failed: {type(error).__name__}: {error}")
