"""The calls that all dialects use. Each finds a model, checks a request's size and waits for the model's answer."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.errors import InputError
from fastattn.generation.calls import Generation
from fastattn.generation.generator import Generator
from fastattn.serve.models import ModelStore
from fastattn.serve.settings import Refusal, ServerSettings
from fastattn.system.records import dataclass, lazy
from fastattn.text.huggingface import TextToken
from fastattn.text.languages import iso_code, likely_languages
from fastattn.translation.alignment import WordLink, word_links
from fastattn.translation.translator import Translator

# The caller whose request this is, by the number of a key or by an address: callers take turns. The gate sets it.
CALLER: ContextVar[Hashable] = ContextVar("caller", default=None)
# The caller's ``KeyQuota`` (``serve/gate.py``), which the gate sets too.
QUOTA: ContextVar[Any] = ContextVar("characters")
MOST_ALTERNATIVES = 16
TEXTS_AT_ONCE = 16  # texts that are scored in one go; a request is abandoned between two goes if its client has gone
AUTO = "auto"


@dataclass(frozen=True)
class DetectedLanguage:
    """A language by its code, with a confidence from 0 to 100."""

    language: str
    confidence: float


@dataclass(frozen=True)
class TextTranslation:
    """A text's translation; ``detected`` if the request's source is AUTO, ``links`` if the request asks for them."""

    text: str
    source: str
    target: str
    alternatives: tuple[str, ...] = ()
    detected: DetectedLanguage | None = None
    links: tuple[WordLink, ...] = ()


class Service:
    """What a server's models answer, to several requests at once."""

    def __init__(self, settings: ServerSettings):
        self.settings, self.models = settings, ModelStore(settings)

    @lazy
    def pairs(self) -> dict[tuple[str, str], str]:
        """(source, target) -> name of the first model that translates so; to be read after ``ModelStore.load_all``."""
        names = self.models.names_of((Translator,))
        return {pair: name for name in reversed(names) for pair in self.models.served[name].pairs}

    @lazy
    def sources(self) -> dict[str, list[str]]:
        """target -> the languages from which some model translates to it."""
        sources: dict[str, list[str]] = {}
        for source, target in sorted(self.pairs):
            sources.setdefault(target, []).append(source)
        return sources

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        *,
        alternatives: int = 0,
        with_links: bool = False,
        **options: Any,
    ) -> list[TextTranslation]:
        """Each text's translation; ``source`` may be AUTO. A Refusal for a pair of languages without a model."""
        charge = self.check_size(texts)
        target, pairs = language_code(target), self.pairs
        sources = self.sources.get(target)
        if not sources:
            raise Refusal(400, f"no model translates to {target!r}; to {list_codes(self.sources)}")
        detected: list[DetectedLanguage | None] = [None] * len(texts)
        if source == AUTO:
            detected = [(await self.detect(text, sources))[0] for text in texts]
        codes = [language_code(source, sources) if language is None else language.language for language in detected]
        for code in codes:
            if (code, target) not in pairs:
                raise Refusal(400, f"no model translates from {code!r} to {target!r}; from {list_codes(sources)}")
        charge()
        if alternatives:
            options["num_hypotheses"] = alternatives + 1
        translations: list[Any] = [None] * len(texts)
        for code in dict.fromkeys(codes):
            positions = [b for b, text_code in enumerate(codes) if text_code == code]
            async with self.models.use(pairs[code, target]) as model:
                beam = max(model.default_options.beam_size, alternatives + 1)
                arguments = {"beam_size": beam, "details": True, "caller": CALLER.get(), "return_attention": with_links}
                if self.models.served[pairs[code, target]].takes_languages:
                    arguments |= {"source_lang": code, "target_lang": target}
                translate_texts = partial(model.translate_async, **arguments)
                for b, result in zip(positions, await translate_texts([texts[b] for b in positions], **options)):
                    links, hypotheses = word_links(texts[b], result) if with_links else (), result.hypotheses[1:]
                    translations[b] = TextTranslation(
                        result.text, code, target, tuple(hypotheses), detected[b], tuple(links)
                    )
        return translations

    async def detect(self, text: str, among: Sequence[str] = ()) -> list[DetectedLanguage]:
        """A text's likely languages, most likely first, limited to ``among`` if given; confidence is among all."""
        ranked = await asyncio.to_thread(likely_languages, text, tuple(among))
        return [DetectedLanguage(code, round(100 * probability, 1)) for code, probability in ranked]

    async def embed(
        self, texts: Sequence[Any], model: str | None, *, truncate: bool, count: bool = False, **options: Any
    ) -> tuple[np.ndarray, int, str]:
        """(float32 vectors [texts, dimension]; the number of tokens, 0 unless ``count``; the model's name).

        texts     texts, or lists of token ids of the model's vocabulary
        truncate  whether a text longer than the model reads is cut; if not, the request is refused
        """
        name = self.models.find(model, Encoder)
        async with self.models.use(name) as encoder:
            decoded_texts = [text if isinstance(text, str) else encoder.decode(text) for text in texts]
            charge = self.check_size(decoded_texts)
            arguments = {"long": "truncate" if truncate else "error", **options}
            if (dimensions := options.get("truncate_dim") or 0) > encoder.dimension:
                raise Refusal(400, f"dimensions should be at most {encoder.dimension}, are {dimensions}")
            charge()
            vectors_BD = await encoder.encode_async(decoded_texts, caller=CALLER.get(), **arguments)
            tokens = int((await asyncio.to_thread(encoder.count_tokens, decoded_texts)).sum()) if count else 0
        return vectors_BD, tokens, name

    async def rank(self, query: str, texts: Sequence[str], raw: bool, truncate: bool) -> list[dict[str, Any]]:
        """``CrossEncoder.rank`` of the texts: entries with a text's index and its score, best first."""
        charge = self.check_size([query, *texts])
        async with self.models.use(self.models.find(None, CrossEncoder)) as model:
            await asyncio.to_thread(_check_lengths, model, [(query, text) for text in texts], truncate)
            charge()
            score = partial(model.rank, query, **{"activation_fn": "none"} if raw else {})
            ranked = []
            for start in range(0, len(texts), TEXTS_AT_ONCE):
                entries = await asyncio.to_thread(score, texts[start : start + TEXTS_AT_ONCE])
                ranked += [entry | {"corpus_id": entry["corpus_id"] + start} for entry in entries]
            return sorted(ranked, key=lambda entry: (math.isnan(entry["score"]), -entry["score"], entry["corpus_id"]))

    async def classify(self, texts: Sequence[tuple[str, ...]], truncate: bool) -> list[list[dict[str, Any]]]:
        """The labels of each text or pair and their probabilities, most probable first."""
        charge = self.check_size(["".join(text) for text in texts])
        async with self.models.use(self.models.find(None, TextClassifier)) as model:
            await asyncio.to_thread(_check_lengths, model, texts, truncate)
            charge()
            labels: list[Any] = [None] * len(texts)
            for is_single in (True, False):
                positions = [b for b, text in enumerate(texts) if (len(text) == 1) == is_single]
                for start in range(0, len(positions), TEXTS_AT_ONCE):
                    batch = positions[start : start + TEXTS_AT_ONCE]
                    batch_texts = [texts[b][0] if is_single else texts[b] for b in batch]
                    for b, ranked in zip(batch, await asyncio.to_thread(model.classify, batch_texts)):
                        labels[b] = ranked
            return labels

    async def tokenize(self, texts: Sequence[str], special: bool) -> list[list[TextToken]]:
        """Each text's tokens, also those behind the most that the model reads."""
        charge = self.check_size(texts)
        name = self.models.find(None, Encoder, CrossEncoder, TextClassifier)
        charge()
        async with self.models.use(name) as model:
            tokenize_text = partial(model.tokenize, special_tokens=special)
            return await asyncio.to_thread(lambda: list(map(tokenize_text, texts)))

    async def answer(self, model: str | None, messages: Sequence[Any], **options: Any) -> tuple[list[Generation], str]:
        """(the answers to a conversation, best first, or in the order in which they are sampled; the model's name)."""
        charge = self.check_size([str(message.get("content", "")) for message in messages])
        name = self.models.find(model, Generator)
        charge()
        async with self.models.use(name) as generator:
            best = await generator.generate_async(messages=messages, details=True, caller=CALLER.get(), **options)
        return [best, *best.alternatives], name

    async def stream(self, model: str | None, messages: Sequence[Any], **options: Any) -> AsyncIterator[Any]:
        """The pieces of an answer's text as they are decoded, then the whole Generation."""
        charge = self.check_size([str(message.get("content", "")) for message in messages])
        async with self.models.use(self.models.find(model, Generator)) as generator:
            charge()
            async for piece in generator.stream_async(messages=messages, caller=CALLER.get(), **options):
                yield piece

    def check_size(self, texts: Sequence[str]) -> Callable[[], None]:
        """A Refusal for more texts or characters than one request may have. Returns a function, to be called after all
        other checks, that takes the characters from the caller's quota.
        """
        if len(texts) > self.settings.items:
            raise Refusal(413, f"a request may have {self.settings.items} texts, this one has {len(texts)}")
        characters = sum(map(len, texts))
        if characters > self.settings.characters:
            raise Refusal(413, f"a request may have {self.settings.characters} characters, this one has {characters}")
        return partial(QUOTA.get().take, characters)


def _check_lengths(model: Any, texts: Sequence[tuple[str, ...]], truncate: bool) -> None:
    """A Refusal for a text or a pair of texts that the model would cut, unless ``truncate``."""
    for number, text in enumerate(() if truncate else texts):
        tokens = len(model.tokenize(text[0])) if len(text) == 1 else model.count_pair_tokens([text])[0]
        if tokens > model.max_length:
            advice = f"the model reads {model.max_length}: ask for truncate, or less"
            raise Refusal(413, f"text {number} has {tokens} tokens, {advice}")


def language_code(code: str, among: Sequence[str] = ()) -> str:
    """A client's code of a language as this server's models have it: "PT-BR" is "pt", "zh-TW" is "zh-Hant".

    among  the models' codes: a code with a script that they lack becomes the code without the script, if they have that
    """
    if not code.isascii() or not 0 < len(code.strip()) <= 32:
        raise InputError("a language should be a code such as en")
    language = iso_code(code.strip().lower())
    without_script = language.partition("-")[0]
    return without_script if without_script in among and language not in among else language


def list_codes(codes: Any) -> str:
    """Codes as the list in an error's message."""
    return ", ".join(sorted(set(codes))) or "nothing: this server has no translation model"
