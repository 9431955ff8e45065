"""From texts or tokens to translations: split into parts, decoded, joined again."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fastattn.decoding.jobs import Allowance, Job, allowances, late_search
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.service import DecodingService, score_plan, search_plan
from fastattn.decoding.windows import in_windows
from fastattn.errors import FastattnError, InputError, check_text
from fastattn.scheduling.request import Plan
from fastattn.text.translation import Document, TranslationTokenizer, split_lines
from fastattn.translation.calls import Presentation, Score, TextCall, token_lists

# A part's length where the architecture has no limit of its own.
UNLIMITED = 1024
READ_AT_ONCE = 16  # texts, between which others have their turn


class PartNumber(NamedTuple):
    """Which part of which text, from 0."""

    text: int
    part: int


class Pipeline:
    """Translates with one model and its tokenizer.

    max_positions  of the model's encoder; 0: no limit
    """

    def __init__(self, service: DecodingService, tokenizer: TranslationTokenizer, max_positions: int):
        self._service, self._tokenizer, self._max_positions = service, tokenizer, max_positions
        self._presentation = Presentation(tokenizer, service.model.sizes.max_positions)
        self._last: tuple[DecodingOptions | None, DecodingOptions] = (None, DecodingOptions())

    @property
    def max_source_length(self) -> int:
        return (self._max_positions or UNLIMITED) - self._tokenizer.implicit_tokens

    def check_text(self, text: Any, prefix: Any) -> None:
        """Raise InputError for what is no text to translate, or no prefix."""
        if self._tokenizer.text.decoder_start_token is None:
            raise InputError(
                "this model's targets begin with a token of the caller's choice; use translate_tokens and target_prefix"
            )
        check_text("a text", text)
        if prefix is not None and not isinstance(prefix, str):
            raise InputError(f"a target prefix should be a str or None, not {type(prefix).__name__}")

    def check_texts(self, texts: Sequence[Any], prefixes: Sequence[Any]) -> None:
        """Raise InputError for the first that is no text to translate, or no prefix."""
        for text, prefix in zip(texts, prefixes):
            self.check_text(text, prefix)

    def read_text(self, text: Any, prefix: Any, call: TextCall) -> Document:
        self.check_text(text, prefix)
        prefix_tokens = self._tokenizer.target_tokens(prefix) if prefix else []
        longest = call.decoding.max_input_length
        return Document(split_lines(text, self._tokenizer, self.max_source_length, call.split, longest), prefix_tokens)

    def read_tokens(self, sources: Iterable[Sequence[str]], options: DecodingOptions) -> list[list[str]]:
        listed = token_lists("sources", sources)
        cut = [self._tokenizer.cut(tokens, options.max_input_length) for tokens in listed]
        self.check_sources(cut)
        return cut

    def check_sources(self, sources: list[list[str]]) -> None:
        for number, source in enumerate(sources):
            if self._max_positions and len(source) > self.max_source_length:
                raise InputError(
                    f"source {number} has {len(source)} tokens, the model takes {self.max_source_length}; "
                    "translate() splits long text"
                )

    def checked(self, pairs: Iterable[tuple[Any, Any]], return_exceptions: bool) -> Iterator[tuple[int, Any]]:
        """(length, pair) of each text and prefix; an InputError is raised, or is in the place of a pair."""
        for text, prefix in pairs:
            try:
                self.check_text(text, prefix)
            except InputError as error:
                if not return_exceptions:
                    raise
                yield 0, error
            else:
                yield len(text), (text, prefix)

    def translate_windows(
        self,
        texts: Iterable[tuple[str, str | None]],
        call: TextCall,
        return_exceptions: bool,
    ) -> Iterator[Any]:
        """The translation of each text, as ``in_windows`` yields them."""
        source = self._read(iter(texts), call, return_exceptions)
        make_plan = partial(self.plan, call=call)
        return in_windows(self._service, source, make_plan, call.decoding, return_exceptions)

    def _read(
        self, pairs: Iterator[tuple[str, str | None]], call: TextCall, return_exceptions: bool
    ) -> Iterator[tuple[int, Document | FastattnError]]:
        """(tokens, text) of each text and prefix; with ``return_exceptions`` errors too."""
        for text, prefix in pairs:
            try:
                document = self.read_text(text, prefix, call)
            except FastattnError as error:
                if not return_exceptions:
                    raise
                yield 1, error
            else:  # empty texts count too, or a stream of them would never end a window
                yield 1 + sum(len(part) for line in document.lines for part in line.parts), document

    def plan_texts(self, texts: Sequence[str], prefixes: Sequence[str | None], call: TextCall) -> Plan:
        """``plan`` of texts that it reads itself."""
        documents: list[Document | FastattnError] = []
        for text, prefix in zip(texts, prefixes):
            if documents and not len(documents) % READ_AT_ONCE:
                yield None
            documents.append(self.read_text(text, prefix, call))
        return (yield from self.plan(documents, call=call))

    def plan(self, documents: Sequence[Document | FastattnError], first: int = 0, *, call: TextCall) -> Plan:
        """The translation of each text, or its error.

        first  the first text's number, for the callback
        """
        options = call.decoding if call.details else self._without_scores(call.decoding)
        read = [(n, document) for n, document in enumerate(documents, first) if isinstance(document, Document)]
        sources = [part for _, document in read for line in document.lines for part in line.parts]
        prefixes = chain.from_iterable(document.prefixes() for _, document in read)
        counts = ((number, sum(len(line.parts) for line in document.lines)) for number, document in read)
        numbers = [PartNumber(number, part) for number, count in counts for part in range(count)]
        translated = iter((yield from self.plan_parts(sources, list(prefixes), options, numbers)))
        results: list[Any] = []
        for document in documents:
            if isinstance(document, FastattnError):
                results.append(document)
                continue
            lines = [[next(translated) for _ in line.parts] for line in document.lines]
            late = next((part for parts in lines for part in parts if isinstance(part, FastattnError)), None)
            if late is not None:
                results.append(late)
            elif call.details:
                results.append(self._presentation.detail(document.lines, lines, options))
            else:
                results.append(self._presentation.join(document.lines, lines, 0))
        return results

    def _without_scores(self, options: DecodingOptions) -> DecodingOptions:
        """The same object for the same options as last time, since making one takes 15 us."""
        last, without = self._last
        if options is not last:
            without = replace(options, return_scores=False)
            if options.callback is None:  # which may hold anything
                self._last = options, without
        return without

    def plan_parts(
        self,
        sources: list[list[str]],
        prefixes: list[list[str]],
        options: DecodingOptions,
        numbers: list[PartNumber] | None = None,
    ) -> Plan:
        """The TokenTranslation of each source, or a SearchTimeout.

        numbers  of each source, for the callback and the time that a text has; None: each source is a text
        """
        if numbers is None:
            numbers = [PartNumber(text, 0) for text in range(len(sources))]
        tokenizer = self._tokenizer
        starts = [tokenizer.target_ids(prefix) for prefix in prefixes]
        chosen = [b for b in range(len(sources)) if not tokenizer.is_empty(sources[b])]
        left = allowances((number.text for number in numbers), options)
        if options.callback is not None:
            options = replace(options, callback=self._shown(options.callback, [numbers[b] for b in chosen]))
        jobs = [self._job(sources[b], starts[b], options, left.get(numbers[b].text)) for b in chosen]
        decoded = dict(zip(chosen, (yield from search_plan(jobs, self._service.model.sizes))))
        results: list[Any] = []
        for b, source in enumerate(sources):
            if b not in decoded:
                results.append(self._presentation.empty(source, starts[b], options))
            elif decoded[b]:
                results.append(self._presentation.tokens(source, decoded[b], options))
            else:
                results.append(late_search(options))
        return results

    def stream(self, sources: list[list[str]], prefixes: list[list[str]], options: DecodingOptions) -> Iterator[Step]:
        """Yield the tokens of the parts of one text, part after part, as they are asked for."""
        starts = [self._tokenizer.target_ids(prefix) for prefix in prefixes]
        return self._stream_parts(sources, starts, options)

    def _stream_parts(
        self, sources: list[list[str]], starts: list[list[int]], options: DecodingOptions
    ) -> Iterator[Step]:
        shown: list[Step] = []
        allowance = allowances([0], options).get(0)
        for part, (source, start) in enumerate(zip(sources, starts)):
            if not self._tokenizer.is_empty(source):
                job = self._job(source, start, options, allowance)
                show = self._shown(shown.append, [PartNumber(0, part)])
                for step in self._service.stream(job):
                    show(step)
                    yield from shown
                    shown.clear()

    def read_pairs(
        self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Sources and targets to score, checked."""
        read = token_lists("sources", sources), token_lists("targets", targets)
        if len(read[0]) != len(read[1]):
            raise InputError(f"score should be given as many targets as sources: {len(read[0])}, not {len(read[1])}")
        self.check_sources(read[0])
        return read

    def plan_scores(self, listed: list[list[str]], targets: list[list[str]]) -> Plan:
        """The Score of each target for its source; for an empty source the model does not run, and all is 0."""
        tokenizer = self._tokenizer
        ids = [[*tokenizer.target_ids(tokens), tokenizer.end_id] for tokens in targets]
        source_ids = [tokenizer.source_ids(tokens) for tokens in listed]
        log_probs = [np.zeros(len(target) - 1, np.float32) for target in ids]
        chosen = [b for b in range(len(listed)) if len(source_ids[b])]
        given = [source_ids[b] for b in chosen], [np.array(ids[b], np.int32) for b in chosen]
        for b, log_probs_T in zip(chosen, (yield from score_plan(*given))):
            log_probs[b] = log_probs_T
        first = tokenizer.forced  # what is forced has no probability of its own
        return [
            Score(tokenizer.target_surfaces(target[1 + first :]), row[first:]) for target, row in zip(ids, log_probs)
        ]

    def _job(self, source: list[str], start: list[int], options: DecodingOptions, allowance: Allowance | None) -> Job:
        vocabulary_map = self._tokenizer.vocabulary_map if options.shortlist else None
        allowed = None if vocabulary_map is None else partial(vocabulary_map.candidates, source)
        return Job(
            self._tokenizer.source_ids(source),
            start[:1],
            start[1:],
            options,
            forced=self._tokenizer.forced,
            allowed=allowed,
            allowance=allowance,
        )

    def _shown(self, callback: Callable[[Step], Any], numbers: list[PartNumber]) -> Callable[[Step], Any]:
        """``callback`` for the decoder, which knows a job's number and token ids: adds text, part and token.

        numbers  of each job. Forced tokens are left out.
        """
        forced, vocabulary = self._tokenizer.forced, self._tokenizer.text.target_vocabulary

        def call(step: Step) -> Any:
            if step.position < forced:
                return False
            sentence, part = numbers[step.sentence]
            position, token = step.position - forced, vocabulary[step.token_id]
            return callback(replace(step, sentence=sentence, part=part, position=position, token=token))

        return call
