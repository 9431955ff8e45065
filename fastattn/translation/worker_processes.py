"""Translation by worker processes: the requests that a Translator sends them."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import FastattnError
from fastattn.processes.choice import Sharing
from fastattn.processes.messages import allow_results
from fastattn.processes.pool import Chunk, ProcessPool, plan_chunks, pool_scheduler, stream_results
from fastattn.scheduling.request import Plan
from fastattn.translation.calls import Direction, Score, TextCall, TokenLists, TokenTranslation, Translation
from fastattn.translation.pipeline import Pipeline

allow_results(Score, TokenTranslation, Translation)


class TranslationProcesses:
    """Processes that translate; ``scheduler`` takes the plans that the methods make.

    path, precision, device  arguments of each process's Translator
    """

    def __init__(self, sharing: Sharing, path: Path, precision: str, device: str = "cpu"):
        self.least_texts = sharing.least_texts
        arguments = [f"{__package__}.child", os.path.abspath(path), precision, device, sharing.threads]
        self._pool = ProcessPool(sharing.processes, arguments)
        self.scheduler = pool_scheduler(self._pool)
        self.start, self.close = self._pool.start, self._pool.close

    def _plan(self, function: str, columns: list[Sequence[Any]], *arguments: Any, work: int = 0) -> Plan:
        """A plan of calls of a function that ``child.serve`` names: once for each chunk of texts.

        columns  lists of a value for each text: the function gets its texts' values of each, then ``arguments``
        work     the index of the column whose lengths estimate the work
        """

        def make_chunk(numbers: list[int]) -> Chunk:
            content = [[column[b] for b in numbers if column] for column in columns]
            return _chunk(function, [*content, *arguments], content[work])

        return plan_chunks(list(map(len, columns[work])), self._pool.count, make_chunk)

    def plan_texts(self, texts: Sequence[str], directions: Sequence[Direction], call: TextCall) -> Plan:
        """As ``Pipeline.plan_texts``."""
        return self._plan("texts", [texts, directions], call.split, _plain_options(call.decoding), call.details)

    def translate(
        self, pipeline: Pipeline, texts: Iterator[tuple[str, Direction]], call: TextCall, return_exceptions: bool
    ) -> Iterator[Any]:
        """As ``Pipeline.translate_windows``, which translates the first texts, and so all of a short call."""
        first_texts = islice(texts, self.least_texts - 1)
        yield from pipeline.translate_windows(first_texts, call, return_exceptions)
        source = pipeline.check_each(texts, return_exceptions)
        for result in stream_results(self.scheduler, self._pool.count, source, partial(_text_chunk, call=call)):
            if isinstance(result, FastattnError) and not return_exceptions:
                raise result
            yield result

    def plan_tokens(self, sources: TokenLists, prefixes: TokenLists, options: DecodingOptions) -> Plan:
        """A plan of each source's TokenTranslation, or its error."""
        return self._plan("tokens", [sources, prefixes], _plain_options(options))

    def plan_scores(self, sources: TokenLists, targets: TokenLists, directions: Sequence[Direction] = ()) -> Plan:
        """A plan of each target's Score."""
        return self._plan("scores", [sources, targets, directions], work=1)


def _text_chunk(pairs: list[tuple[str, Direction]], call: TextCall) -> Chunk:
    texts, directions = map(list, zip(*pairs))
    return _chunk("texts", [texts, directions, call.split, _plain_options(call.decoding), call.details], texts)


def _chunk(function: str, content: list[Any], texts: Sequence[Any]) -> Chunk:
    return Chunk(function, content, len(texts), sum(map(len, texts)))


def _plain_options(options: DecodingOptions) -> dict[str, Any]:
    """The options as plain data, from which ``child`` makes them again."""
    rules = None if options.rules is None else vars(options.rules)
    return {name: value for name, value in vars(options).items() if name != "callback"} | {"rules": rules}
