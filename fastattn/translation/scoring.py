"""What a Translator makes of given translations: the log-probability of each token."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import overload

from fastattn.decoding.service import DecodingService
from fastattn.errors import InputError, check_texts, without_errors
from fastattn.loading.loaded_model import ModelBase
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.calls import Beside, EachText, OptionResolver, Score, beside_each
from fastattn.translation.pipeline import Pipeline


class ScoringTranslator(ModelBase):
    """The base of Translator: its scores of given translations."""

    _resolver: OptionResolver
    _tokenizer: TranslationTokenizer
    _pipeline: Pipeline
    _service: DecodingService

    @overload
    def score(  # type: ignore[overload-overlap]  # a str is Iterable[str]
        self, source: str, target: str, source_lang: str | None = ..., target_lang: str | None = ...
    ) -> Score: ...
    @overload
    def score(
        self, source: Iterable[str], target: Iterable[str], source_lang: EachText = ..., target_lang: EachText = ...
    ) -> list[Score]: ...

    def score(
        self,
        source: str | Iterable[str],
        target: str | Iterable[str],
        source_lang: EachText = None,
        target_lang: EachText = None,
    ) -> Score | list[Score]:
        """The model's log-probability of each token of a given translation, the end token included.

        Two texts give a Score, two lists of texts a list of them. Nothing is split: text that is longer than the model
        has positions for is an InputError. source_lang, target_lang: as in ``translate``.
        """
        if isinstance(source, str) != isinstance(target, str):
            raise InputError("score should be given two texts, or two lists of texts")
        sources = [source] if isinstance(source, str) else check_texts("source", source)
        targets = [target] if isinstance(target, str) else check_texts("target", target)
        besides = beside_each(sources, self._resolver.beside({"source_lang": source_lang, "target_lang": target_lang}))
        pairs = [self._pipeline.check_text(text, beside) for text, beside in zip(sources, besides)]
        tokens = [self._tokenizer.surrounded_tokens(text, pair) for text, pair in zip(sources, pairs)]
        scores = self._scored(tokens, [self._tokenizer.target_tokens(text) for text in targets], besides)
        return scores[0] if isinstance(source, str) else scores

    def score_tokens(self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> list[Score]:
        """``score`` of tokens instead of texts; the end token is added to each target.

        For an empty source the model does not run, and every token scores 0.
        """
        return self._scored(sources, targets)

    def _scored(
        self, sources: Iterable[Sequence[str]], targets: Iterable[Sequence[str]], besides: Sequence[Beside] = ()
    ) -> list[Score]:
        read = (*self._pipeline.read_pairs(sources, targets), besides)
        if pool := self._pool_for(len(read[0])):
            return without_errors(pool.scheduler.run(partial(pool.plan_scores, *read)))
        return self._service.scheduler().run(partial(self._pipeline.plan_scores, *read))
