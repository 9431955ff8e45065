"""From texts or tokens to translations: splits texts into parts, decodes the parts, and joins the results."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.search import (
    Allowance,
    Hypothesis,
    Job,
    allowances,
    normalized_score,
    score_plan,
    search_plan,
    timeout_error,
)
from fastattn.decoding.worker import DecodingService, in_windows
from fastattn.errors import FastattnError, InputError, check_text
from fastattn.scheduling.request import Plan
from fastattn.text.languages import LanguagePair
from fastattn.text.translation import Document, TranslationTokenizer, split_lines
from fastattn.translation.calls import (
    Direction,
    Score,
    TextCall,
    TokenLists,
    TokenTranslation,
    Translation,
    token_lists,
)

LONGEST_PART = 1024  # tokens, if the architecture has no limit
READ_AT_ONCE = 16  # texts that a plan reads before other requests have their turn


class PartNumber(NamedTuple):
    """The index of a text, the index of one of its parts, and the text's language pair."""

    text: int
    part: int
    pair: LanguagePair


class Pipeline:
    """Translates with one model and its tokenizer; ``max_positions``: how many the encoder has, 0 for no limit."""

    def __init__(self, service: DecodingService, tokenizer: TranslationTokenizer, max_positions: int):
        self._service, self._tokenizer, self._max_positions = service, tokenizer, max_positions
        self._last_without_scores: tuple[DecodingOptions | None, DecodingOptions] = (None, DecodingOptions())

    @property
    def max_source_length(self) -> int:
        return (self._max_positions or LONGEST_PART) - self._tokenizer.implicit_tokens

    def check_text(self, text: Any, direction: Direction) -> LanguagePair:
        """The language pair of a text; InputError for an invalid text, prefix or language."""
        languages, prefix = self._tokenizer.text.languages, direction.target_prefix
        if self._tokenizer.text.decoder_start_token is None and (languages is None or languages.target != "start"):
            raise InputError(
                "this model's targets begin with a token of the caller's choice; use translate_tokens and target_prefix"
            )
        check_text("a text", text)
        if prefix is not None and not isinstance(prefix, str):
            raise InputError(f"a target prefix should be a str or None, not {type(prefix).__name__}")
        for code in direction[1:]:
            if code is not None:
                check_text("a language", code)
        return self._tokenizer.pair(*direction[1:])

    def read_text(self, text: Any, direction: Direction, call: TextCall) -> Document:
        """A text's lines and their parts, as tokens; raises as ``check_text``, and InputError for a line too long."""
        pair = self.check_text(text, direction)
        prefix_tokens = self._tokenizer.target_tokens(direction.target_prefix) if direction.target_prefix else []
        longest = call.decoding.max_input_length
        lines = split_lines(text, self._tokenizer, self.max_source_length, call.split, longest, pair)
        return Document(lines, prefix_tokens, pair)

    def read_tokens(self, sources: Iterable[Sequence[str]], options: DecodingOptions) -> TokenLists:
        lists = [self._tokenizer.cut(tokens, options.max_input_length) for tokens in token_lists("sources", sources)]
        self.check_sources(lists)
        return lists

    def check_sources(self, sources: TokenLists) -> None:
        for number, source in enumerate(sources):
            if self._max_positions and len(source) > self.max_source_length:
                raise InputError(
                    f"source {number} has {len(source)} tokens, the model takes {self.max_source_length}; "
                    "translate() splits long text"
                )

    def check_each(self, texts: Iterable[tuple[Any, Direction]], return_exceptions: bool) -> Iterator[tuple[int, Any]]:
        """(length, (text, direction)) of each text; with ``return_exceptions``, (0, InputError) of an invalid text."""
        for text, direction in texts:
            try:
                self.check_text(text, direction)
            except InputError as error:
                if not return_exceptions:
                    raise
                yield 0, error
            else:
                yield len(text), (text, direction)

    def translate_windows(
        self, texts: Iterable[tuple[str, Direction]], call: TextCall, return_exceptions: bool
    ) -> Iterator[Any]:
        """Yield the translation of each text, by ``in_windows``."""

        def read() -> Iterator[tuple[int, Document | FastattnError]]:
            for text, direction in texts:
                try:
                    document = self.read_text(text, direction, call)
                    # Empty texts count too, or else a stream of empty texts would never end a window.
                    yield 1 + sum(map(len, document.parts)), document
                except FastattnError as error:
                    if not return_exceptions:
                        raise
                    yield 1, error

        make_plan = partial(self.plan, call=call)
        return in_windows(self._service, read(), make_plan, call.decoding, return_exceptions)

    def plan_texts(self, texts: Sequence[str], directions: Sequence[Direction], call: TextCall) -> Plan:
        """As ``plan``, of texts that the plan reads first."""
        documents: list[Document | FastattnError] = []
        for text, direction in zip(texts, directions):
            if documents and not len(documents) % READ_AT_ONCE:
                yield None
            documents.append(self.read_text(text, direction, call))
        return (yield from self.plan(documents, call=call))

    def plan(self, documents: Sequence[Document | FastattnError], first: int = 0, *, call: TextCall) -> Plan:
        """A plan of each text's translation, or its error; ``first``: the first text's number, for the callback."""
        options = call.decoding if call.details else self._without_scores(call.decoding)
        sources, prefixes, numbers = TokenLists(), TokenLists(), list[PartNumber]()
        for number, document in enumerate(documents, first):
            if isinstance(document, Document):
                sources += document.parts
                prefixes += document.prefixes
                numbers += (PartNumber(number, part, document.pair) for part in range(len(document.parts)))
        translations = iter((yield from self.plan_parts(sources, prefixes, options, numbers)))
        results: list[Any] = []
        for document in documents:
            if isinstance(document, FastattnError):
                results.append(document)
                continue
            lines = [[next(translations) for _ in line.parts] for line in document.lines]
            error = next((part for parts in lines for part in parts if isinstance(part, FastattnError)), None)
            if error is not None:
                results.append(error)
            elif call.details:
                results.append(self._join_with_details(document, lines, options))
            else:
                results.append(self._join(document, lines, 0))
        return results

    def _without_scores(self, options: DecodingOptions) -> DecodingOptions:
        """The options without return_scores. The last result is used again, since making one takes 15 us."""
        last_options, without_scores = self._last_without_scores
        if options is not last_options:
            without_scores = replace(options, return_scores=False)
            if options.callback is None:  # a callback may keep anything alive
                self._last_without_scores = options, without_scores
        return without_scores

    def plan_parts(
        self,
        sources: TokenLists,
        prefixes: TokenLists,
        options: DecodingOptions,
        numbers: list[PartNumber] | None = None,
    ) -> Plan:
        """A plan of each source's TokenTranslation, or a SearchTimeout.

        numbers  the PartNumber of each source, for callbacks and timeouts of texts; None: each source is a whole text
        """
        tokenizer = self._tokenizer
        if numbers is None:
            numbers = [PartNumber(text, 0, tokenizer.token_pair) for text in range(len(sources))]
        starts = [tokenizer.target_ids(prefix, number.pair) for prefix, number in zip(prefixes, numbers)]
        nonempty = [b for b in range(len(sources)) if not tokenizer.is_empty(sources[b])]
        allowance_of = allowances((number.text for number in numbers), options)
        if (callback := options.callback) is not None:

            def call_back(step: Step) -> Any:
                text_step = self._text_step(step, numbers[nonempty[step.sentence]])
                return text_step is not None and callback(text_step)

            options = replace(options, callback=call_back)
        jobs = [
            self._job(sources[b], starts[b], options, allowance_of.get(numbers[b].text), numbers[b].pair.forced_tokens)
            for b in nonempty
        ]
        hypotheses_of = dict(zip(nonempty, (yield from search_plan(jobs, self._service.model.sizes))))
        results: list[Any] = []
        for b, source in enumerate(sources):
            forced = numbers[b].pair.forced_tokens
            if b not in hypotheses_of:
                results.append(self._empty_translation(source, starts[b], options, forced))
            elif hypotheses_of[b]:
                results.append(self._translation_of(source, hypotheses_of[b], options, forced))
            else:
                results.append(timeout_error(options))
        return results

    def stream(
        self, sources: TokenLists, prefixes: TokenLists, options: DecodingOptions, pair: LanguagePair | None = None
    ) -> Iterator[Step]:
        """Yield the Steps of the parts of one text, one part after another, computed on demand.

        pair  the text's language pair; None if the sources were given as tokens
        """
        pair = pair or self._tokenizer.token_pair
        starts = [self._tokenizer.target_ids(prefix, pair) for prefix in prefixes]

        def steps() -> Iterator[Step]:
            allowance = allowances([0], options).get(0)
            for part, (source, start) in enumerate(zip(sources, starts)):
                if not self._tokenizer.is_empty(source):
                    for step in self._service.stream(self._job(source, start, options, allowance, pair.forced_tokens)):
                        if (text_step := self._text_step(step, PartNumber(0, part, pair))) is not None:
                            yield text_step

        return steps()

    def plan_scores(self, sources: TokenLists, targets: TokenLists, directions: Sequence[Direction] = ()) -> Plan:
        """A plan of each target's Score for its source; all 0 for an empty source, for which the model does not run.

        directions  of each source; empty if the sources were given as tokens
        """
        tokenizer = self._tokenizer
        pairs = [tokenizer.pair(*direction[1:]) for direction in directions] or [tokenizer.token_pair] * len(targets)
        target_ids = [[*tokenizer.target_ids(tokens, pair), tokenizer.end_id] for tokens, pair in zip(targets, pairs)]
        source_ids = [tokenizer.source_ids(tokens) for tokens in sources]
        log_probs = [np.zeros(len(ids) - 1, np.float32) for ids in target_ids]
        nonempty = [b for b in range(len(sources)) if len(source_ids[b])]
        arrays = [np.array(target_ids[b], np.int32) for b in nonempty]
        for b, log_probs_T in zip(nonempty, (yield from score_plan([source_ids[b] for b in nonempty], arrays))):
            log_probs[b] = log_probs_T
        return [  # without the forced tokens, which are not scored
            Score(tokenizer.target_surfaces(ids[1 + pair.forced_tokens :]), log_probs_T[pair.forced_tokens :])
            for ids, log_probs_T, pair in zip(target_ids, log_probs, pairs)
        ]

    def _job(
        self, source: list[str], start: list[int], options: DecodingOptions, allowance: Allowance | None, forced: int
    ) -> Job:
        vocabulary_map = self._tokenizer.vocabulary_map if options.shortlist else None
        allowed = None if vocabulary_map is None else partial(vocabulary_map.candidates, source)
        return Job(
            self._tokenizer.source_ids(source),
            start[:1],
            start[1:],
            options,
            imposed_tokens=forced,
            find_allowed_ids=allowed,
            penalizes_start=options.rules is not None,
            allowance=allowance,
        )

    def _text_step(self, step: Step, number: PartNumber) -> Step | None:
        """A decoder's Step of a job, with the numbers of text and part, and the token; None for a forced token."""
        position = step.position - number.pair.forced_tokens
        if position < 0:
            return None
        token = self._tokenizer.text.target_vocabulary[step.token_id]
        return replace(step, sentence=number.text, part=number.part, position=position, token=token)

    def _join(self, document: Document, lines: list[list[TokenTranslation]], rank: int) -> str:
        """The text of a document's hypotheses of this rank; ``lines``: the translated parts of each line."""
        texts, language = [], document.pair.target
        for line, parts in zip(document.lines, lines):
            sentences = [self._tokenizer.join(part.hypotheses[rank]) for part in parts]
            text = self._tokenizer.join_sentences(sentences, language) if sentences else line.untranslated
            texts.append(text + line.end)
        return "".join(texts)

    def _join_with_details(
        self, document: Document, lines: list[list[TokenTranslation]], options: DecodingOptions
    ) -> Translation:
        parts = list(chain.from_iterable(lines))
        ranks = range(min((len(part.hypotheses) for part in parts), default=options.num_hypotheses))
        hypotheses = [self._join(document, lines, rank) for rank in ranks]
        if len(parts) == 1:
            scores = parts[0].scores
        else:
            lengths = [sum(part.lengths[rank] for part in parts) for rank in ranks]
            totals = [sum(part.log_probabilities[rank] for part in parts) for rank in ranks]
            penalties = options.length_penalty, options.word_penalty
            scores = [normalized_score(total, length, *penalties) for total, length in zip(totals, lengths)]
        return Translation(hypotheses[0], hypotheses, scores, parts)

    def _translation_of(
        self, source: list[str], hypotheses: list[Hypothesis], options: DecodingOptions, forced: int
    ) -> TokenTranslation:
        """The TokenTranslation of a search's hypotheses, without their first ``forced`` tokens."""
        first = int(self._tokenizer.text.add_source_bos)  # the column of the source's first token
        attention = [
            np.ascontiguousarray(h.attention_TS[forced:, first : first + len(source)])
            for h in hypotheses
            if h.attention_TS is not None
        ]
        tokens = [self._tokenizer.target_surfaces(hypothesis.tokens[forced:]) for hypothesis in hypotheses]
        if options.replace_unknowns:
            unknown = self._tokenizer.text.unk_token
            for surfaces, attention_TS in zip(tokens, attention):
                for t, surface in enumerate(surfaces):
                    if surface == unknown:
                        surfaces[t] = source[int(attention_TS[t].argmax())]
        scores, log_probs, lengths = map(list, zip(*((h.score, h.log_probability, h.length) for h in hypotheses)))
        returned_attention = attention if options.return_attention else None
        return TokenTranslation(source, tokens, scores, log_probs, lengths, returned_attention)

    def _empty_translation(
        self, source: list[str], start: list[int], options: DecodingOptions, forced: int
    ) -> TokenTranslation:
        """The translation of an empty source: the target prefix alone."""
        count = options.num_hypotheses
        end = 1 + options.limit(0, self._service.model.sizes.max_positions)
        tokens = self._tokenizer.target_surfaces(start[1 + forced : end])
        attention = [np.zeros((len(tokens), len(source)), np.float32)] * count if options.return_attention else None
        return TokenTranslation(source, [tokens] * count, [0.0] * count, [0.0] * count, [0] * count, attention)
