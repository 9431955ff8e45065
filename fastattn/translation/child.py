"""The functions that a worker process of a Translator serves; ``processes.child`` imports this module by its name."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import FastattnError
from fastattn.processes.messages import allow_results
from fastattn.spec.text_spec import SearchRules
from fastattn.text.translation import Document
from fastattn.translation.calls import Direction, Score, TextCall, TokenTranslation, Translation
from fastattn.translation.translator import Translator

allow_results(Score, TokenTranslation, Translation)


def serve(path: str, precision: str, device: str, threads: int) -> dict[str, Callable[..., Future]]:
    """The functions by their names, see ``child.main``."""
    translator = Translator(path, precision, threads, 1, device)
    pipeline, scheduler = translator._pipeline, translator._service.scheduler()

    def read(text: str, direction: list[Any], call: TextCall) -> Document | FastattnError:
        try:
            return pipeline.read_text(text, Direction(*direction), call)
        except FastattnError as error:
            return error

    def texts(
        caller: int, texts: list[str], directions: list[list[Any]], split: str, plain: dict[str, Any], details: bool
    ) -> Future:
        call = TextCall(split, _options(plain), details)
        documents = [read(text, direction, call) for text, direction in zip(texts, directions)]
        return scheduler.submit(partial(pipeline.plan, documents, call=call), caller)

    def tokens(caller: int, sources: list[list[str]], prefixes: list[list[str]], plain: dict[str, Any]) -> Future:
        plan = partial(pipeline.plan_parts, sources, prefixes, _options(plain))
        return scheduler.submit(plan, caller)

    def scores(caller: int, sources: list[list[str]], targets: list[list[str]], directions: list[list[Any]]) -> Future:
        read_directions = [Direction(*direction) for direction in directions]
        return scheduler.submit(partial(pipeline.plan_scores, sources, targets, read_directions), caller)

    return {"texts": texts, "tokens": tokens, "scores": scores}


def _options(plain: dict[str, Any]) -> DecodingOptions:
    rules = plain["rules"] and SearchRules(**plain["rules"])
    return DecodingOptions(**{**plain, "rules": rules})
