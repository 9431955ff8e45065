"""Translator: text in, its translation out."""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import Any, Literal, overload

from fastattn.decoding.options import DecodingOptions, Step
from fastattn.errors import InputError, check_bool, check_several, check_texts
from fastattn.scheduling.request import Plan, awaited
from fastattn.scheduling.scheduler import Scheduler
from fastattn.system.files import open_text
from fastattn.translation.arguments import (
    Prefixes,
    check_details,
    check_file_options,
    check_stream,
    prefix_of_each,
    token_prefixes,
    with_prefixes,
)
from fastattn.translation.loaded_translator import LoadedTranslator
from fastattn.translation.pipeline import without_errors
from fastattn.translation.results import ExecutionStats, Score, TokenTranslation, Translation, write_translations


class Translator(LoadedTranslator):
    """Translates text with an encoder-decoder checkpoint.

    path       a folder, an .argosmodel file, a name from the catalog, or OWNER/NAME on the Hugging Face hub
    precision  of the matrix products: "float32", "bfloat16", "int8", "intgemm" (int8 with the static input scales of a
               Marian checkpoint, where it has them) or "auto" (int8 if the checkpoint holds int8, else float32); for
               CTranslate2's other names a UserWarning says what they run as
    threads    the most threads to use; None: all that the process may use
    processes  among how many processes the work is shared, with ``threads`` threads each (None: with an equal part of
               all), where one interpreter's lock is too few. They map the same weights. 1: this process alone. None: 1
               below 8 threads, else as many as ``processes.choice`` finds, started with the first large call; then
               ``threads`` is the total. Calls with a callback and ``generate_tokens`` stay here

    A translation depends on its own text alone: the same bits whatever the other texts and the number of threads. One
    Translator may serve several Python threads at once. Raises CheckpointError for a path without a valid checkpoint
    of a translation model.
    """

    @property
    def default_options(self) -> DecodingOptions:
        """The options of a call that gives none: the checkpoint's own settings, where it has them, else the defaults.

        suppress_sequences are ids here.
        """
        return self._options.default()

    @property
    def max_source_length(self) -> int:
        """The most source tokens of one sentence; longer text is split. 1024 if the model has no limit."""
        return self._pipeline.max_source_length

    @overload
    def translate(
        self,
        texts: str,
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[False] = ...,
        **options: Any,
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: str,
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[True],
        **options: Any,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[False] = ...,
        **options: Any,
    ) -> list[str]: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[True],
        **options: Any,
    ) -> list[Translation]: ...
    @overload
    def translate(self, texts: str | Iterable[str], *, details: bool, **options: Any) -> Any: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        target_prefix: Prefixes = None,
        split: str | None = None,
        details: bool = False,
        **options: Any,
    ) -> Any:
        """The translation of a text, or a list of translations of several: str, or Translation with ``details``.

        target_prefix  the beginning of the translation: one str for all texts, or one for each, None for none
        split          "long": split text over ``max_source_length``, at sentences, then at clauses or words;
                       "sentences": always split at sentences; "never": InputError for text that is too long; None:
                       "sentences" for Marian checkpoints, which are trained on single ones, else "long"
        options        fields of ``DecodingOptions``, which take precedence over the checkpoint's settings and the
                       defaults: beam_size=2, num_hypotheses=1, ...; num_hypotheses above 1 and return_attention need
                       details=True. suppress_sequences are texts

        The lines of a text are translated one by one and keep their line ends; empty lines stay empty.
        Raises InputError for invalid options and for text that is not Unicode.
        """
        scheduler, make_plan = self._planned(texts, target_prefix, split, details, options)
        return scheduler.run(make_plan)

    def submit(
        self,
        texts: str | Iterable[str],
        *,
        target_prefix: Prefixes = None,
        split: str | None = None,
        details: bool = False,
        caller: Hashable = None,
        **options: Any,
    ) -> "Future[Any]":
        """A ``concurrent.futures.Future`` of what ``translate`` returns; returns at once.

        Texts of all callers share decoding steps, with the results that each has alone. ``cancel()`` works at any time.
        The option ``callback`` is called by a worker thread and must not wait in it for another future of this
        Translator (what ``add_done_callback`` calls may); after an error in another call it may see a translation from
        the beginning again. An error that it raises ends this call alone. What has not finished when the process exits
        is lost, and a forked child has no part in it.
        caller  who asks, any hashable value: callers get equal shares, however much each asks for; None: this thread
        Raises as ``translate`` does, and QueueFullError where too much waits. Texts are read later: an error in one is
        the future's.
        """
        scheduler, make_plan = self._planned(texts, target_prefix, split, details, options, submitted=True)
        return scheduler.submit(make_plan, caller)

    @overload
    async def translate_async(
        self, texts: str, *, target_prefix: Prefixes = ..., details: Literal[False] = ..., **options: Any
    ) -> str: ...
    @overload
    async def translate_async(
        self, texts: str, *, target_prefix: Prefixes = ..., details: Literal[True], **options: Any
    ) -> Translation: ...
    @overload
    async def translate_async(
        self, texts: Iterable[str], *, target_prefix: Prefixes = ..., details: Literal[False] = ..., **options: Any
    ) -> list[str]: ...
    @overload
    async def translate_async(
        self, texts: Iterable[str], *, target_prefix: Prefixes = ..., details: Literal[True], **options: Any
    ) -> list[Translation]: ...
    @overload
    async def translate_async(
        self, texts: str | Iterable[str], *, details: bool, caller: Hashable = ..., **options: Any
    ) -> Any: ...

    async def translate_async(
        self,
        texts: str | Iterable[str],
        *,
        target_prefix: Prefixes = None,
        split: str | None = None,
        details: bool = False,
        caller: Hashable = None,
        **options: Any,
    ) -> Any:
        """``translate`` for asyncio: ``submit``, awaited. ``caller`` is by default the task."""
        how: dict[str, Any] = {"target_prefix": target_prefix, "split": split, "details": details, **options}
        return await awaited(partial(self.submit, texts, **how), caller)

    def _planned(
        self,
        texts: Any,
        target_prefix: Prefixes,
        split: str | None,
        details: bool,
        options: Mapping[str, Any],
        submitted: bool = False,
    ) -> tuple[Scheduler, Callable[[], Plan]]:
        """(scheduler, function that makes the plan for it) of a ``translate``; its arguments are checked here.

        submitted  have the plan read the texts, which takes a while
        """
        decoding = self._options.of_texts(options)
        split = self._options.split(split)
        check_details(decoding, details)
        listed = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        prefixes = prefix_of_each(target_prefix, listed)
        if pool := self._pool_for(len(listed), decoding):
            self._pipeline.check_texts(listed, prefixes)
            scheduler, plan = pool.scheduler, partial(pool.plan_texts, listed, prefixes, split, decoding, details)
        elif submitted:
            self._pipeline.check_texts(listed, prefixes)
            scheduler = self._service.scheduler()
            plan = partial(self._pipeline.plan_texts, listed, prefixes, split, decoding, details)
        else:
            read = self._pipeline.read_text
            documents = [read(text, prefix, split, decoding) for text, prefix in zip(listed, prefixes)]
            scheduler = self._service.scheduler(decoding)
            plan = partial(self._pipeline.plan, documents, decoding, details)

        def make_plan() -> Plan:
            results = without_errors((yield from plan()))
            return results[0] if isinstance(texts, str) else results

        return scheduler, make_plan

    @overload
    def translate_iter(
        self,
        texts: Iterable[str],
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[False] = ...,
        return_exceptions: Literal[False] = ...,
        **options: Any,
    ) -> Iterator[str]: ...
    @overload
    def translate_iter(
        self,
        texts: Iterable[str],
        *,
        target_prefix: Prefixes = ...,
        split: str | None = ...,
        details: Literal[True],
        return_exceptions: Literal[False] = ...,
        **options: Any,
    ) -> Iterator[Translation]: ...
    @overload
    def translate_iter(
        self, texts: Iterable[str], *, details: bool = ..., return_exceptions: bool = ..., **options: Any
    ) -> Iterator[Any]: ...

    def translate_iter(
        self,
        texts: Iterable[str],
        *,
        target_prefix: Prefixes = None,
        split: str | None = None,
        details: bool = False,
        return_exceptions: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        """Yield the translation of each text in order, as ``translate`` with the same options.

        Reads some thousand tokens ahead, so memory is bounded however many texts there are; to get each answer before
        the next text is read, call ``translate``. An error, of a text or of the iterable itself, is raised after the
        translations of all texts before it; with ``return_exceptions`` the FastattnError of a text is yielded in the
        place of its translation, and the other texts are translated.
        ``target_prefix`` may be an iterable too, read in step with the texts. Lines of a file keep their ends, so that
        ``print(line, end="")`` or ``writelines`` writes the lines of the translation.
        """
        decoding = self._options.of_texts(options)
        split = self._options.split(split)
        check_details(decoding, details)
        pairs = with_prefixes(check_several("texts", texts, "an iterable of str"), target_prefix)
        pool = self._pool if decoding.callback is None else None
        if pool is None:
            return self._pipeline.translate_windows(pairs, split, decoding, details, return_exceptions)
        return pool.translate(self._pipeline, pairs, split, decoding, details, return_exceptions)

    def translate_file(
        self,
        source_path: str | os.PathLike[str],
        output_path: str | os.PathLike[str],
        target_path: str | os.PathLike[str] | None = None,
        *,
        with_scores: bool = False,
        split: str | None = None,
        **options: Any,
    ) -> ExecutionStats:
        """Translate the lines of a UTF-8 file, in bounded memory, to a file that appears complete or not at all.

        target_path  a file with a target prefix for each line; an empty line for none
        with_scores  put each hypothesis' score and `` ||| `` before it
        Otherwise as ``translate_iter``; each line gives num_hypotheses lines, empty ones where fewer were found.
        Raises InputError for a file that cannot be read or is not text, FastattnError for one that cannot be written.
        """
        start = perf_counter()
        check_bool("with_scores", with_scores)
        check_file_options(options, with_scores)
        options = {"return_scores": with_scores} | options
        with open_text(source_path) as lines, nullcontext() if target_path is None else open_text(target_path) as begun:
            results = self.translate_iter(lines, target_prefix=begun, split=split, details=True, **options)
            tokens, examples = write_translations(results, output_path, with_scores, options.get("num_hypotheses", 1))
        return ExecutionStats(tokens, examples, 1000 * (perf_counter() - start))

    def translate_tokens(
        self,
        sources: Iterable[Sequence[str]],
        target_prefix: Iterable[Sequence[str] | None] | None = None,
        **options: Any,
    ) -> list[TokenTranslation]:
        """Translate sources given as lists of tokens of the source vocabulary; options as in ``DecodingOptions``.

        target_prefix  for each source the tokens that its translation begins with, or None; if the checkpoint has no
                       start token, the first of them is the start token
        Nothing is split: a source over ``max_source_length`` is an InputError if the model has such a limit.
        """
        decoding = self._options.of_tokens(options)
        listed = self._pipeline.read_tokens(sources, decoding)
        prefixes, places = token_prefixes(target_prefix, len(listed)), [(number, 0) for number in range(len(listed))]
        if pool := self._pool_for(len(listed), decoding):
            return without_errors(pool.scheduler.run(partial(pool.plan_tokens, listed, prefixes, decoding)))
        plan = partial(self._pipeline.plan_parts, listed, prefixes, decoding, places)
        return without_errors(self._service.scheduler(decoding).run(plan))

    def generate_tokens(
        self,
        source: str | Sequence[str],
        target_prefix: str | Sequence[str] | None = None,
        *,
        split: str | None = None,
        **options: Any,
    ) -> Iterator[Step]:
        """Yield a Step for each token of a translation as it is produced, by greedy search or sampling.

        source         a text, whose parts are translated one after the other, or a list of tokens
        target_prefix  of the same kind: a text, or tokens
        Options as in ``translate`` or ``translate_tokens``; beam_size is 1. Tokens are computed when asked for:
        leaving the loop ends the work. Raises InputError for invalid options.
        """
        plain = isinstance(source, str)
        options = {"beam_size": 1} | options
        decoding = self._options.of_texts(options) if plain else self._options.of_tokens(options)
        check_stream(decoding)
        if isinstance(source, str):
            document = self._pipeline.read_text(source, target_prefix, self._options.split(split), decoding)
            sources, prefixes = [part for line in document.lines for part in line.parts], document.prefixes()
        else:
            sources, prefixes = self._pipeline.read_tokens([source], decoding), token_prefixes([target_prefix], 1)
        return self._pipeline.stream(sources, prefixes, decoding)

    @overload
    def score(self, source: str, target: str) -> Score: ...  # type: ignore[overload-overlap]  # a str is Iterable[str]
    @overload
    def score(self, source: Iterable[str], target: Iterable[str]) -> list[Score]: ...

    def score(self, source: str | Iterable[str], target: str | Iterable[str]) -> Score | list[Score]:
        """The model's log-probability of each token of a given translation, the end token included.

        Two texts give a Score, two lists of texts a list of them. Nothing is split: text that is longer than the model
        has positions for is an InputError.
        """
        if isinstance(source, str) != isinstance(target, str):
            raise InputError("score should be given two texts, or two lists of texts")
        sources = [source] if isinstance(source, str) else check_texts("source", source)
        targets = [target] if isinstance(target, str) else check_texts("target", target)
        scores = self.score_tokens(
            [self._tokenizer.source_tokens(text) for text in sources],
            [self._tokenizer.target_tokens(text) for text in targets],
        )
        return scores[0] if isinstance(source, str) else scores

    def score_tokens(self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> list[Score]:
        """``score`` of tokens instead of texts; the end token is added to each target.

        For an empty source the model does not run, and every token scores 0.
        """
        read = self._pipeline.read_pairs(sources, targets)
        if pool := self._pool_for(len(read[0])):
            return without_errors(pool.scheduler.run(partial(pool.plan_scores, *read)))
        return self._service.scheduler().run(partial(self._pipeline.plan_scores, *read))
