"""Public classes that compute nothing and note with what they are called, for tests of the commands above them."""

import inspect
from collections.abc import Callable, Iterable
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
    """``call.argument`` -> what arrived there, of each call the last; "lines": the texts that arrived."""

    def note(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        bound = inspect.signature(function).bind(*arguments, **options).arguments
        given = bound.pop("options", {}) | bound.pop("how", {}) | bound
        self.update({f"{name}.{key}": value for key, value in given.items() if key != "self"})

    def line(self, text: Any) -> Any:
        self.setdefault("lines", []).append(text)
        return text

    def record(
        self, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, answer: Callable[..., Any], name: str
    ) -> None:
        """Have a method note what it is called with, and answer without its object."""
        real = getattr(kind, method)

        def called(this: Any, *given: Any, **options: Any) -> Any:
            self.note(name, real, this, *given, **options)
            return answer(*given, **options)

        async def awaited(this: Any, *given: Any, **options: Any) -> Any:
            return called(this, *given, **options)

        monkeypatch.setattr(kind, method, awaited if method.endswith("_async") else called)


def record_all(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Have what the commands call compute nothing; what it notes."""
    seen = Seen()

    def noted(kind: type, method: str, answer: Callable[..., Any]) -> None:
        seen.record(monkeypatch, kind, method, answer, kind.__name__ if method == "__init__" else method)

    kinds = (Translator, LanguageModelTranslator, Generator, Encoder, CrossEncoder, TextClassifier, Captioner)
    for kind in (*kinds, Verification):
        noted(kind, "__init__", lambda *given, **options: None)

    def translated(texts: Iterable[str], details: bool = False, **options: Any) -> Any:
        one = Translation("t", ["t"], [-1.0], [])
        found = (InputError("refused") if seen.line(text) == BAD else one for text in texts)
        return found if details else (result.text for result in found)

    def encoded(texts: Iterable[str], **options: Any) -> np.ndarray:
        return np.zeros((len([*map(seen.line, texts)]), WIDTH), options.get("output_dtype", "float32"))

    def ranked(query: str, documents: Iterable[str], *given: Any, **options: Any) -> list[dict[str, Any]]:
        return [{"corpus_id": 0, "score": 0.5, "text": [*map(seen.line, documents)][0]}]

    def captioned(images: Any, **options: Any) -> Any:
        seen.line(images)
        found = Caption("w", ["w"], -1.0, np.ones((1, 2, 2), np.float32))
        return [found] if options["num_hypotheses"] > 1 else found

    noted(Translator, "translate_iter", translated)
    marked = MarkedTranslation("t", ["t"], [-1.0], ("echo",), [])
    noted(LanguageModelTranslator, "translate_iter", lambda texts, **options: (marked for _ in texts))
    noted(Generator, "generate", lambda *given, **options: "")
    answer = Generation("answer", [1], -1.0, "stop", 1)
    noted(Generator, "generate_iter", lambda prompts, **options: (answer for _ in map(seen.line, prompts)))
    noted(Generator, "stream", lambda prompt, **options: [seen.line(prompt) and "an", "swer"])
    noted(Generator, "score", lambda text, **options: TextScore([1, 2], np.array([-1.0], np.float32)))
    noted(Encoder, "encode_iter", lambda texts, **options: (encoded([text], **options)[0] for text in texts))
    noted(Encoder, "encode_query", lambda texts, **options: encoded(texts))
    noted(
        Encoder, "count_tokens", lambda texts, **options: np.array([*map(len, texts)] if isinstance(texts, list) else 0)
    )
    noted(CrossEncoder, "rank", ranked)
    noted(
        TextClassifier,
        "classify",
        lambda texts, **options: [[{"label": "l", "score": 0.5}] for _ in map(seen.line, texts)],
    )
    noted(Captioner, "caption", captioned)
    noted(Verification, "compare", lambda texts: [Comparison("all") for _ in [*map(seen.line, texts)][:1]])
    plot = SimpleNamespace(to_text=lambda: "looks")
    for place, value in {
        "translation.translator.Translator.translate": lambda *given, **options: "",
        "translation.translator.Translator.looks": lambda *given, **options: SimpleNamespace(plot=lambda: plot),
        "generation.generator.Generator.default_options": DecodingOptions(beam_size=1),
        "generation.generator.Generator.chat_template": SimpleNamespace(
            render=lambda messages: " ".join(f"{message['role']}: {message['content']}" for message in messages)
        ),
        "encoders.encoder.Encoder.dimension": WIDTH,
        "encoders.encoder.Encoder.max_length": 8,
        "encoders.encoder.Encoder.encode": lambda self, texts, **options: encoded(texts, **options),
        "vision.captioner.Captioner.image_spec": PictureSpec((8, 8), 2, (0, 0), 1.0, (0.0,) * 3, (1.0,) * 3),
        "weights.ctranslate2.convert.write": lambda *given: seen.update({"write.to": "ctranslate2"}),
        "cli.pull._pull": lambda entry: seen.line(entry.name),
        "cli.pull._pull_from_hub": seen.line,
        "weights.download.firefox.listed_models": list,
    }.items():
        monkeypatch.setattr(f"fastattn.{place}", value)
    for name, value in {"source": "nothing", "precision": "float32", "bounds": Bounds(1.0, 1.0)}.items():
        monkeypatch.setattr(Verification, name, value, raising=False)
    real_write = convert.write
    monkeypatch.setattr(convert, "write", lambda *given: seen.note("write", real_write, *given))

    def semantic_search(query: Any, corpus: np.ndarray, *given: Any, **options: Any) -> SearchResult:
        seen.note("semantic_search", real_search, query, corpus, *given, **options)
        return SearchResult(np.ones((len(query), 1), np.float32), np.zeros((len(query), 1), np.int64))

    def models_between(source: str | None, target: str | None, quality: str | None = None) -> Any:
        seen["models_between.quality"] = quality
        return [CATALOG["en-pt"]] if quality else between(source, target)

    def find_entry(entry: Any, progress: Any) -> str:
        Path(f"catalog {entry.name}").mkdir(exist_ok=True)
        return f"catalog {entry.name}"

    monkeypatch.setattr("fastattn.vectors.search.semantic_search", semantic_search)
    for place in ("cli.translate", "weights.download"):
        monkeypatch.setattr(f"fastattn.{place}.models_between", models_between)
    for place in ("cli.options", "cli.translate"):
        monkeypatch.setattr(f"fastattn.{place}.find_entry", find_entry)
    return seen
