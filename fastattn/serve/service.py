"""The calls that all dialects use. A call finds a model, checks a request's size and waits for the model's answer."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastattn.documents.forms import FIELD_FORMS, FORMS, TEXT_FORMS, form_of
from fastattn.documents.translating import translate_document
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.encoders.vector_head import find_prompt
from fastattn.errors import InputError
from fastattn.generation.calls import Generation, TextScore
from fastattn.generation.generator import Generator
from fastattn.printable import printable
from fastattn.serve.conversation import Conversation
from fastattn.serve.metrics import StreamTimer, count_generations, count_tokens, count_translations
from fastattn.serve.models import ModelStore
from fastattn.serve.settings import Refusal, ServerSettings
from fastattn.serve.stored import ClientFile, FileStore
from fastattn.system.files import BYTE_ORDER_MARK
from fastattn.system.records import dataclass, lazy
from fastattn.text.huggingface import TextToken
from fastattn.text.invariants import INVARIANT
from fastattn.text.languages import iso_code, likely_languages
from fastattn.text.tool_calls import AnswerParts, SplitAnswer, split_answer
from fastattn.translation.alignment import WordLink, word_links
from fastattn.translation.capitals import CapitalsTranslator, is_failed
from fastattn.translation.guarded import GuardedTranslator
from fastattn.translation.translator import Translator

# Who sent the request, by the number of a key or by an address, for callers take turns; and that caller's ``KeyQuota``.
# The gate (``serve/gate.py``) sets both.
CALLER: ContextVar[Hashable] = ContextVar("caller", default=None)
QUOTA: ContextVar[Any] = ContextVar("characters")
MOST_ALTERNATIVES = 16
TEXTS_AT_ONCE = 16  # texts of a call that computes in a thread: between two calls a request whose client has gone ends
AUTO = "auto"  # the source language of a request whose texts' languages are to be detected
DOCUMENT_FORMS = [form for form in FORMS if form not in FIELD_FORMS]
MOST_FILES = 100  # glossaries of a caller, and as many documents
GLOSSARY_SECONDS, DOCUMENT_SECONDS = 365 * 86_400.0, 3600.0  # how long files are kept
DETECTION_BYTES = 1 << 16  # the most bytes of a document by which its language is detected
_Result = TypeVar("_Result")

_TAGS = re.compile("<[^<>]*>")


@dataclass(frozen=True)
class DetectedLanguage:
    """A language by its code, with a confidence from 0 to 100."""

    language: str
    confidence: float


@dataclass(frozen=True)
class TextTranslation:
    """A text's translation; with ``detected`` if the source is AUTO, with ``links`` if the request asks for these."""

    text: str
    source: str
    target: str
    alternatives: tuple[str, ...] = ()
    detected: DetectedLanguage | None = None
    links: tuple[WordLink, ...] = ()


@dataclass(frozen=True)
class ModelAnswers:
    """A language model's answers to a request, those to the same prompt best first or as drawn.

    model          the model's name
    results        the best answer to each prompt, which has the prompt's other answers as alternatives
    split_answers  the parts of each answer to a conversation; empty for continuations
    decode         from token ids to text
    prompts        the texts of the prompts that are continued
    scores         these prompts' scores if the request asks for them
    """

    model: str
    results: Sequence[Generation]
    split_answers: list[SplitAnswer]
    decode: Callable[[Sequence[int]], str]
    prompts: Sequence[str] = ()
    scores: Sequence[TextScore] = ()

    @property
    def generations(self) -> list[Generation]:
        return [answer for best in self.results for answer in (best, *best.alternatives)]


