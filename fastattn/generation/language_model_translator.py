"""LanguageModelTranslator: translates texts with a language model that was trained to translate."""

import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastattn.decoding.worker import in_windows, read_each
from fastattn.errors import (
    FastattnError,
    InputError,
    check_bool,
    check_known,
    check_several,
    check_text,
    check_texts,
    without_errors,
)
from fastattn.generation.calls import Generation, GenerationCall
from fastattn.generation.generator import Generator
from fastattn.generation.judging import remarks
from fastattn.generation.translating import PROMPTS, TranslationPrompt, recognize_prompt
from fastattn.scheduling.request import Plan
from fastattn.system.option_names import MODEL, explains_options
from fastattn.system.records import dataclass
from fastattn.text import check_text as check_unicode
from fastattn.text.languages import language
from fastattn.text.splitting import split_to_fit
from fastattn.weights import download
from fastattn.weights.containers.json_file import read_optional
from fastattn.weights.folder import Directory

LONGEST_PART = 1024  # tokens of a paragraph that is translated whole; the answer has at most twice as many
_BLANK_LINES = re.compile(r"(\n[^\S\n]*\n\s*)")  # between paragraphs


@dataclass(frozen=True)
class MarkedTranslation:
    """What ``translate(..., details=True)`` returns.

    text        the best translation: the model's own words, but for spaces around paragraphs
    hypotheses  the translations, best first
    scores      the score of each hypothesis: the sum of its parts' ``Generation.score``
    remarks     why the text may be no translation: names from ``generation.judging.REMARKS``; (): no remarks
    parts       the answer for each paragraph
    """

    text: str
    hypotheses: list[str]
    scores: list[float]
    remarks: tuple[str, ...]
    parts: list[Generation]


class _Document(NamedTuple):
    """A text: the parts to translate, the ids of their prompts, and the whitespace around and between parts."""

    parts: list[str]
    prompts: list[np.ndarray]
    gaps: list[str]


class _Call(NamedTuple):
    """The checked options of a call; ``limit``: the most tokens of a part."""

    generation: GenerationCall
    prompt: TranslationPrompt
    limit: int
    details: bool


