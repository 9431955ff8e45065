"""Public classes that compute nothing and note with what they are called, for tests of the commands above them."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn.decoding.options import DecodingOptions
from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.errors import InputError
from fastattn.generation.calls import Generation, TextScore
from fastattn.generation.generator import Generator
from fastattn.generation.language_model_translator import LanguageModelTranslator, MarkedTranslation
from fastattn.spec.images import PictureSpec
from fastattn.translation.calls import Translation
from fastattn.translation.translator import Translator
from fastattn.vectors.search import SearchResult
from fastattn.vectors.search import semantic_search as real_search
from fastattn.verification import Verification
from fastattn.verification.comparison import Bounds, Comparison
from fastattn.vision.captioner import Caption, Captioner
from fastattn.weights.download import models_between as between
from fastattn.weights.download.catalog import CATALOG
from fastattn.weights.native import convert

WIDTH = 16
BAD = "bad"  # a line that cannot be translated


class Seen(dict[str, Any]):
    """``call.argument`` -> what arrived there, of each call the last."""

    def note(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        bound = inspect.signature(function).bind(*arguments, **options).arguments
        given = bound.pop("options", {}) | bound.pop("how", {}) | bound
        self.update({f"{name}.{key}": value for key, value in given.items() if key != "self"})


def record_all(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Put recorders in the places of what the commands call; what they note."""
    seen = Seen()

    class RecordedTranslator:
        def translate(self, *given: Any, **options: Any) -> str:
            return ""

        def translate_iter(self, texts: Iterable[str], **options: Any) -> Iterator[Any]:
            seen.note("translate_iter", Translator.translate_iter, self, texts, **options)
            found = map(self._translated, texts)
            return found if options.get("details") else (one.text for one in found)

        def looks(self, source: str, target: str, **languages: Any) -> Any:
            return SimpleNamespace(plot=lambda: SimpleNamespace(to_text=lambda: "looks"))

        def _translated(self, text: str) -> Any:
            seen.setdefault("lines", []).append(text)
            return InputError("refused") if text == BAD else Translation("t", ["t"], [-1.0], [])

    class RecordedGenerator:
        default_options = DecodingOptions(beam_size=1)

        class chat_template:
            @staticmethod
            def render(messages: list[dict[str, str]]) -> str:
                return " ".join(f"{message['role']}: {message['content']}" for message in messages)

        def generate(self, *given: Any, **options: Any) -> str:
            return ""

        def generate_iter(self, prompts: Iterable[str], **options: Any) -> Iterator[Any]:
            seen.note("generate_iter", Generator.generate_iter, self, prompts, **options)
            return map(self._answered, prompts)

        def stream(self, prompt: str, **options: Any) -> Iterator[str]:
            seen.setdefault("lines", []).append(prompt)
            yield from ("an", "swer")

        def score(self, text: str, **options: Any) -> TextScore:
            seen.note("score", Generator.score, self, text, **options)
            return TextScore([1, 2], np.array([-1.0], np.float32))

        def _answered(self, prompt: str) -> Any:
            seen.setdefault("lines", []).append(prompt)
            return Generation("answer", [1], -1.0, "stop", 1)

    class RecordedLanguageModelTranslator(RecordedTranslator):
        def _translated(self, text: str) -> Any:
            seen.setdefault("lines", []).append(text)
            return MarkedTranslation("t", ["t"], [-1.0], ("echo",), [])

    class RecordedEncoder:
        dimension, max_length = WIDTH, 8

        def encode(self, texts: Any, **options: Any) -> np.ndarray:
            return np.zeros((len(texts), WIDTH), options.get("output_dtype", "float32"))

        def encode_iter(self, texts: Iterable[str], **options: Any) -> Iterator[np.ndarray]:
            seen.note("encode_iter", Encoder.encode_iter, self, texts, **options)
            for text in texts:
                seen.setdefault("lines", []).append(text)
                yield self.encode([text], **options)[0]

        def encode_query(self, texts: Any, **options: Any) -> np.ndarray:
            seen.note("encode_query", Encoder.encode, self, texts, **options)
            seen.setdefault("lines", []).extend(texts)
            return self.encode(texts)

        def count_tokens(self, texts: Any, **options: Any) -> np.ndarray:
            return np.array([len(text) for text in texts] if isinstance(texts, list) else 0)

    class RecordedCrossEncoder:
        def rank(self, query: str, documents: Iterable[str], *given: Any, **options: Any) -> list[dict[str, Any]]:
            seen["lines"] = list(documents)
            seen.note("rank", CrossEncoder.rank, self, query, seen["lines"], *given, **options)
            return [{"corpus_id": 0, "score": 0.5, "text": seen["lines"][0]}]

    class RecordedTextClassifier:
        def classify(self, texts: list[str], *given: Any, **options: Any) -> list[list[dict[str, Any]]]:
            seen.setdefault("lines", []).extend(texts)
            seen.note("classify", TextClassifier.classify, self, texts, *given, **options)
            return [[{"label": "l", "score": 0.5}] for _ in texts]

    class RecordedCaptioner:
        image_spec = PictureSpec((8, 8), 2, (0, 0), 1.0, (0.0,) * 3, (1.0,) * 3)

        def caption(self, images: Any, **options: Any) -> Any:
            seen.setdefault("lines", []).append(images)
            seen.note("caption", Captioner.caption, self, images, **options)
            found = Caption("w", ["w"], -1.0, np.ones((1, 2, 2), np.float32))
            return [found] if options["num_hypotheses"] > 1 else found

    class RecordedVerification:
        source, precision, bounds = "nothing", "float32", Bounds(1.0, 1.0)

        def compare(self, texts: tuple[str, ...]) -> list[Comparison]:
            seen["lines"] = list(texts)
            return [Comparison("all")]

    def semantic_search(query: Any, corpus: np.ndarray, *given: Any, **options: Any) -> SearchResult:
        seen.note("semantic_search", real_search, query, corpus, *given, **options)
        return SearchResult(np.ones((len(query), 1), np.float32), np.zeros((len(query), 1), np.int64))

    real_write = convert.write

    def write(*given: Any) -> None:
        seen.note("write", real_write, *given)

    def noted(name: str, init: Callable[..., None]) -> Callable[..., None]:
        return lambda *given, **options: seen.note(name, init, *given, **options)

    for real, stand_in in {
        Translator: RecordedTranslator,
        Generator: RecordedGenerator,
        LanguageModelTranslator: RecordedLanguageModelTranslator,
        Encoder: RecordedEncoder,
        CrossEncoder: RecordedCrossEncoder,
        TextClassifier: RecordedTextClassifier,
        Captioner: RecordedCaptioner,
        Verification: RecordedVerification,
    }.items():
        stand_in.__init__ = noted(real.__name__, real.__init__)
        monkeypatch.setattr(f"{real.__module__}.{real.__name__}", stand_in)
    for place, function in {
        "fastattn.vectors.search.semantic_search": semantic_search,
        "fastattn.weights.native.convert.write": write,
        "fastattn.weights.ctranslate2.convert.write": lambda *given: seen.update({"write.to": "ctranslate2"}),
        "fastattn.cli.pull._pull": lambda entry: seen.setdefault("lines", []).append(entry.name),
        "fastattn.cli.pull._pull_from_hub": lambda name: seen.setdefault("lines", []).append(name),
    }.items():
        monkeypatch.setattr(place, function)

    def models_between(source: str | None, target: str | None, quality: str | None = None) -> Any:
        seen["models_between.quality"] = quality
        return [CATALOG["en-pt"]] if quality else between(source, target)

    monkeypatch.setattr("fastattn.cli.translate.models_between", models_between)
    monkeypatch.setattr("fastattn.weights.download.models_between", models_between)
    monkeypatch.setattr("fastattn.weights.download.firefox.listed_models", list)

    def located_entry(entry: Any, progress: Any) -> str:
        Path(f"catalog {entry.name}").mkdir(exist_ok=True)
        return f"catalog {entry.name}"

    monkeypatch.setattr("fastattn.cli.options.located_entry", located_entry)
    monkeypatch.setattr("fastattn.cli.translate.located_entry", located_entry)
    return seen