class Service:
    """The calls of all dialects to a server's models, and the files that clients leave."""

    def __init__(self, settings: ServerSettings):
        self.settings, self.models, folder = settings, ModelStore(settings), Path(settings.folder)
        self.glossaries = FileStore(folder / "glossaries", MOST_FILES, GLOSSARY_SECONDS)
        self.documents = FileStore(folder / "documents", MOST_FILES, DOCUMENT_SECONDS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models, and close them behind the block, or earlier if they are idle."""
        await self.models.load_all()
        idle_task = asyncio.create_task(self.models.close_idle_models())
        yield
        idle_task.cancel()
        self.models.close_unused(idle_seconds=0.0)

    @lazy
    def pairs(self) -> dict[tuple[str, str], str]:
        """(source, target) -> name of the first model for these languages; to be read after ``ModelStore.load_all``."""
        names = self.models.names_of((Translator,))
        return {pair: name for name in reversed(names) for pair in self.models.entries[name].pairs}

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
        glossary: Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[TextTranslation]:
        """Each text's translation; ``source`` may be AUTO. A Refusal for a pair of languages without a model.

        glossary  term -> translation
        options   options of ``Translator.translate``
        """
        charge = self.check_size(texts)
        pairs, detected = await self._language_pairs(texts, source, target)
        charge()
        if alternatives:
            options["num_hypotheses"] = alternatives + 1
        translations: list[Any] = [None] * len(texts)
        for pair in dict.fromkeys(pairs):
            positions = [b for b, text_pair in enumerate(pairs) if text_pair == pair]
            async with self.models.use(self.pairs[pair]) as model:
                beam = max(model.default_options.beam_size, alternatives + 1)
                arguments = {"beam_size": beam, "details": True, "caller": CALLER.get(), "return_attention": with_links}
                arguments |= self._language_options(pair) | options
                results = await _translated(model, [texts[b] for b in positions], glossary, arguments)
                count_translations(self.pairs[pair], results)
                for b, result in zip(positions, results):
                    links = word_links(texts[b], result) if with_links else ()
                    others = tuple(result.hypotheses[1:])
                    translations[b] = TextTranslation(result.text, *pair, others, detected[b], tuple(links))
        return translations

    async def _language_pairs(
        self, texts: Sequence[str], source: str, target: str
    ) -> tuple[list[tuple[str, str]], list[DetectedLanguage | None]]:
        """((source, target) of each text; its language if the source is AUTO). A Refusal for a pair without a model."""
        target = language_code(target)
        if not (sources := self.sources.get(target)):
            raise Refusal(400, f"no model translates to {target!r}; to {list_codes(self.sources)}")
        detected: list[DetectedLanguage | None] = [None] * len(texts)
        if source == AUTO:
            detected = [(await self.detect(text, sources))[0] for text in texts]
        codes = [language_code(source, sources) if language is None else language.language for language in detected]
        for code in codes:
            if code not in sources:
                raise Refusal(400, f"no model translates from {code!r} to {target!r}; from {list_codes(sources)}")
        return [(code, target) for code in codes], detected

    def _language_options(self, pair: tuple[str, str]) -> dict[str, str]:
        """The options of a pair's model that name the languages, if it translates several pairs."""
        takes_languages = self.models.entries[self.pairs[pair]].takes_languages
        return dict(zip(("source_lang", "target_lang"), pair)) if takes_languages else {}

    async def translate_documents(
        self,
        documents: Sequence[bytes],
        form: str,
        source: str,
        target: str,
        *,
        glossary: Mapping[str, str] | None = None,
        **options: Any,
    ) -> tuple[list[bytes], list[tuple[str, str]], list[DetectedLanguage | None]]:
        """(the translations; what ``_language_pairs`` returns). Characters are charged and bounded as models get them.

        options  options of ``translate_document``
        """
        self.check_size([""] * len(documents))
        if source == AUTO and form not in (*TEXT_FORMS, "xml"):
            raise Refusal(400, f"name the source language: it is not found in {form}")
        pairs, detected = await self._language_pairs(list(map(visible_text, documents)), source, target)
        results: list[bytes] = []
        glossary_translators: dict[tuple[str, str], Any] = {}  # of each pair, since a glossary takes a while to compile
        translator = MeteredTranslator(self.settings.characters)
        try:
            for document, pair in zip(documents, pairs):
                async with self.models.use(self.pairs[pair]) as model:
                    if glossary and pair not in glossary_translators:
                        glossary_translators[pair] = await asyncio.to_thread(model.with_glossary, glossary)
                    inner = glossary_translators.get(pair, model)
                    translator.translator = CapitalsTranslator(GuardedTranslator(inner))
                    arguments = {"language": pair[1], **self._language_options(pair), **options}
                    translate = partial(translate_document, translator, document, form, **arguments)
                    results.append(bytes(await asyncio.to_thread(translate)))
        finally:
            translator.is_over = True
        return results, pairs, detected

    async def translate_upload(
        self, name: str, content: bytes, source: str, target: str, glossary: Mapping[str, str] | None = None
    ) -> ClientFile:
        """Translate a document by the form that its file's name tells, and keep the translation for the caller."""
        if (form := form_of(name)) not in DOCUMENT_FORMS:
            raise InputError(f"documents of {printable(name)!r} are not translated; {', '.join(DOCUMENT_FORMS)} are")
        await asyncio.to_thread(self.documents.check_room, CALLER.get())
        options: dict[str, Any] = {"glossary": glossary, "name": printable(name)}
        (translated,), _, _ = await self.translate_documents([content], form, source, target, **options)
        media_type = "text/html" if form == "pdf" else "application/octet-stream"
        fields = {"name": name, "characters": len(visible_text(content)), "media_type": media_type}
        return await asyncio.to_thread(partial(self.documents.put, CALLER.get(), translated, **fields))

    async def translate_text_documents(
        self, texts: Sequence[str], form: str, source: str, target: str, **options: Any
    ) -> list[TextTranslation]:
        """The translation of each document of a form of text, whatever charset the document names."""
        documents = [BYTE_ORDER_MARK + text.encode() for text in texts]
        results = await self.translate_documents(documents, form, source, target, **options)
        return [
            TextTranslation(data.decode("utf-8-sig"), *pair, (), language) for data, pair, language in zip(*results)
        ]

    async def detect(self, text: str, candidates: Sequence[str] = ()) -> list[DetectedLanguage]:
        """The likely languages of a text, most likely first, of the candidates if given; confidence is among all."""
        likely = await asyncio.to_thread(likely_languages, text, tuple(candidates))
        return [DetectedLanguage(code, round(100 * probability, 1)) for code, probability in likely]

    async def embed(
        self, texts: Sequence[Any], model: str | None, *, truncate: bool, count: bool = False, **options: Any
    ) -> tuple[np.ndarray, int, str]:
        """(float32 vectors [texts, dimension]; the number of tokens, 0 unless ``count``; the model's name).

        texts     texts, or lists of token ids of the model's vocabulary
        truncate  whether a text longer than the model reads is cut; if not, the request is refused
        options   options of ``Encoder.encode``
        """
        name = self.models.find(model, Encoder)
        async with self.models.use(name) as encoder:
            decoded_texts, charge = await self._checked_texts(encoder, texts)
            arguments = {"long": "truncate" if truncate else "error", **options}
            if (dimensions := options.get("truncate_dim") or 0) > encoder.dimension:
                raise Refusal(400, f"dimensions should be at most {encoder.dimension}, are {dimensions}")
            charge()
            vectors_BD = await encoder.encode_async(decoded_texts, caller=CALLER.get(), **arguments)
            token_count = int((await asyncio.to_thread(encoder.count_tokens, decoded_texts)).sum()) if count else 0
            count_tokens(name, token_count, 0)
        return vectors_BD, token_count, name

    async def rank(
        self, query: str, texts: Sequence[str], **options: Any
    ) -> tuple[list[tuple[int, float]], dict[str, int], str]:
        """((its number, its score) of each text, the best for the query first; the usage; the model's name).

        options  options of ``score_pairs``
        """
        scores, usage, name = await self.score_pairs([(query, text) for text in texts], **options)
        order = sorted(range(len(scores)), key=lambda number: (math.isnan(scores[number]), -scores[number]))
        return [(number, scores[number]) for number in order], usage, name

    async def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, raw: bool = False, truncate: bool = True, model: str | None = None
    ) -> tuple[list[float], dict[str, int], str]:
        """(the score of each pair; the numbers of tokens that the model reads; the model's name).

        raw  whether scores are without the model's activation function
        """
        distinct_firsts = dict.fromkeys(first for first, _ in pairs)  # a query counts once
        charge = self.check_size([*distinct_firsts, *(second for _, second in pairs)])
        name = self.models.find(model, CrossEncoder)
        async with self.models.use(name) as scorer:
            counts = await _in_slices(scorer.count_pair_tokens, pairs)
            _check_counts(() if truncate else counts, scorer.max_length)
            charge()
            score = partial(scorer.predict, **{"activation_fn": "none"} if raw else {})
            scores = await _in_slices(lambda pair_slice: score(pair_slice).tolist(), pairs)
            tokens = sum(min(count, scorer.max_length) for count in counts)
            count_tokens(name, tokens, 0)
            return scores, {"prompt_tokens": tokens, "total_tokens": tokens}, name

    async def classify(self, texts: Sequence[tuple[str, ...]], truncate: bool) -> list[list[dict[str, Any]]]:
        """The labels of each text or pair and their probabilities, most probable first."""
        charge = self.check_size(["".join(text) for text in texts])
        async with self.models.use(self.models.find(None, TextClassifier)) as model:
            await asyncio.to_thread(_check_lengths, model, texts, truncate)
            charge()
            labels: list[Any] = [None] * len(texts)
            for is_single in (True, False):
                positions = [b for b, text in enumerate(texts) if (len(text) == 1) == is_single]
                inputs = [texts[b][0] if is_single else texts[b] for b in positions]
                for b, text_labels in zip(positions, await _in_slices(model.classify, inputs)):
                    labels[b] = text_labels
            return labels

    async def tokenize(self, texts: Sequence[str], special_tokens: bool) -> list[list[TextToken]]:
        """Each text's tokens, with those that are too many for the model, and with special tokens if asked for."""
        charge = self.check_size(texts)
        async with self.models.use(self.models.find(None, Encoder, CrossEncoder, TextClassifier)) as model:
            charge()
            tokenize = partial(model.tokenize, special_tokens=special_tokens)
            return await asyncio.to_thread(lambda: list(map(tokenize, texts)))

    async def similarities(self, source: str, texts: Sequence[str], **options: Any) -> list[float]:
        """How similar each text is to the source, by the similarity function of the only encoder.

        options  ``truncate`` and other options of ``embed``
        """
        vectors_BD, _, name = await self.embed([source, *texts], None, **options)
        async with self.models.use(name) as encoder:
            similarities: list[float] = encoder.similarity(vectors_BD[0], vectors_BD[1:])[0].tolist()
        return similarities

    async def embed_tokens(self, texts: Sequence[str], truncate: bool) -> list[np.ndarray]:
        """The vectors of each text's tokens, float32 [tokens, dimension]."""
        charge = self.check_size(texts)
        async with self.models.use(self.models.find(None, Encoder)) as encoder:
            await asyncio.to_thread(_check_lengths, encoder, [(text,) for text in texts], truncate)
            charge()
            return await _in_slices(encoder.encode_tokens, texts)

    async def embed_sparse(self, texts: Sequence[str], truncate: bool, **options: Any) -> list[Any]:
        """Each text's sparse vector, (columns, numbers)."""
        charge = self.check_size(texts)
        async with self.models.use(self.models.find(None, SparseEncoder)) as encoder:
            prompt = find_prompt(encoder._text, **options)
            await asyncio.to_thread(_check_lengths, encoder, [(prompt + text,) for text in texts], truncate)
            charge()
            encode = partial(encoder.encode, **options)
            return await _in_slices(lambda text_slice: [encode(text).row(0) for text in text_slice], texts)

    async def decode(self, id_lists: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of token ids."""
        charge = self.check_size([" " * len(ids) for ids in id_lists])
        async with self.models.use(self.models.find(None, Encoder)) as encoder:
            charge()
            return await asyncio.to_thread(_texts_of, encoder, id_lists)

    async def converse(
        self, model: str | None, conversation: Conversation, finish: Callable[[ModelAnswers], _Result]
    ) -> _Result:
        """What ``finish`` makes, in a thread, of the answers to a conversation, best first or as drawn."""
        charge = self.check_size(conversation.texts)
        name = self.models.find(model, Generator)
        charge()
        async with self.models.use(name) as generator:
            arguments, splitting_arguments = await asyncio.to_thread(conversation.arguments, generator.chat_template)
            best = await generator.generate_async(details=True, caller=CALLER.get(), **arguments)
            count_generations(name, [best])
            texts = [answer.text for answer in (best, *best.alternatives)]
            split_answers = [split_answer(text, *splitting_arguments) for text in texts]
            answers = ModelAnswers(name, [best], split_answers, generator.decode)
            return await asyncio.to_thread(finish, answers)  # while the model cannot be closed

    async def stream(self, model: str | None, conversation: Conversation) -> AsyncIterator[Any]:
        """The pieces of an answer, ("reasoning" | "content", text), as they come, then ModelAnswers."""
        charge = self.check_size(conversation.texts)
        name = self.models.find(model, Generator)
        async with self.models.use(name) as generator:
            charge()
            arguments, splitting_arguments = await asyncio.to_thread(conversation.arguments, generator.chat_template)
            parts, timer = AnswerParts(*splitting_arguments), StreamTimer(name)
            async for piece in generator.stream_async(caller=CALLER.get(), **arguments):  # the last is the Generation
                timer.tick()
                for part in parts.add(piece) if isinstance(piece, str) else parts.end():
                    yield part
            timer.end(piece)
            yield ModelAnswers(name, [piece], [SplitAnswer("", "", parts.calls)], generator.decode)

    async def complete(
        self,
        model: str | None,
        prompts: Sequence[Any],
        finish: Callable[[ModelAnswers], _Result],
        with_scores: bool = False,
        **options: Any,
    ) -> _Result:
        """What ``finish`` makes, in a thread, of the continuations of prompts, texts or token ids.

        with_scores  whether the answers have the prompts' TextScores
        """
        name = self.models.find(model, Generator)
        async with self.models.use(name) as generator:
            texts, charge = await self._checked_texts(generator, prompts)
            charge()
            results = await generator.generate_async(prompts, details=True, caller=CALLER.get(), **options)
            count_generations(name, results)
            score = partial(generator.score, top_log_probs=options.get("top_log_probs", 0))
            scores = await _in_slices(score, prompts) if with_scores else []
            answers = ModelAnswers(name, results, [], generator.decode, texts, scores)
            return await asyncio.to_thread(finish, answers)  # while the model cannot be closed

    async def stream_completion(self, model: str | None, prompt: Any, **options: Any) -> AsyncIterator[Any]:
        """The pieces of a continuation as they come, then ModelAnswers."""
        name = self.models.find(model, Generator)
        async with self.models.use(name) as generator:
            texts, charge = await self._checked_texts(generator, [prompt])
            charge()
            timer = StreamTimer(name)
            async for piece in generator.stream_async(prompt, caller=CALLER.get(), **options):
                timer.tick()
                if isinstance(piece, str):
                    yield piece
            timer.end(piece)
            yield ModelAnswers(name, [piece], [], generator.decode, texts)

    async def _checked_texts(self, model: Any, texts: Sequence[Any]) -> tuple[list[str], Callable[[], None]]:
        """(the texts, token ids decoded; the result of ``check_size`` by characters or ids, whichever are more)."""
        self.check_size([text if isinstance(text, str) else " " * len(text) for text in texts])
        decoded_texts = await asyncio.to_thread(_texts_of, model, texts)
        longer_texts = [max(decoded, " " * len(text), key=len) for decoded, text in zip(decoded_texts, texts)]
        return decoded_texts, self.check_size(longer_texts)

    def check_size(self, texts: Sequence[str]) -> Callable[[], None]:
        """A function that takes the texts' characters from the caller's quota, to be called after all other checks.

        A Refusal for more texts or characters than a request may have.
        """
        if len(texts) > self.settings.items:
            raise Refusal(413, f"a request may have {self.settings.items} texts, this one has {len(texts)}")
        characters = sum(map(len, texts))
        if characters > self.settings.characters:
            raise Refusal(413, f"a request may have {self.settings.characters} characters, this one has {characters}")
        return partial(QUOTA.get().take, characters)


def _texts_of(model: Any, texts: Sequence[Any]) -> list[str]:
    """The texts, with token ids in the place of a text decoded."""
    return [text if isinstance(text, str) else model.decode(text) for text in texts]


async def _translated(
    model: Any, texts: Sequence[str], glossary: Mapping[str, str] | None, options: dict[str, Any]
) -> list[Any]:
    """Each text's translation. Terms and placeholders take a second search, and so do loops and capitals that fail.

    Placeholders of a text with several hypotheses are the model's.
    """
    single = "num_hypotheses" not in options
    special = [n for n, text in enumerate(texts) if glossary or (single and INVARIANT.search(text))]
    plain = [n for n in range(len(texts)) if n not in {*special}]
    results: list[Any] = [None] * len(texts)
    for n, result in zip(plain, await model.translate_async([texts[n] for n in plain], **options)):
        results[n] = result
    options = {name: value for name, value in options.items() if name != "caller"}
    failed = [n for n in plain if is_failed(texts[n], results[n].text)]
    for numbers, has_terms in ((special, True), (failed, False)):
        if numbers:
            inner = await asyncio.to_thread(model.with_glossary, glossary, placeholders=True) if has_terms else model
            careful = CapitalsTranslator(GuardedTranslator(inner))
            answers = await _in_slices(partial(careful.translate, **options), [texts[n] for n in numbers])
            for n, result in zip(numbers, answers):
                results[n] = result
    return results


async def _in_slices(call: Callable[[Sequence[Any]], Any], texts: Sequence[Any]) -> list[Any]:
    """The results of calls in a thread, each with a few of the texts; a cancelled request ends between two calls."""
    results: list[Any] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        results += await asyncio.to_thread(call, texts[start : start + TEXTS_AT_ONCE])
    return results


class MeteredTranslator:
    """Translates by ``translator``, charges the request's caller for each text, and refuses more than ``limit``.

    is_over  set when the request has ended, so that no further text is translated
    """

    def __init__(self, limit: int):
        self._limit, self._characters, self.is_over = limit, 0, False
        self.translator: Any = None

    def translate_iter(self, texts: Iterable[str], **options: Any) -> Iterator[Any]:
        results: Iterator[Any] = self.translator.translate_iter(self._charged(texts), **options)
        return results

    def _charged(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            self._characters += len(text)
            if self.is_over or self._characters > self._limit:
                raise Refusal(413, f"a request may have {self._limit} characters, this document has more")
            QUOTA.get().take(len(text))
            yield text


def visible_text(document: bytes) -> str:
    """Roughly the text at a document's beginning, without tags, by which its language is detected."""
    return _TAGS.sub(" ", document[:DETECTION_BYTES].decode("utf-8", "replace"))


def _check_lengths(model: Any, texts: Sequence[tuple[str, ...]], truncate: bool) -> None:
    """A Refusal for a text or a pair of texts that the model would cut, unless ``truncate``."""
    counts = (len(model.tokenize(text[0])) if len(text) == 1 else model.count_pair_tokens([text])[0] for text in texts)
    _check_counts(() if truncate else counts, model.max_length)


def _check_counts(counts: Iterable[int], most: int) -> None:
    """A Refusal for the first text or pair of more tokens than the model reads."""
    for number, tokens in enumerate(counts):
        if tokens > most:
            advice = f"the model reads {most}: ask for truncate, or less"
            raise Refusal(413, f"text {number} has {tokens} tokens, {advice}")


def language_code(code: str, model_codes: Sequence[str] = ()) -> str:
    """A client's code of a language as this server's models write it: "PT-BR" is "pt", "zh-TW" is "zh-Hant".

    model_codes  if the models lack the code with its script and have it without, it is returned without
    """
    if not code.isascii() or not 0 < len(code.strip()) <= 32:
        raise InputError("a language should be a code such as en")
    language = iso_code(code.strip().lower())
    without_script = language.partition("-")[0]
    return without_script if without_script in model_codes and language not in model_codes else language


def list_codes(codes: Any) -> str:
    """Codes as the list in an error's message."""
    return ", ".join(sorted(set(codes))) or "nothing: this server has no translation model"
