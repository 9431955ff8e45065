"""The few calls that all dialects are made of: they find a model, check a request's size, and wait for answers."""

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

# Who asks, for shares of the work: a key or an address. Set by the gate for all that a request awaits.
CALLER: ContextVar[Hashable] = ContextVar("caller", default=None)
# Whose characters the texts are, in the same way: ``gate.KeyQuota``.
CHARACTERS: ContextVar[Any] = ContextVar("characters")
MOST_ALTERNATIVES = 16
TOGETHER = 16  # texts that are scored between two looks at whether the client is still there
AUTO = "auto"


@dataclass(frozen=True)
class Detected:
    """A language by its code, and how sure that is, 0 to 100."""

    language: str
    confidence: float


@dataclass(frozen=True)
class Translated:
    """A text's translation; ``detected`` where its language was asked to be found, ``links`` if they were asked for."""

    text: str
    source: str
    target: str
    alternatives: tuple[str, ...] = ()
    detected: Detected | None = None
    links: tuple[WordLink, ...] = ()


class Service:
    """What a server can do with its models, for several requests at once."""

    def __init__(self, settings: ServerSettings):
        self.settings, self.models = settings, ModelStore(settings)

    # translation

    @lazy
    def pairs(self) -> dict[tuple[str, str], str]:
        """(source, target) -> the name of the first model that translates so; asked for when all were looked at."""
        names = self.models.named((Translator,))
        return {pair: name for name in reversed(names) for pair in self.models.served[name].pairs}

    @lazy
    def sources(self) -> dict[str, list[str]]:
        """target -> the languages that are translated to it."""
        found: dict[str, list[str]] = {}
        for source, target in sorted(self.pairs):
            found.setdefault(target, []).append(source)
        return found

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        *,
        alternatives: int = 0,
        with_links: bool = False,
        **options: Any,
    ) -> list[Translated]:
        """Each text's translation; ``source`` may be AUTO. Refuses pairs of languages without a model."""
        charge = self.check_size(texts)
        target, pairs = known_code(target), self.pairs
        sources = self.sources.get(target)
        if not sources:
            raise Refusal(400, f"no model translates to {target!r}; to {listed(self.sources)}")
        detected: list[Detected | None] = [None] * len(texts)
        if source == AUTO:
            detected = [(await self.detect(text, sources))[0] for text in texts]
        codes = [known_code(source, sources) if one is None else one.language for one in detected]
        for code in codes:
            if (code, target) not in pairs:
                raise Refusal(400, f"no model translates from {code!r} to {target!r}; from {listed(sources)}")
        charge()
        if alternatives:
            options["num_hypotheses"] = alternatives + 1
        found: list[Any] = [None] * len(texts)
        for code in dict.fromkeys(codes):
            chosen = [b for b, one in enumerate(codes) if one == code]
            async with self.models.use(pairs[code, target]) as model:
                beam = max(model.default_options.beam_size, alternatives + 1)
                how = {"beam_size": beam, "details": True, "caller": CALLER.get(), "return_attention": with_links}
                if self.models.served[pairs[code, target]].names_languages:
                    how |= {"source_lang": code, "target_lang": target}
                asked = partial(model.translate_async, **how)
                for b, one in zip(chosen, await asked([texts[b] for b in chosen], **options)):
                    links = tuple(word_links(texts[b], one)) if with_links else ()
                    found[b] = Translated(one.text, code, target, tuple(one.hypotheses[1:]), detected[b], links)
        return found

    async def detect(self, text: str, among: Sequence[str] = ()) -> list[Detected]:
        """The likely languages of a text, most likely first; ``among`` these, each as sure as it is among all."""
        ranked = await asyncio.to_thread(likely_languages, text, tuple(among))
        return [Detected(code, round(100 * probability, 1)) for code, probability in ranked]

    # vectors and scores

    async def embed(
        self, texts: Sequence[Any], model: str | None, *, truncate: bool, count: bool = False, **options: Any
    ) -> tuple[np.ndarray, int, str]:
        """(float32 vectors [texts, dimension], tokens of all, 0 unless counted, the model's name).

        texts     or lists of token ids of the model's vocabulary
        truncate  whether a longer text is cut; else it is refused
        """
        name = self.models.find(model, Encoder)
        async with self.models.use(name) as encoder:
            read = [one if isinstance(one, str) else encoder.decode(one) for one in texts]
            charge = self.check_size(read)
            how = {"long": "truncate" if truncate else "error", **options}
            if (wanted := options.get("truncate_dim") or 0) > encoder.dimension:
                raise Refusal(400, f"dimensions should be at most {encoder.dimension}, are {wanted}")
            charge()
            vectors_BD = await encoder.encode_async(read, caller=CALLER.get(), **how)
            tokens = int((await asyncio.to_thread(encoder.count_tokens, read)).sum()) if count else 0
        return vectors_BD, tokens, name

    async def rank(self, query: str, texts: Sequence[str], raw: bool, truncate: bool) -> list[dict[str, Any]]:
        """The texts' numbers and scores for the query, best first."""
        charge = self.check_size([query, *texts])
        async with self.models.use(self.models.find(None, CrossEncoder)) as model:
            await asyncio.to_thread(_check_lengths, model, [(query, text) for text in texts], truncate)
            charge()
            score = partial(model.rank, query, **{"activation_fn": "none"} if raw else {})
            ranked = []
            for at in range(0, len(texts), TOGETHER):
                part = await asyncio.to_thread(score, texts[at : at + TOGETHER])
                ranked += [one | {"corpus_id": one["corpus_id"] + at} for one in part]
            return sorted(ranked, key=lambda one: (math.isnan(one["score"]), -one["score"], one["corpus_id"]))

    async def classify(self, texts: Sequence[tuple[str, ...]], truncate: bool) -> list[list[dict[str, Any]]]:
        """The labels of each text or pair and their probabilities, most probable first."""
        charge = self.check_size(["".join(one) for one in texts])
        async with self.models.use(self.models.find(None, TextClassifier)) as model:
            await asyncio.to_thread(_check_lengths, model, texts, truncate)
            charge()
            labels: list[Any] = [None] * len(texts)
            for alone in (True, False):
                chosen = [b for b, one in enumerate(texts) if (len(one) == 1) == alone]
                for at in range(0, len(chosen), TOGETHER):
                    part = chosen[at : at + TOGETHER]
                    read = [texts[b][0] if alone else texts[b] for b in part]
                    for b, found in zip(part, await asyncio.to_thread(model.classify, read)):
                        labels[b] = found
            return labels

    async def tokenize(self, texts: Sequence[str], special: bool) -> list[list[TextToken]]:
        """Each text's tokens, uncut."""
        charge = self.check_size(texts)
        name = self.models.find(None, Encoder, CrossEncoder, TextClassifier)
        charge()
        async with self.models.use(name) as model:
            read = partial(model.tokenize, special_tokens=special)
            return await asyncio.to_thread(lambda: list(map(read, texts)))

    # conversations

    async def answer(self, model: str | None, messages: Sequence[Any], **options: Any) -> tuple[list[Generation], str]:
        """(the answers to a conversation, best first or as drawn, the model's name)."""
        charge = self.check_size([str(message.get("content", "")) for message in messages])
        name = self.models.find(model, Generator)
        charge()
        async with self.models.use(name) as generator:
            best = await generator.generate_async(messages=messages, details=True, caller=CALLER.get(), **options)
        return [best, *best.alternatives], name

    async def stream(self, model: str | None, messages: Sequence[Any], **options: Any) -> AsyncIterator[Any]:
        """The pieces of an answer as they come, then the Generation."""
        charge = self.check_size([str(message.get("content", "")) for message in messages])
        async with self.models.use(self.models.find(model, Generator)) as generator:
            charge()
            async for piece in generator.stream_async(messages=messages, caller=CALLER.get(), **options):
                yield piece

    def check_size(self, texts: Sequence[str]) -> Callable[[], None]:
        """What takes the texts from the quota of who asks, when all else is checked.

        Raises a Refusal for more texts, or more characters, than one request may have.
        """
        if len(texts) > self.settings.items:
            raise Refusal(413, f"a request may have {self.settings.items} texts, this one has {len(texts)}")
        characters = sum(map(len, texts))
        if characters > self.settings.characters:
            raise Refusal(413, f"a request may have {self.settings.characters} characters, this one has {characters}")
        return partial(CHARACTERS.get().take, characters)


def _check_lengths(model: Any, texts: Sequence[tuple[str, ...]], truncate: bool) -> None:
    """Raise a Refusal for a text, or a pair, that the model would cut, unless that is asked for."""
    for number, text in enumerate(() if truncate else texts):
        tokens = len(model.tokenize(text[0])) if len(text) == 1 else model.count_pair_tokens([text])[0]
        if tokens > model.max_length:
            reads = f"the model reads {model.max_length}: ask for truncate, or less"
            raise Refusal(413, f"text {number} has {tokens} tokens, {reads}")


def known_code(code: str, among: Sequence[str] = ()) -> str:
    """A language by the code that models here have: "PT-BR" is "pt", "zh-TW" is "zh-Hant".

    among  codes that it may be: of a source in a script that no model names, the language without it
    """
    if not code.isascii() or not 0 < len(code.strip()) <= 32:
        raise InputError("a language should be a code such as en")
    found = iso_code(code.strip().lower())
    return found if found in among else next((one for one in among if one == found.partition("-")[0]), found)


def listed(codes: Any) -> str:
    """Codes as an error lists them."""
    return ", ".join(sorted(set(codes))) or "nothing: this server has no translation model"
