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
    """The functions by their names, for ``processes.child.main``; they get options as plain data."""
    translator = Translator(path, precision, threads, 1, device)
    pipeline, scheduler = translator._pipeline, translator._service.scheduler()

    def read(text: str, direction: list[Any], call: TextCall) -> Document | FastattnError:
        try:
            return pipeline.read_text(text, Direction(*direction), call)
        except FastattnError as error:
            return error

    def submit_texts(
        caller: int, texts: list[str], directions: list[list[Any]], split: str, options: dict[str, Any], details: bool
    ) -> Future:
        call = TextCall(split, _decoding_options(options), details)
        documents = [read(text, direction, call) for text, direction in zip(texts, directions)]
        return scheduler.submit(partial(pipeline.plan, documents, call=call), caller)

    def submit_tokens(caller: int, sources: list[Any], prefixes: list[Any], options: dict[str, Any]) -> Future:
        return scheduler.submit(partial(pipeline.plan_parts, sources, prefixes, _decoding_options(options)), caller)

    def submit_scores(caller: int, sources: list[Any], targets: list[Any], directions: list[list[Any]]) -> Future:
        each_direction = [Direction(*direction) for direction in directions]
        return scheduler.submit(partial(pipeline.plan_scores, sources, targets, each_direction), caller)

    return {"texts": submit_texts, "tokens": submit_tokens, "scores": submit_scores}


def _decoding_options(options: dict[str, Any]) -> DecodingOptions:
    rules = options["rules"] and SearchRules(**options["rules"])
    return DecodingOptions(**{**options, "rules": rules})
