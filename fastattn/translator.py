"""Translator: text in, its translation out."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np

from fastattn.arguments import check_details, prefix_of_each, text_list, token_lists
from fastattn.balance import input_factors
from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.resolve import resolve_options
from fastattn.decoding.scoring import score as score_ids
from fastattn.decoding.sentences import decode_sentences
from fastattn.errors import CheckpointError, InputError, check_count
from fastattn.models.transformer import EncoderDecoder
from fastattn.presentation import Presentation
from fastattn.results import Score, TokenTranslation
from fastattn.spec import Checkpoint, TranslationText, resolve_precision, without_input_scales
from fastattn.text.translation import SPLITS, Document, TranslationTokenizer, split_lines
from fastattn.weights import catalog, read

# A part's length where the architecture has no limit of its own.
UNLIMITED = 1024
# Source tokens that translate_iter reads ahead: few at first, so that the first translations come soon.
FIRST_WINDOW = 1024
LAST_WINDOW = 16384


class Translator:
    """Translates text with an encoder-decoder checkpoint.

    path       a folder, an .argosmodel file, a name from the catalog, or OWNER/NAME of the Hugging Face hub
    precision  of the products: "float32", "bfloat16", "int8", "intgemm", which is int8 with the scales of inputs that
               a Marian's checkpoint may have, or "auto", which is int8 where the checkpoint holds int8, else float32
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
        ops: ModuleType | None = None,
    ) -> "Translator":
        """A Translator of a checkpoint in memory; ``ops`` is the namespace of operations, None: fastattn.kernels."""
        translator = cls.__new__(cls)
        translator._build(checkpoint, precision, threads, ops)
        return translator

    def _build(
        self, checkpoint: Checkpoint, precision: str, threads: int | None, ops: ModuleType | None, keep: bool = False
    ) -> None:
        if not isinstance(checkpoint.text, TranslationText):
            raise CheckpointError(
                f"a translation model's checkpoint is expected, this one is an {checkpoint.spec.kind} model's"
            )
        precision = resolve_precision(precision, checkpoint)
        # Compiled kernels are imported only where they are used: it takes a while.
        self._ops = ops or import_module("fastattn.kernels")
        limit = self._ops.thread_limit()
        self._threads = limit if threads is None else min(check_count("threads", threads), limit)
        self._tokenizer = TranslationTokenizer(checkpoint.text)
        self._settings = _settings(checkpoint.text)
        variety = ""
        if precision == "intgemm":
            precision, variety = "int8", "-intgemm"
        else:
            checkpoint = replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))
        kept = import_module("fastattn.packed_file").PackedFile(checkpoint.files, precision, variety) if keep else None
        factors = partial(input_factors, checkpoint, self._ops)
        self._model = EncoderDecoder(checkpoint, self._ops, precision, kept, factors)
        if kept is not None:
            kept.save()
        self._positions = checkpoint.spec.encoder.max_positions
        self._presentation = Presentation(self._tokenizer, self._model.positions)

    @property
    def default_options(self) -> DecodingOptions:
        """What a call that gives no options runs with: the checkpoint's own settings, where it has some.

        Its suppress_sequences are ids.
        """
        return resolve_options(self._settings, {})

    @property
    def max_source_length(self) -> int:
        """The source tokens that are translated at once; longer text is split. 1024 where the model has no limit."""
        return (self._positions or UNLIMITED) - self._tokenizer.implicit_tokens

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        target_prefix: str | Sequence[str] | None = None,
        split: str | None = None,
        details: bool = False,
        **options: Any,
    ) -> Any:
        """The translation of a text, or the list of translations of several: str, or Translation with ``details``.

        target_prefix  what the translation shall begin with: one for all texts, or one each
        split          "long": only what is over ``max_source_length``, at sentences, then at clauses or words;
                       "sentences": always at sentences; "never": InputError for what is too long; None: "sentences"
                       for a Marian's checkpoint, which is made for single ones, else "long"
        options        those of ``DecodingOptions``, in place of the checkpoint's own and the defaults: beam_size=2,
                       num_hypotheses=1, ...; num_hypotheses above 1 and return_attention need details=True, which
                       alone can show them. The suppress_sequences are texts

        The lines of a text are translated one by one and keep their line ends; an empty line stays as it is.
        Raises InputError for options that cannot be followed and for text that is not Unicode.
        """
        decoding = self._decoding_options(options, self._sequence_of_text)
        split = self._chosen_split(split)
        check_details(decoding, details)
        single = isinstance(texts, str)
        listed = [texts] if isinstance(texts, str) else text_list("texts", texts)
        documents = [
            self._read(text, prefix, split) for text, prefix in zip(listed, prefix_of_each(target_prefix, listed))
        ]
        results = self._translate_documents(documents, decoding, details)
        return results[0] if single else results

    def translate_iter(
        self, texts: Iterable[str], *, split: str | None = None, target_prefix: str | None = None, **options: Any
    ) -> Iterator[Any]:
        """Yield the translation of each text in order, as ``translate`` with the same options would.

        Reads ahead by some thousand tokens, so memory is bounded however many texts there are; errors come where the
        text that causes them is read. ``target_prefix`` is one for all texts. A file's line keeps its end, so that
        ``print(line, end="")`` or ``writelines`` gives the lines of the translation.
        """
        details = bool(options.pop("details", False))
        decoding = self._decoding_options(options, self._sequence_of_text)
        split = self._chosen_split(split)
        check_details(decoding, details)
        if target_prefix is not None and not isinstance(target_prefix, str):
            raise InputError("target_prefix of translate_iter should be one str for all texts")
        if isinstance(texts, str):
            raise InputError("texts should be an iterable of str, got one str")
        if not isinstance(texts, Iterable):
            raise InputError(f"texts should be an iterable of str, got {type(texts).__name__}")
        return self._translate_windows(texts, split, target_prefix, decoding, details)

    def _translate_windows(
        self, texts: Iterable[str], split: str, prefix: str | None, options: DecodingOptions, details: bool
    ) -> Iterator[Any]:
        window, documents, tokens, done = FIRST_WINDOW, [], 0, 0
        for text in texts:
            documents.append(self._read(text, prefix, split))
            # An empty text counts too, or a stream of them would never end a window.
            tokens += 1 + sum(len(part) for line in documents[-1].lines for part in line.parts)
            if tokens >= window:
                yield from self._translate_documents(documents, options, details, done)
                window, documents, tokens, done = min(2 * window, LAST_WINDOW), [], 0, done + len(documents)
        yield from self._translate_documents(documents, options, details, done)

    def translate_tokens(
        self,
        sources: Iterable[Sequence[str]],
        target_prefix: Sequence[Sequence[str]] | None = None,
        **options: Any,
    ) -> list[TokenTranslation]:
        """Translate sources that are lists of the source vocabulary's tokens; the options are ``DecodingOptions``' own.

        target_prefix  for each source the tokens that its translation begins with; where the checkpoint names no start
                       token, the first of them is it
        Nothing is split: a source over ``max_source_length`` is an InputError where the model has such a limit.
        """
        listed = token_lists("sources", sources)
        prefixes = [[] for _ in listed] if target_prefix is None else token_lists("target_prefix", target_prefix)
        if len(prefixes) != len(listed):
            raise InputError(
                f"target_prefix should hold one prefix for each source: {len(listed)}, not {len(prefixes)}"
            )
        self._check_sources(listed)
        decoding = self._decoding_options(options, self._sequence_of_tokens)
        return self._translate_parts(listed, prefixes, decoding, [(number, 0) for number in range(len(listed))])

    def score(self, source: str | Sequence[str], target: str | Sequence[str]) -> Score | list[Score]:
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
        self._check_sources(listed)
        source_ids = [self._tokenizer.source_ids(tokens) for tokens in listed]
        log_probs = [np.zeros(len(target) - 1, np.float32) for target in ids]
        chosen = [b for b in range(len(listed)) if len(source_ids[b])]
        scored = score_ids(
            self._model, [source_ids[b] for b in chosen], [np.array(ids[b], np.int32) for b in chosen], self._threads
        )
        for b, log_probs_T in zip(chosen, scored):
            log_probs[b] = log_probs_T
        first = self._tokenizer.forced  # what is forced has no probability of its own
        return [
            Score(self._tokenizer.target_surfaces(target[1 + first :]), row[first:])
            for target, row in zip(ids, log_probs)
        ]

    def _chosen_split(self, split: str | None) -> str:
        if split is None:
            return "sentences" if self._tokenizer.text.single_sentences else "long"
        if split not in SPLITS:
            raise InputError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
        return split

    def _decoding_options(self, options: dict[str, Any], tokens_of: Callable[[Any], Sequence[str]]) -> DecodingOptions:
        known = DecodingOptions.__dataclass_fields__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InputError(f"unknown option {unknown[0]!r}; known: {', '.join(known)}")
        sequences = options.get("suppress_sequences") or ()
        if isinstance(sequences, str) or not isinstance(sequences, Iterable):
            raise InputError(f"suppress_sequences should be a list of what to suppress, got {sequences!r}")
        if "suppress_sequences" in options:
            ids = [self._tokenizer.known_target_ids(tokens_of(sequence)) for sequence in sequences]
            options = options | {"suppress_sequences": ids}
        return resolve_options(self._settings, options)

    def _sequence_of_text(self, text: Any) -> Sequence[str]:
        if not isinstance(text, str):
            raise InputError(f"suppress_sequences should hold texts, got {text!r}")
        return self._tokenizer.target_tokens(text)

    def _sequence_of_tokens(self, tokens: Any) -> Sequence[str]:
        if not isinstance(tokens, list | tuple) or not all(isinstance(token, str) for token in tokens):
            raise InputError(f"suppress_sequences should hold lists of tokens, got {tokens!r}")
        return tokens

    def _check_sources(self, sources: list[list[str]]) -> None:
        for number, source in enumerate(sources):
            if self._positions and len(source) > self.max_source_length:
                raise InputError(
                    f"source {number} has {len(source)} tokens, the model takes {self.max_source_length}; "
                    "translate() splits long text"
                )

    def _read(self, text: str, prefix: str | None, split: str) -> Document:
        if self._tokenizer.text.decoder_start_token is None:
            raise InputError(
                "this model's targets begin with a token of the caller's choice; use translate_tokens and target_prefix"
            )
        if not isinstance(text, str):
            raise InputError(f"a text was expected, not {type(text).__name__}")
        prefix_tokens = self._tokenizer.target_tokens(prefix) if prefix else []
        return Document(split_lines(text, self._tokenizer, self.max_source_length, split), prefix_tokens)

    def _translate_documents(
        self, documents: list[Document], options: DecodingOptions, details: bool, first: int = 0
    ) -> list[Any]:
        """``first`` is the number of the first of the texts, for the callback."""
        if not details:
            options = replace(options, return_scores=False)
        sources = [part for document in documents for line in document.lines for part in line.parts]
        prefixes = chain.from_iterable(document.prefixes() for document in documents)
        counts = (sum(len(line.parts) for line in document.lines) for document in documents)
        places = [(number, part) for number, count in enumerate(counts, start=first) for part in range(count)]
        translated = iter(self._translate_parts(sources, list(prefixes), options, places))
        results: list[Any] = []
        for document in documents:
            lines = [[next(translated) for _ in line.parts] for line in document.lines]
            if details:
                results.append(self._presentation.detail(document.lines, lines, options))
            else:
                results.append(self._presentation.join(document.lines, lines, 0))
        return results

    def _translate_parts(
        self,
        sources: list[list[str]],
        prefixes: list[list[str]],
        options: DecodingOptions,
        places: list[tuple[int, int]],
    ) -> list[TokenTranslation]:
        """``places`` is what the callback knows each source by: a text's number and its part's."""
        tokenizer = self._tokenizer
        starts = [tokenizer.target_ids(prefix) for prefix in prefixes]
        chosen = [b for b in range(len(sources)) if not tokenizer.is_empty(sources[b])]
        jobs = [Job(tokenizer.source_ids(sources[b]), starts[b], forced=tokenizer.forced) for b in chosen]
        if options.callback is not None:
            vocabulary = tokenizer.text.target_vocabulary
            options = replace(options, callback=_named(options.callback, [places[b] for b in chosen], vocabulary))
        ids = tokenizer.end_id, tokenizer.unk_id
        decoded = dict(zip(chosen, decode_sentences(self._model, jobs, options, *ids, self._threads)))
        return [
            self._presentation.tokens(source, decoded[b], options)
            if b in decoded
            else self._presentation.empty(source, starts[b], options)
            for b, source in enumerate(sources)
        ]


def _settings(text: TranslationText) -> dict[str, Any]:
    """The checkpoint's own decoding settings; a warning tells of those that cannot be followed."""
    settings = text.decoding.options() | ({} if text.writes_unknowns else {"disable_unk": True})
    try:
        resolve_options(settings, {})
    except InputError as error:
        raise CheckpointError(f"the checkpoint's own decoding settings cannot be followed: {error}") from None
    if text.decoding.not_followed:
        remarks = "; ".join(text.decoding.not_followed)
        warnings.warn(f"the checkpoint's own settings that are not followed: {remarks}", stacklevel=4)
    return settings


def _named(
    callback: Callable[[Step], Any], places: list[tuple[int, int]], vocabulary: Sequence[str]
) -> Callable[[Step], Any]:
    """``callback`` as the decoder calls it: by the number of the job, without the token's name."""

    def call(step: Step) -> Any:
        sentence, part = places[step.sentence]
        return callback(replace(step, sentence=sentence, part=part, token=vocabulary[step.token_id]))

    return call
