"""Translator: translates texts with an encoder-decoder model."""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.search import AttentionMaps
from fastattn.decoding.worker import DecodingService
from fastattn.errors import (
    CheckpointError,
    InputError,
    check_bool,
    check_several,
    check_text,
    check_texts,
    without_errors,
)
from fastattn.loading.loaded_model import ModelBase, wrong_model_error
from fastattn.processes.choice import Sharing
from fastattn.scheduling.request import Plan, await_result
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.system.files import one_line, open_file, open_text
from fastattn.system.option_names import MODEL, Unpack, explains_options
from fastattn.text.languages import iso_code
from fastattn.text.sentencepiece import SentencePiece, start_loading
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.calls import (
    Direction,
    EachText,
    ExecutionStats,
    LanguageOptions,
    OptionResolver,
    Score,
    SearchOptions,
    TextOptions,
    TokenLooks,
    TokenTranslation,
    Translation,
    check_file_options,
    check_stream,
    token_lists,
    token_prefixes,
    with_directions,
)
from fastattn.translation.chain import TranslatorChain
from fastattn.translation.pipeline import Pipeline
from fastattn.weights import download

if TYPE_CHECKING:
    from fastattn.translation.worker_processes import TranslationProcesses

AUTO = "auto"
Texts = Iterable[str]
Yes = Literal[True]
No = Literal[False]


