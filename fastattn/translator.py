"""Translator: text in, its translation out."""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any, Literal, overload

import numpy as np

from fastattn.arguments import (
    Prefixes,
    check_details,
    check_file_options,
    check_stream,
    prefix_of_each,
    text_list,
    token_lists,
    token_prefixes,
    with_prefixes,
)
from fastattn.balance import input_factors
from fastattn.call_options import CallOptions
from fastattn.checkpoint import Checkpoint
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.plans import score_plan
from fastattn.decoding.service import DecodingService
from fastattn.errors import CheckpointError, InputError, check_bool, check_count
from fastattn.files import open_text, write_translations
from fastattn.models.kinds import build_model
from fastattn.ops import Ops
from fastattn.pipeline import Pipeline, without_errors
from fastattn.precision import resolve_precision
from fastattn.results import ExecutionStats, Score, TokenTranslation, Translation
from fastattn.scheduling.request import Plan
from fastattn.text.translation import TranslationTokenizer
from fastattn.text_spec import TranslationText
from fastattn.weights import read
from fastattn.weights.download import catalog


class Translator:
    """Translates text with an encoder-decoder checkpoint.

    path       a folder, an .argosmodel file, a name from the catalog, or OWNER/NAME of the Hugging Face hub
    precision  of the products: "float32", "bfloat16", "int8", "intgemm", which is int8 with the scales of inputs that
               a Marian's checkpoint may have, or "auto", which is int8 where the checkpoint holds int8, else float32;
               of CTranslate2's others a UserWarning says what they run as
    threads    how many to use; None: as many as the process may

    A translation depends on its own text alone: the same bits whatever the other texts and the number of threads. One
    Translator may serve several Python threads at once. Raises CheckpointError for a checkpoint that is none, or not a
    translation model's.
    """

    def __init__(self, path: str | os.PathLike, precision: str = "auto", threads: int | None = None):
        self._build(read(catalog.resolve(path)), precision, threads, None, keep=True)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        precision: str = "auto",
        threads: int | None = None,
        ops: Ops | None = None,
    ) -> "Translator":
        """A Translator of a checkpoint in memory; ``ops`` is the namespace of operations, None: fastattn.kernels."""
        translator = cls.__new__(cls)
        translator._build(checkpoint, precision, threads, ops)
        return translator

    def _build(
        self, checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, keep: bool = False
    ) -> None:
        text, encoder = checkpoint.text, checkpoint.spec.encoder
        if not isinstance(text, TranslationText):
            raise CheckpointError(
                f"a translation model's checkpoint is expected, this one is an {checkpoint.spec.kind} model's: "
                "use Encoder, or fastattn encode"
            )
        if encoder is None or checkpoint.spec.decoder is None:
            raise CheckpointError(f"expected an encoder-decoder checkpoint, got {checkpoint.spec.kind!r}")
        resolved = resolve_precision(precision, checkpoint)
        self._precision, checkpoint = resolved.name, resolved.applied(checkpoint)
        # Compiled kernels are imported only where they are used: it takes a while.
        if ops is None:
            from fastattn import kernels

            ops = kernels
        self._ops = ops
        limit = self._ops.thread_limit()
        self._threads = limit if threads is None else min(check_count("threads", threads), limit)
        self._tokenizer = TranslationTokenizer(text)
        self._options = CallOptions(self._tokenizer)
        packing = resolved.arithmetic, resolved.variety
        packed_file = import_module("fastattn.packed_file").PackedFile(checkpoint.files, *packing) if keep else None
        factors = partial(input_factors, checkpoint, self._ops)
        self._model = build_model(checkpoint, self._ops, resolved.arithmetic, packed_file, factors)
        if packed_file is not None:
            packed_file.save()
        end_id, unk_id = self._tokenizer.end_id, self._tokenizer.unk_id
        self._service = DecodingService(self._model, end_id, unk_id, self._threads)
        self._pipeline = Pipeline(self._service, self._tokenizer, encoder.positions.limit)

    @property
    def precision(self) -> str:
        """What products run in: "float32", "bfloat16", "int8" or "intgemm"; never "auto"."""
        return self._precision

    @property
    def default_options(self) -> DecodingOptions:
        """What a call that gives no options runs with: the checkpoint's own settings, where it has some.

        Its suppress_sequences are ids.
        """
        return self._options.default()

    @property
    def max_source_length(self) -> int:
        """The source tokens that are translated at once; longer text is split. 1024 where the model has no limit."""
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
        """The translation of a text, or the list of translations of several: str, or Translation with ``details``.

        target_prefix  what the translation shall begin with: one for all texts, or one each, None among them for none
        split          "long": only what is over ``max_source_length``, at sentences, then at clauses or words;
                       "sentences": always at sentences; "never": InputError for what is too long; None: "sentences"
                       for a Marian's checkpoint, which is made for single ones, else "long"
        options        those of ``DecodingOptions``, in place of the checkpoint's own and the defaults: beam_size=2,
                       num_hypotheses=1, ...; num_hypotheses above 1 and return_attention need details=True, which
                       alone can show them. The suppress_sequences are texts

        The lines of a text are translated one by one and keep their line ends; an empty line stays as it is.
        Raises InputError for options that cannot be followed and for text that is not Unicode.
        """
        make_plan, decoding = self._planned(texts, target_prefix, split, details, options)
        return self._service.scheduler(decoding).run(make_plan)

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
        """A ``concurrent.futures.Future`` of what ``translate`` returns; nothing is waited for.

        Texts of all callers are searched for together, each as alone. ``cancel()`` takes them out of the work at any
        time; a callback is called by the thread that computes, and what it raises ends this call's texts alone.
        caller  whose they are, anything hashable: callers have equal shares of what there is, however much each asks
                for; None: this thread
        Raises as ``translate`` does, and QueueFullError where too much waits.
        """
        make_plan, _ = self._planned(texts, target_prefix, split, details, options)
        return self._service.scheduler().submit(make_plan, caller)

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
        import asyncio  # 25 ms, which whoever awaits has spent already

        caller = asyncio.current_task() if caller is None else caller
        how: dict[str, Any] = {"target_prefix": target_prefix, "split": split, "details": details, **options}
        return await asyncio.wrap_future(self.submit(texts, caller=caller, **how))

    def _planned(
        self, texts: Any, target_prefix: Prefixes, split: str | None, details: bool, options: Mapping[str, Any]
    ) -> tuple[Callable[[], Plan], DecodingOptions]:
        """What makes the plan of a ``translate``, whose arguments are checked here, and its options."""
        decoding = self._options.of_texts(options)
        split = self._options.split(split)
        check_details(decoding, details)
        listed = [texts] if isinstance(texts, str) else text_list("texts", texts)
        prefixes = prefix_of_each(target_prefix, listed)
        documents = [self._pipeline.read_text(text, prefix, split, decoding) for text, prefix in zip(listed, prefixes)]

        def make_plan() -> Plan:
            results = without_errors((yield from self._pipeline.plan(documents, decoding, details)))
            return results[0] if isinstance(texts, str) else results

        return make_plan, decoding

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
        """Yield the translation of each text in order, as ``translate`` with the same options would.

        Reads ahead by some thousand tokens, so memory is bounded however many texts there are; whoever waits for each
        answer calls ``translate``. An error, of a text or of the iterable itself, comes once the translations of all
        texts before it have been yielded; with ``return_exceptions`` the FastattnError of a text takes the place of its
        translation and the rest goes on.
        ``target_prefix`` may be an iterable too, which is read alongside. A file's line keeps its end, so that
        ``print(line, end="")`` or ``writelines`` gives the lines of the translation.
        """
        decoding = self._options.of_texts(options)
        split = self._options.split(split)
        check_details(decoding, details)
        if isinstance(texts, str):
            raise InputError("texts should be an iterable of str, got one str")
        if not isinstance(texts, Iterable):
            raise InputError(f"texts should be an iterable of str, got {type(texts).__name__}")
        pairs = with_prefixes(texts, target_prefix)
        return self._pipeline.translate_windows(pairs, split, decoding, details, return_exceptions)

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
        The rest is as in ``translate_iter``; num_hypotheses above 1 give as many lines each, empty ones where fewer are
        found. Raises InputError for what cannot be read or is not text, FastattnError for what cannot be written.
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
        """Translate sources that are lists of the source vocabulary's tokens; the options are ``DecodingOptions``' own.

        target_prefix  for each source the tokens that its translation begins with, or None; where the checkpoint names
                       no start token, the first of them is it
        Nothing is split: a source over ``max_source_length`` is an InputError where the model has such a limit.
        """
        decoding = self._options.of_tokens(options)
        listed = self._pipeline.read_tokens(sources, decoding)
        prefixes, places = token_prefixes(target_prefix, len(listed)), [(number, 0) for number in range(len(listed))]
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
        """Yield the tokens of a translation as they are produced, by greedy search or sampling: a Step each.

        source         a text, whose parts come one after the other, or a list of tokens as ``translate_tokens`` takes
        target_prefix  alike: a text, or tokens
        The options are those of ``translate``, or ``translate_tokens``; beam_size is 1. Work is done only while the
        next token is asked for: to break off is to end it. Raises InputError for what cannot be followed.
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
        """How probable the model finds a given translation: the log-probability of each token and of its end.

        Two texts give a Score, two lists of texts a list of them. Nothing is split: what is longer than the model has
        positions for is an InputError.
        """
        if isinstance(source, str) != isinstance(target, str):
            raise InputError("score should be given two texts, or two lists of texts")
        sources = [source] if isinstance(source, str) else text_list("source", source)
        targets = [target] if isinstance(target, str) else text_list("target", target)
        scores = self.score_tokens(
            [self._tokenizer.source_tokens(text) for text in sources],
            [self._tokenizer.target_tokens(text) for text in targets],
        )
        return scores[0] if isinstance(source, str) else scores

    def score_tokens(self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> list[Score]:
        """``score`` of tokens instead of texts; the end token is added to each target.

        Where the source is empty the model cannot run, and every token scores 0.
        """
        listed = token_lists("sources", sources)
        ids = [
            [*self._tokenizer.target_ids(tokens), self._tokenizer.end_id] for tokens in token_lists("targets", targets)
        ]
        if len(ids) != len(listed):
            raise InputError(f"score should be given as many targets as sources: {len(listed)}, not {len(ids)}")
        self._pipeline.check_sources(listed)
        source_ids = [self._tokenizer.source_ids(tokens) for tokens in listed]
        log_probs = [np.zeros(len(target) - 1, np.float32) for target in ids]
        chosen = [b for b in range(len(listed)) if len(source_ids[b])]
        given = [source_ids[b] for b in chosen], [np.array(ids[b], np.int32) for b in chosen]
        scored = self._service.scheduler().run(partial(score_plan, *given))
        for b, log_probs_T in zip(chosen, scored):
            log_probs[b] = log_probs_T
        first = self._tokenizer.forced  # what is forced has no probability of its own
        return [
            Score(self._tokenizer.target_surfaces(target[1 + first :]), row[first:])
            for target, row in zip(ids, log_probs)
        ]