class LanguageModelTranslator:
    """Translates text with a language model trained for it: Hy-MT, TranslateGemma, MiLMMT, Tower, EuroLLM, ALMA.

    model        a path or name as ``Generator`` takes it, or a Generator, which may serve several pairs of languages
    source_lang, target_lang   codes (en, eng_Latn) or English names
    prompt       a name from ``generation.translating.PROMPTS``; None: found by the model's names and its chat template
    precision, threads, device, cache_precision   of the Generator that is made for a path or name

    Prompts are those of the model's training. A paragraph is translated whole, unless it has more than 1,024 tokens or
    no room in the context; then it is cut at sentences. Every answer is returned, even one that may be no translation:
    ``MarkedTranslation.remarks`` says why. Raises CheckpointError as Generator does, InputError for an unknown language
    or an unknown prompt.
    """

    returns_attention = False  # translations have no attention weights, unlike a Translator's

    @explains_options(MODEL)
    def __init__(
        self,
        model: "str | os.PathLike[str] | Generator",
        source_lang: str,
        target_lang: str,
        *,
        prompt: str | None = None,
        precision: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
        cache_precision: str = "auto",
    ):
        self._languages = language(source_lang), language(target_lang)
        if prompt is not None:
            check_known("prompt", prompt, tuple(PROMPTS))
        names: list[str] = []
        if isinstance(model, Generator):
            self.generator = model
        else:
            self.generator = Generator(model, precision, threads, device=device, cache_precision=cache_precision)
            names = _model_names(model)
        self._chat_template = self.generator._conversations.template_source
        self.prompt = prompt or recognize_prompt(names, self._chat_template)

    def translate(self, texts: str | Iterable[str], *, details: bool = False, **options: Any) -> Any:
        """The translation of a text, or a list of several texts' translations: str, or MarkedTranslation with details.

        terms    {term: translation}, for a model that was trained with terms; context: the text before these texts
        options  of ``Generator.generate``, for the answer to each paragraph; max_new_tokens is by default twice the
                 most tokens that a part may have
        Raises InputError for invalid options, SearchTimeout.
        """
        scheduler, make_plan = self._scheduler_and_plan(texts, details, options)
        return scheduler.run(make_plan)

    def submit(
        self, texts: str | Iterable[str], *, details: bool = False, caller: Hashable = None, **options: Any
    ) -> "Future[Any]":
        """``translate`` as a Future, which other threads compute, like ``Translator.submit``."""
        scheduler, make_plan = self._scheduler_and_plan(texts, details, options)
        return scheduler.submit(make_plan, caller)

    def translate_iter(
        self, texts: Iterable[str], *, details: bool = False, return_exceptions: bool = False, **options: Any
    ) -> Iterator[Any]:
        """Yield the translation of each text in order, like ``Translator.translate_iter``."""
        call = self._call(options, details)
        check_bool("return_exceptions", return_exceptions)
        source = read_each(check_several("texts", texts, "an iterable of str"), partial(self._read_one, call))
        service = self.generator._service
        return in_windows(service, source, partial(self._plan, call), call.generation.decoding, return_exceptions)

    def __reduce_ex__(self, protocol: Any = None) -> Any:
        return self.generator.__reduce_ex__(protocol)  # a TypeError that says what to do instead

    def close(self) -> None:
        self.generator.close()

    def __enter__(self) -> "LanguageModelTranslator":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, options: Any, details: bool) -> _Call:
        check_bool("details", details)
        options = dict(options)
        terms, context = _checked_terms(options.pop("terms", None)), check_text("context", options.pop("context", ""))
        if options.get("callback") is not None:
            raise InputError("a translation by a language model takes no callback")
        prompt = TranslationPrompt(self.prompt, *self._languages, terms, context)
        generator, limit = self.generator, LONGEST_PART
        if generator.max_length:
            limit = min(limit, (generator.max_length - len(self._ids(prompt, "x"))) // 3)
            if limit < 1:
                raise InputError(f"the prompt has no room in the model's context of {generator.max_length} tokens")
        options.setdefault("max_new_tokens", 2 * limit)
        stop = options.get("stop")
        options["stop"] = [*prompt.prompt.stops, *([stop] if isinstance(stop, str) else () if stop is None else stop)]
        generation = generator._resolver.call(options, True)
        if not details and generation.decoding.num_hypotheses > 1:
            raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
        return _Call(generation, prompt, limit, details)

    def _scheduler_and_plan(self, texts: Any, details: bool, options: dict[str, Any]) -> tuple[Any, Callable[[], Plan]]:
        call = self._call(options, details)
        text_list = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        documents = [self._read(text, call) for text in text_list]

        def make_plan() -> Plan:
            results = without_errors((yield from self._plan(call, documents)))
            return results[0] if isinstance(texts, str) else results

        return self.generator._service.scheduler(call.generation.decoding), make_plan

    def _ids(self, prompt: TranslationPrompt, text: str) -> np.ndarray:
        """The ids of a text's prompt."""
        rendered = prompt.render(text, self._chat_template)
        if isinstance(rendered, str):
            return self.generator._tokenizer.encode([rendered], True)[0]
        return self.generator._tokenizer.encode([self.generator.chat_template.render(rendered)], False)[0]

    def _read(self, text: str, call: _Call) -> _Document:
        check_unicode(text)

        def length(part: str) -> int:
            return len(self.generator._tokenizer.encode([part], False)[0])

        parts, gaps = [], [""]
        for paragraph in _BLANK_LINES.split(text):
            gaps[-1] += paragraph[: len(paragraph) - len(paragraph.lstrip())]
            for part in split_to_fit(paragraph.lstrip(), length, call.limit, self._languages[0].code):
                parts.append(part.rstrip())
                gaps.append(part[len(part.rstrip()) :])
        prompts = [self._ids(call.prompt, part) for part in parts]
        return _Document(parts, prompts, gaps)

    def _read_one(self, call: _Call, number: int, text: Any) -> tuple[int, _Document]:
        """(1 + how many tokens the document's prompts have, the document)."""
        document = self._read(text, call)
        return 1 + sum(map(len, document.prompts)), document

    def _plan(self, call: _Call, documents: Sequence[Any], first: int = 0) -> Plan:
        """A plan of the translation of each document, or its error."""
        prompts = [ids for document in documents if isinstance(document, _Document) for ids in document.prompts]
        answers = iter((yield from self.generator._plan(prompts, first, call=call.generation)))
        results: list[Any] = []
        for document in documents:
            if not isinstance(document, _Document):
                results.append(document)
                continue
            part_answers: list[Any] = list(islice(answers, len(document.parts)))
            error = next((answer for answer in part_answers if isinstance(answer, FastattnError)), None)
            results.append(error or self._join(document, part_answers, call))
        return results

    def _join(self, document: _Document, answers: list[Generation], call: _Call) -> Any:
        """The translation of a document, from the answer to each part."""
        answers_by_rank = list(zip(*((answer, *answer.alternatives) for answer in answers))) or [()]
        hypotheses = [
            document.gaps[0] + "".join(answer.text.strip() + gap for answer, gap in zip(answers_P, document.gaps[1:]))
            for answers_P in answers_by_rank
        ]
        if not call.details:
            return hypotheses[0]
        remark_names = dict.fromkeys(
            remark
            for part, answer in zip(document.parts, answers)
            for remark in (
                *remarks(part, answer.text, self._languages, call.prompt.instruction),
                *(("cut",) if answer.finish_reason == "length" else ()),
            )
        )
        scores = [sum(answer.score for answer in answers_P) for answers_P in answers_by_rank]
        return MarkedTranslation(hypotheses[0], hypotheses, scores, tuple(remark_names), answers)


def _checked_terms(terms: Any) -> dict[str, str] | None:
    if terms is None:
        return None
    if not isinstance(terms, Mapping) or not all(isinstance(text, str) for pair in terms.items() for text in pair):
        raise InputError("terms should be a dict from str to str, a term's translation of each")
    return dict(terms)


def _model_names(model: str | os.PathLike[str]) -> list[str]:
    """Names that may tell a checkpoint's family: of its path, of its folder, and in its config."""
    folder = download.resolve(model)
    names = [Path(model).name, folder.name]
    if folder.is_dir():
        config = read_optional(Directory(folder), "config.json")
        names += [str(config.values.get(name, "")) for name in ("_name_or_path", "model_type")]
    return [*names, *folder.parts[-3:-1]]  # the hub's cache has the model's name two folders up