class Translator(ModelBase):
    """Translates text with an encoder-decoder checkpoint.

    path, precision, threads, processes, device  see ``ModelBase.__init__``. A path may be an .argosmodel file, and a
               precision "intgemm": int8, with the static input scales of a Marian checkpoint if it has them. For other
               names of CTranslate2, a UserWarning says which precision they mean. Calls with a callback and
               ``generate_tokens`` stay in this process
    source_lang, target_lang  for calls that name none: a code (en, eng_Latn, en_XX) or an English name of ``languages``

    A translation depends on its own text alone: other texts and the number of threads do not change its bits. One
    Translator may serve several Python threads at once. Raises CheckpointError for a path without a valid checkpoint
    of a translation model.
    """

    _takes_processes = True
    _spm_models: Mapping[bytes, SentencePiece] = MappingProxyType({})  # models that load while the checkpoint is read

    @explains_options(MODEL)
    def __init__(
        self,
        path: str | os.PathLike[str],
        precision: str = "auto",
        threads: int | None = None,
        processes: int | None = None,
        device: str = "cpu",
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ):
        super().__init__(path, precision, threads, processes, device)
        self._resolver.direction = Direction(None, source_lang, target_lang)

    @staticmethod
    def chain(first: Any, second: Any) -> TranslatorChain:
        """A translator by way of an intermediate language: ``second`` translates the translations of ``first``."""
        return TranslatorChain(first, second)

    def with_glossary(self, glossary: Any = None, keep: Sequence[str] = (), placeholders: bool = False) -> Any:
        """A translator that follows a glossary and keeps what regular expressions match.

        glossary      term -> translation, or a file of them: two columns with a tab between them, or TBX
        placeholders  whether addresses, code, format directives, template variables and emoji stay too
        """
        from fastattn.translation.glossary import GlossaryTranslator

        return GlossaryTranslator(self, _as_mapping(glossary, "read_glossary"), keep, placeholders)

    def guarded(self) -> Any:
        """A translator that decodes a text again, without repetitions, if its translation is a loop, and marks it."""
        from fastattn.translation.guarded import GuardedTranslator

        return GuardedTranslator(self)

    def with_memory(self, memory: Any) -> Any:
        """A translator that uses a translation memory: text -> translation, or a file of them (TMX)."""
        from fastattn.translation.memory import MemoryTranslator

        return MemoryTranslator(self, _as_mapping(memory, "read_memory"))

    @classmethod
    def for_languages(cls, source: str, target: str, *, quality: str | None = None, **options: Any) -> Any:
        """A Translator, or a TranslatorChain by way of English, between two languages: codes or English names.

        Models come from the catalog, else from Firefox, and are downloaded if they are not here yet. For source "auto"
        a DetectingTranslator, which detects the language of each text and opens models as they are needed.
        quality  the preferred kind of Firefox's models: "tiny", "base-memory" or "base" (None: the best)
        options  arguments of Translator
        Raises InputError if no model is known, DownloadError if a download fails.
        """
        if source == AUTO:
            from fastattn.translation.detecting import DetectingTranslator

            return DetectingTranslator(
                iso_code(check_text("target", target)),
                lambda code: cls.for_languages(code, target, quality=quality, **options),
            )
        translators = [
            cls(download.fetch(model), **options) for model in download.models_between(source, target, quality)
        ]
        return translators[0] if len(translators) == 1 else cls.chain(*translators)

    def _begin(self, folder: Path) -> None:
        self._spm_models = start_loading(folder)

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        text = checkpoint.text
        if not isinstance(text, TranslationText) or checkpoint.pictures is not None:
            raise wrong_model_error("a translation model's", checkpoint)
        if checkpoint.spec.encoder is None or checkpoint.spec.decoder is None:
            raise CheckpointError(f"expected an encoder-decoder checkpoint, got {checkpoint.spec.kind!r}")
        self._max_positions = checkpoint.spec.encoder.max_positions
        self._tokenizer = TranslationTokenizer(text, self._spm_models)
        self._spm_models = {}
        self._resolver = OptionResolver(self._tokenizer)
        return checkpoint

    def _prepare(self) -> None:
        tokenizer, loaded = self._tokenizer, self._loaded
        tokenizer.wait()
        self._service = DecodingService(loaded.model, tokenizer.end_id, tokenizer.unk_id, loaded.threads)
        self._scheduler = self._service.scheduler()
        self._pipeline = Pipeline(self._service, tokenizer, self._max_positions)

    def _make_pool(self, folder: Path, precision: str, device: str, sharing: Sharing) -> "TranslationProcesses":
        from fastattn.translation.worker_processes import TranslationProcesses

        return TranslationProcesses(sharing, folder, precision, device)

    @property
    def layer_weights(self) -> int:
        """About how many weights a decoding step's layers have; ``processes.choice`` decides by this number."""
        return self._service.model.sizes.layer_weights

    @property
    def default_options(self) -> DecodingOptions:
        """The options of a call that sets none: the checkpoint's, else the defaults. suppress_sequences are ids."""
        return self._resolver.default

    @property
    def languages(self) -> dict[str, str]:
        """The languages of a multilingual model: the model's code -> English name; {} for other models."""
        return {} if self._tokenizer.languages is None else dict(self._tokenizer.languages.names)

    @property
    def max_source_length(self) -> int:
        """The most source tokens of one sentence; longer text is split. 1024 if the model has no limit."""
        return self._pipeline.max_source_length

    @overload
    def translate(self, texts: str, *, details: No = ..., **options: "Unpack[TextOptions]") -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: str, *, details: Yes, **options: "Unpack[TextOptions]") -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Texts, *, details: No = ..., **options: "Unpack[TextOptions]") -> list[str]: ...
    @overload
    def translate(self, texts: Texts, *, details: Yes, **options: "Unpack[TextOptions]") -> list[Translation]: ...
    @overload
    def translate(self, texts: str | Texts, *, details: bool, **options: "Unpack[TextOptions]") -> Any: ...

    def translate(self, texts: str | Texts, *, details: bool = False, **options: "Unpack[TextOptions]") -> Any:
        """The translation of a text, or a list of several texts' translations: str, or Translation with ``details``.

        target_prefix  the beginning of the translation: one str for all texts, or one for each, None for none
        source_lang, target_lang  of ``languages``, in any usual form (en, eng, eng_Latn, en_XX, "English"): one str for
                       all texts, or one for each, None for the default: the class's, else the checkpoint's
        split          "long": split text over ``max_source_length``, at sentences, then at clauses or words;
                       "sentences": always split at sentences; "never": InputError for text that is too long; None:
                       "sentences" for Marian checkpoints, which are trained on single sentences, else "long"
        options        fields of ``DecodingOptions``, which take precedence over the checkpoint's settings and the
                       defaults: beam_size=2, num_hypotheses=1, ...; num_hypotheses above 1 and return_attention need
                       details=True. suppress_sequences are texts

        The lines of a text are translated one by one and keep their line ends; empty lines stay empty.
        Raises InputError for invalid options and for text that is not Unicode.
        """
        scheduler, make_plan = self._scheduler_and_plan(texts, details, options)
        return scheduler.run(make_plan)

    def submit(
        self, texts: str | Texts, *, details: bool = False, caller: Hashable = None, **options: "Unpack[TextOptions]"
    ) -> "Future[Any]":
        """A ``concurrent.futures.Future`` of what ``translate`` returns; returns at once.

        Texts of all callers share decoding steps, and get the same results as alone. ``cancel()`` works at any time.
        A worker thread calls the option ``callback``, which must not wait for another future of this Translator (a
        function given to ``add_done_callback`` may). After an error in another call, the callback may get a translation
        from the beginning again. An error that the callback raises ends this call alone. Futures that are not done when
        the process exits are lost, and a forked child cannot wait for them.
        caller  any hashable value: callers get equal shares, however much each asks for; None: this thread
        Raises as ``translate`` does, and QueueFullError if too many requests wait. Texts are read later: the future
        raises the error of a text.
        """
        scheduler, make_plan = self._scheduler_and_plan(texts, details, options, is_submitted=True)
        return scheduler.submit(make_plan, caller)

    @overload
    async def translate_async(  # type: ignore[overload-overlap]
        self, texts: str, *, details: No = ..., caller: Hashable = ..., **options: "Unpack[TextOptions]"
    ) -> str: ...
    @overload
    async def translate_async(  # type: ignore[overload-overlap]
        self, texts: str, *, details: Yes, caller: Hashable = ..., **options: "Unpack[TextOptions]"
    ) -> Translation: ...
    @overload
    async def translate_async(
        self, texts: Texts, *, details: No = ..., caller: Hashable = ..., **options: "Unpack[TextOptions]"
    ) -> list[str]: ...
    @overload
    async def translate_async(
        self, texts: Texts, *, details: Yes, caller: Hashable = ..., **options: "Unpack[TextOptions]"
    ) -> list[Translation]: ...
    @overload
    async def translate_async(
        self, texts: str | Texts, *, details: bool, caller: Hashable = ..., **options: "Unpack[TextOptions]"
    ) -> Any: ...

    async def translate_async(
        self, texts: str | Texts, *, details: bool = False, caller: Hashable = None, **options: "Unpack[TextOptions]"
    ) -> Any:
        """``translate`` for asyncio: ``submit``, awaited. ``caller`` is by default the task."""
        return await await_result(partial(self.submit, texts, details=details, **options), caller)

    def _scheduler_and_plan(
        self, texts: Any, details: bool, options: TextOptions, is_submitted: bool = False
    ) -> tuple[Scheduler, Callable[[], Plan]]:
        """(scheduler, function that makes the plan) of a ``translate`` call, whose arguments are checked here.

        is_submitted  whether the plan reads the texts, which takes a while, so that the call returns at once
        """
        call_directions = self._resolver.take_directions(options)
        call = self._resolver.text_call(options, details)
        several = [texts] if isinstance(texts, str) else check_texts("texts", texts)
        directions = [direction for _, direction in with_directions(several, call_directions)]
        pool = None if call.decoding.callback is not None else self._pool_for(len(several))
        if pool is not None or is_submitted:
            for text, direction in zip(several, directions):
                self._pipeline.check_text(text, direction)
            scheduler = self._service.scheduler() if pool is None else pool.scheduler
            plan = partial((pool or self._pipeline).plan_texts, several, directions, call)
        else:
            documents = [self._pipeline.read_text(*pair, call) for pair in zip(several, directions)]
            scheduler = self._service.scheduler(call.decoding)
            plan = partial(self._pipeline.plan, documents, call=call)

        def make_plan() -> Plan:
            results = without_errors((yield from plan()))
            return results[0] if isinstance(texts, str) else results

        return scheduler, make_plan

    @overload
    def translate_iter(
        self, texts: Texts, *, details: No = ..., return_exceptions: No = ..., **options: "Unpack[TextOptions]"
    ) -> Iterator[str]: ...
    @overload
    def translate_iter(
        self, texts: Texts, *, details: Yes, return_exceptions: No = ..., **options: "Unpack[TextOptions]"
    ) -> Iterator[Translation]: ...
    @overload
    def translate_iter(
        self, texts: Texts, *, details: bool = ..., return_exceptions: bool = ..., **options: "Unpack[TextOptions]"
    ) -> Iterator[Any]: ...

    def translate_iter(
        self, texts: Texts, *, details: bool = False, return_exceptions: bool = False, **options: "Unpack[TextOptions]"
    ) -> Iterator[Any]:
        """Yield the translation of each text in order, like ``translate`` with the same options.

        Reads some thousand tokens ahead, so memory is bounded however many texts there are; to get each translation
        before the next text is read, call ``translate``. An error, of a text or of the iterable itself, is raised after
        the translations of all earlier texts; with ``return_exceptions`` the FastattnError of a text is yielded in the
        place of its translation, and the other texts are translated.
        ``target_prefix`` may be an iterable too, read in step with the texts. Lines of a file keep their ends, so that
        ``print(line, end="")`` or ``writelines`` writes the lines of the translation.
        """
        directions = self._resolver.take_directions(options)
        call = self._resolver.text_call(options, details)
        pairs = with_directions(check_several("texts", texts, "an iterable of str"), directions)
        if self._pool is None or call.decoding.callback is not None:
            return self._pipeline.translate_windows(pairs, call, return_exceptions)
        return self._pool.translate(self._pipeline, pairs, call, return_exceptions)

    def translate_file(
        self,
        source_path: str | os.PathLike[str],
        output_path: str | os.PathLike[str],
        target_path: str | os.PathLike[str] | None = None,
        *,
        with_scores: bool = False,
        split: str | None = None,
        **options: "Unpack[LanguageOptions]",
    ) -> ExecutionStats:
        """Translate the lines of a UTF-8 file, in bounded memory, to a file that appears complete or not at all.

        target_path  a file with a target prefix for each line; an empty line for none
        with_scores  put a hypothesis' score and `` ||| `` before the hypothesis
        Otherwise as ``translate_iter``; each line gives num_hypotheses lines, empty lines where fewer were found.
        Raises InputError for a file that cannot be read or is not text, FastattnError if the output cannot be written.
        """
        start = perf_counter()
        check_bool("with_scores", with_scores)
        check_file_options(options, with_scores)
        options.setdefault("return_scores", with_scores)
        tokens = examples = 0
        with (
            open_text(source_path) as lines,
            nullcontext() if target_path is None else open_text(target_path) as prefixes,
        ):
            results = self.translate_iter(lines, target_prefix=prefixes, split=split, details=True, **options)
            with open_file(output_path) as output:
                for result in results:
                    examples += 1
                    for text, score in zip(result.hypotheses, result.scores):
                        line = f"{score:g} ||| {one_line(text)}\n" if with_scores else f"{one_line(text)}\n"
                        output.write(line.encode("utf-8", "surrogatepass"))
                    output.write(b"\n" * (options.get("num_hypotheses", 1) - len(result.hypotheses)))
                    tokens += sum(len(part.tokens) for part in result.parts)
        return ExecutionStats(tokens, examples, 1000 * (perf_counter() - start))

    def translate_tokens(
        self,
        sources: Iterable[Sequence[str]],
        target_prefix: Iterable[Sequence[str] | None] | None = None,
        **options: "Unpack[SearchOptions]",
    ) -> list[TokenTranslation]:
        """Translate sources given as lists of tokens of the source vocabulary; options are as in ``DecodingOptions``.

        target_prefix  for each source the tokens that its translation begins with, or None; if the checkpoint has no
                       start token, the prefix's first token is the start token
        Nothing is split: a source over ``max_source_length`` is an InputError if the model has such a limit.
        """
        decoding = self._resolver.token_options(options)
        lists = self._pipeline.read_tokens(sources, decoding)
        prefixes = token_prefixes(target_prefix, len(lists))
        if decoding.callback is None and (pool := self._pool_for(len(lists))):
            return without_errors(pool.scheduler.run(partial(pool.plan_tokens, lists, prefixes, decoding)))
        plan = partial(self._pipeline.plan_parts, lists, prefixes, decoding)
        return without_errors(self._service.scheduler(decoding).run(plan))

    def generate_tokens(
        self,
        source: str | Sequence[str],
        target_prefix: str | Sequence[str] | None = None,
        *,
        split: str | None = None,
        **options: "Unpack[LanguageOptions]",
    ) -> Iterator[Step]:
        """Yield a Step for each token of a translation as soon as the token is chosen, by greedy search or sampling.

        source         a text, whose parts are translated one after the other, or a list of tokens
        target_prefix  a text for a text, a list of tokens for a list of tokens
        Options are those of ``translate`` or ``translate_tokens``; beam_size is 1. Tokens are computed when asked for:
        leaving the loop ends the work. Raises InputError for invalid options.
        """
        options.setdefault("beam_size", 1)
        if isinstance(source, str):
            (direction,) = self._resolver.directions([source], options)
            direction = direction._replace(target_prefix=cast(str | None, target_prefix))
            call = self._resolver.text_call({**options, "split": split}, details=True)
            check_stream(call.decoding)
            document = self._pipeline.read_text(source, direction, call)
            return self._pipeline.stream(document.parts, document.prefixes, call.decoding, document.pair)
        decoding = self._resolver.token_options(options)
        check_stream(decoding)
        sources, prefixes = self._pipeline.read_tokens([source], decoding), token_prefixes([target_prefix], 1)
        return self._pipeline.stream(sources, prefixes, decoding)

    @overload
    def score(  # type: ignore[overload-overlap]  # a str is Texts
        self, source: str, target: str, source_lang: str | None = ..., target_lang: str | None = ...
    ) -> Score: ...
    @overload
    def score(
        self, source: Texts, target: Texts, source_lang: EachText = ..., target_lang: EachText = ...
    ) -> list[Score]: ...

    def score(
        self, source: str | Texts, target: str | Texts, source_lang: EachText = None, target_lang: EachText = None
    ) -> Score | list[Score]:
        """The model's log-probability of each token of a given translation, the end token included.

        Two texts give a Score, two lists of texts a list of Scores. Nothing is split: text with more tokens than the
        model has positions is an InputError. source_lang, target_lang: as in ``translate``.
        """
        if isinstance(source, str) != isinstance(target, str):
            raise InputError("score should be given two texts, or two lists of texts")
        sources = [source] if isinstance(source, str) else check_texts("source", source)
        targets = [target] if isinstance(target, str) else check_texts("target", target)
        directions = self._resolver.directions(sources, {"source_lang": source_lang, "target_lang": target_lang})
        pairs = [self._pipeline.check_text(text, direction) for text, direction in zip(sources, directions)]
        tokens = [self._tokenizer.surrounded_tokens(text, pair) for text, pair in zip(sources, pairs)]
        scores = self._score_lists(tokens, [self._tokenizer.target_tokens(text) for text in targets], directions)
        return scores[0] if isinstance(source, str) else scores

    def looks(
        self, text: str, translation: str, source_lang: str | None = None, target_lang: str | None = None
    ) -> TokenLooks:
        """The attention of each head of the decoder's layers to the text, for a given translation; nothing is split.

        source_lang, target_lang: as in ``translate``. Raises InputError for decoders whose layers have no heads, such
        as recurrent decoders.
        """
        (direction,) = self._resolver.directions([text], {"source_lang": source_lang, "target_lang": target_lang})
        pair = self._pipeline.check_text(text, direction)
        tokenizer, vocabularies = self._tokenizer, self._tokenizer.text
        source_ids = tokenizer.source_ids(tokenizer.surrounded_tokens(text, pair))
        ids = np.array(tokenizer.target_ids(tokenizer.target_tokens(translation), pair), np.int32)
        if not text.strip() or not translation.strip():
            raise InputError("what is looked at needs a text and its translation, neither of them empty")

        def plan() -> Plan:
            return (yield [AttentionMaps(source_ids, ids)])

        (looks_LHTS,) = self._service.scheduler().run(plan)
        if not looks_LHTS.size:
            raise InputError("this model's decoder has no heads that look at the source")
        source = [vocabularies.source_vocabulary[index] for index in source_ids.tolist()]
        target = [vocabularies.target_vocabulary[index] for index in [*ids[1:].tolist(), tokenizer.end_id]]
        return TokenLooks(source, target, looks_LHTS)

    def score_tokens(self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> list[Score]:
        """``score`` of tokens instead of texts; the end token is added to each target.

        For an empty source the model does not run, and every token scores 0.
        """
        return self._score_lists(sources, targets)

    def _score_lists(
        self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]], directions: Sequence[Direction] = ()
    ) -> list[Score]:
        lists = token_lists("sources", sources), token_lists("targets", targets)
        if len(lists[0]) != len(lists[1]):
            raise InputError(f"score should be given as many targets as sources: {len(lists[0])}, not {len(lists[1])}")
        self._pipeline.check_sources(lists[0])
        if pool := self._pool_for(len(lists[0])):
            return without_errors(pool.scheduler.run(partial(pool.plan_scores, *lists, directions)))
        return self._service.scheduler().run(partial(self._pipeline.plan_scores, *lists, directions))


def _as_mapping(pairs: Any, reader: str) -> Any:
    """``pairs``, or if it is a path, the mapping that the function ``reader`` of term_files reads from that file."""
    from fastattn.translation import term_files

    return getattr(term_files, reader)(pairs) if isinstance(pairs, str | os.PathLike) else pairs
