"""Models of a server that compute nothing and note with what they are made and asked."""

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.generation.calls import Generation
from fastattn.generation.generator import Generator
from fastattn.loading.loaded_model import ModelBase
from fastattn.serve.models import ServedModel
from fastattn.text.huggingface import TextToken
from fastattn.translation.calls import Translation
from fastattn.translation.translator import Translator
from tests.cli.recorders import Seen

WIDTH, LONGEST = 4, 6
KINDS = {"en-pt": Translator, "enc": Encoder, "rank": CrossEncoder, "labels": TextClassifier, "lm": Generator}
MODELS = tuple((name, f"path of {name}") for name in KINDS)


def record_models(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Have a server's models, whose names are in KINDS, note what arrives."""
    seen = Seen()

    def look(one: ServedModel) -> None:
        one.kind = KINDS[one.name]
        one.pairs = (("en", "pt"),) if one.kind is Translator else ()

    def noted(kind: type, method: str, answer: Any) -> None:
        seen.record(monkeypatch, kind, method, answer, f"{kind.__name__}.{method}")

    monkeypatch.setattr(ServedModel, "read_kind", look)
    for kind in KINDS.values():
        noted(kind, "__init__", lambda *given, kind=kind, **options: seen.setdefault("made", []).append(kind) and None)
        monkeypatch.setattr(kind, "close", lambda self: seen.setdefault("closed", []).append(type(self)))
    monkeypatch.setattr(ModelBase, "observe_steps", lambda self, observe: None)
    monkeypatch.setattr(Translator, "default_options", SimpleNamespace(beam_size=2))
    noted(Translator, "translate_async", _translated)
    monkeypatch.setattr(Encoder, "dimension", WIDTH)
    monkeypatch.setattr(Encoder, "max_length", 2 * LONGEST)
    noted(Encoder, "encode_async", lambda texts, **options: np.zeros((len(texts), WIDTH), np.float32))
    noted(Encoder, "decode", lambda ids: f"text of {ids}")
    noted(Encoder, "count_tokens", lambda texts, **options: np.full(len(texts), 3))
    noted(Encoder, "tokenize", lambda text, **options: [TextToken(7, text, special=False, span=(0, len(text)))])
    for scorer in (CrossEncoder, TextClassifier):
        monkeypatch.setattr(scorer, "max_length", LONGEST)
        noted(scorer, "count_pair_tokens", lambda pairs: [len(" ".join(pair).split()) for pair in pairs])
        monkeypatch.setattr(scorer, "tokenize", lambda self, text, **options: text.split())
    noted(CrossEncoder, "predict", _scored)
    noted(TextClassifier, "classify", lambda texts, **options: [[{"label": str(one), "score": 0.5}] for one in texts])
    noted(Generator, "generate_async", _answered)
    monkeypatch.setattr(Generator, "chat_template", SimpleNamespace(source=""))

    async def stream(self: Any, *prompt: Any, **options: Any) -> AsyncIterator[Any]:
        seen.note("Generator.stream_async", real_stream, self, *prompt, **options)
        yield "an"
        yield Generation("an", [1], -1.0, "length", 5, np.float32([-0.5]), cached_tokens=2)

    real_stream = Generator.stream_async
    monkeypatch.setattr(Generator, "stream_async", stream)
    return seen


def _translated(texts: Sequence[str], **options: Any) -> list[Translation]:
    count = options.get("num_hypotheses", 1)
    return [Translation(f"{text} 0", [f"{text} {n}" for n in range(count)], [0.0] * count, []) for text in texts]


def _answered(num_hypotheses: int = 1, **options: Any) -> Generation:
    others = (
        Generation("other", [1, 2, 3], -2.0, "length", 5, cached_tokens=3),
        Generation("third", [1], -3.0, "stop", 5),
    )
    log_probs, others = np.float32([-0.5, -0.5]), others[: num_hypotheses - 1]
    return Generation("answer", [1, 2], -1.0, "stop", 5, log_probs, others, cached_tokens=4)


def _scored(pairs: Sequence[tuple[str, str]], **options: Any) -> np.ndarray:
    """The later the better."""
    return np.arange(len(pairs), dtype=np.float32)
