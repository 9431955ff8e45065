"""Translation by worker processes: what a Translator asks of them, and how they do it."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import FastattnError
from fastattn.processes.choice import Sharing
from fastattn.processes.messages import may_return
from fastattn.processes.pool import Chunk, ProcessPool, pool_scheduler
from fastattn.processes.sharing import plan_dealt, stream
from fastattn.scheduling.request import Plan
from fastattn.text.translation import Document
from fastattn.translation.options import TextCall
from fastattn.translation.pipeline import Pipeline
from fastattn.translation.results import Score, TokenTranslation, Translation

may_return(Score, TokenTranslation, Translation)


class TranslationProcesses:
    """Processes that translate; their ``scheduler`` takes the plans that the methods make.

    path, precision, device  each process's Translator's
    """

    def __init__(self, sharing: Sharing, path: Path, precision: str, device: str = "cpu"):
        self.least = sharing.least
        self._pool = ProcessPool(
            sharing.processes, [__name__, os.path.abspath(path), precision, device, sharing.threads]
        )
        self.scheduler = pool_scheduler(self._pool)
        self.start, self.close = self._pool.start, self._pool.close

    def plan_texts(self, texts: Sequence[str], prefixes: Sequence[str | None], call: TextCall) -> Plan:
        """As ``Pipeline.plan``."""

        def make_chunk(numbers: list[int]) -> Chunk:
            return _text_chunk([(texts[b], prefixes[b]) for b in numbers], call)

        return plan_dealt([len(text) for text in texts], self._pool.count, make_chunk)

    def translate(
        self,
        pipeline: Pipeline,
        pairs: Iterator[tuple[str, str | None]],
        call: TextCall,
        return_exceptions: bool,
    ) -> Iterator[Any]:
        """As ``Pipeline.translate_windows``, which translates the few texts of a short call here."""
        few = islice(pairs, self.least - 1)
        yield from pipeline.translate_windows(few, call, return_exceptions)
        checked = pipeline.checked(pairs, return_exceptions)
        for result in stream(self.scheduler, self._pool.count, checked, partial(_text_chunk, call=call)):
            if isinstance(result, FastattnError) and not return_exceptions:
                raise result
            yield result

    def plan_tokens(self, sources: list[list[str]], prefixes: list[list[str]], options: DecodingOptions) -> Plan:
        """The TokenTranslation of each source, or its error."""

        def make_chunk(numbers: list[int]) -> Chunk:
            given = [sources[b] for b in numbers], [prefixes[b] for b in numbers]
            return _chunk("tokens", [*given, _plain(options)], given[0])

        return plan_dealt([len(source) for source in sources], self._pool.count, make_chunk)

    def plan_scores(self, sources: list[list[str]], targets: list[list[str]]) -> Plan:
        """The Score of each target."""

        def make_chunk(numbers: list[int]) -> Chunk:
            given = [sources[b] for b in numbers], [targets[b] for b in numbers]
            return _chunk("scores", [*given], given[1])

        return plan_dealt([len(target) for target in targets], self._pool.count, make_chunk)


def _text_chunk(pairs: list[tuple[str, str | None]], call: TextCall) -> Chunk:
    texts, prefixes = [text for text, _ in pairs], [prefix for _, prefix in pairs]
    return _chunk("texts", [texts, prefixes, call.split, _plain(call.decoding), call.details], texts)


def _chunk(what: str, content: list[Any], texts: Sequence[Any]) -> Chunk:
    return Chunk(what, content, len(texts), sum(map(len, texts)))


def _plain(options: DecodingOptions) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name != "callback"}


def serve(path: str, precision: str, device: str, threads: int) -> dict[str, Callable[..., Future]]:
    """What a process does, see ``child.main``."""
    from fastattn.translation.translator import Translator

    translator = Translator(path, precision, threads, 1, device)
    pipeline, scheduler = translator._pipeline, translator._service.scheduler()

    def read(text: str, prefix: str | None, call: TextCall) -> Document | FastattnError:
        try:
            return pipeline.read_text(text, prefix, call)
        except FastattnError as error:
            return error

    def texts(
        caller: int, texts: list[str], prefixes: list[str | None], split: str, plain: dict[str, Any], details: bool
    ) -> Future:
        call = TextCall(split, DecodingOptions(**plain), details)
        documents = [read(text, prefix, call) for text, prefix in zip(texts, prefixes)]
        return scheduler.submit(partial(pipeline.plan, documents, call), caller)

    def tokens(caller: int, sources: list[list[str]], prefixes: list[list[str]], plain: dict[str, Any]) -> Future:
        plan = partial(pipeline.plan_parts, sources, prefixes, DecodingOptions(**plain))
        return scheduler.submit(plan, caller)

    def scores(caller: int, sources: list[list[str]], targets: list[list[str]]) -> Future:
        return scheduler.submit(partial(pipeline.plan_scores, sources, targets), caller)

    return {"texts": texts, "tokens": tokens, "scores": scores}
