"""The models of a server: loaded at its start or at first use, and closed when idle."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.encoder import Encoder
from fastattn.encoders.sparse_encoder import SparseEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.errors import FastattnError
from fastattn.generation.generator import Generator
from fastattn.serve.metrics import STEP, WAITING, count_step
from fastattn.serve.settings import Refusal, ServerSettings
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, GeneratorText, TranslationText
from fastattn.system.memory import available_memory
from fastattn.text.languages import iso_code
from fastattn.translation.translator import Translator
from fastattn.weights import download, read

SPLADE = "splade"
SCARCE_BYTES = 1 << 29  # if less memory is free before a model is loaded, unused models are closed


class ServedModel:
    """A model that the server offers under a name; ``model`` is None unless it is loaded."""

    def __init__(self, name: str, path: str):
        self.name, self.path = name, path
        self.model: Any = None
        self.kind: type = object  # the class of the loaded model; object until ``read_kind`` has found it
        self.pairs: tuple[tuple[str, str], ...] = ()  # what a translator translates: (source, target) by ISO 639-1
        self.takes_languages = False  # whether calls pass the languages to the model
        self.users, self.last_used = 0, time.monotonic()  # requests that use the model; when the last one ended
        self.loading: asyncio.Future[None] | None = None

    def read_kind(self) -> None:
        """Find the model's kind and languages in its files; raises the errors that the files would cause in loading."""
        checkpoint = read(download.resolve(self.path), later=True)
        self.kind, text = _kind_of(checkpoint, f"{self.name} {self.path}"), checkpoint.text
        if isinstance(text, TranslationText):
            self.takes_languages = text.languages is not None
            self.pairs = _language_pairs(self.name, text)


class ModelStore:
    """Models, by their names in ``entries``, each loaded once for all requests."""

    def __init__(self, settings: ServerSettings):
        self._settings = settings
        self.entries = {name: ServedModel(name, path) for name, path in settings.models}

    async def load_all(self) -> None:
        """Find the kinds of all models, and load them unless the server is lazy.

        A worker process goes on without a model that cannot be loaded: if it takes a dead one's place, it should serve
        the other models, since a process that cannot start would end the server.
        """
        for entry in self.entries.values():
            try:
                await asyncio.to_thread(entry.read_kind)
                if not self._settings.lazy:
                    async with self.use(entry.name):
                        pass
            except FastattnError as error:
                if self._settings.processes == 1:
                    raise
                sys.stderr.write(f"fastattn: {entry.name} is not served by process {os.getpid()}: {error}\n")

    def names_of(self, kinds: Sequence[type]) -> list[str]:
        return [entry.name for entry in self.entries.values() if entry.kind in kinds]

    def find(self, name: str | None, *kinds: type) -> str:
        """The name of a model of these kinds: ``name``, for None the only one. A Refusal if there is no such model."""
        names = self.names_of(kinds)
        if not names:
            raise Refusal(404, f"this server has no model for that: {' or '.join(kind.__name__ for kind in kinds)}")
        if name is None and len(names) > 1:
            raise Refusal(400, f"name a model: {', '.join(names)}")
        if name is not None and name not in names:
            raise Refusal(404, f"no such model; there are {', '.join(names)}")
        return name or names[0]

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[Any]:
        """The model with this name, loaded if need be, which stays open within the block."""
        entry = self.entries[name]
        entry.users += 1
        try:
            while entry.model is None:  # shield: loading goes on if the client that asked first goes away
                if entry.loading is None:
                    entry.loading = asyncio.ensure_future(self._load(entry))
                await asyncio.shield(entry.loading)
            yield entry.model
        finally:
            entry.users -= 1
            entry.last_used = time.monotonic()

    async def _load(self, entry: ServedModel) -> None:
        if available_memory() < SCARCE_BYTES:
            self.close_unused(idle_seconds=0.0)
        try:
            kind: Any = entry.kind
            one_process = {"processes": 1} if kind in (Translator, Encoder) else {}
            entry.model = await asyncio.to_thread(
                kind, entry.path, self._settings.precision, self._settings.threads, **one_process
            )
            entry.model.observe_steps(partial(count_step, STEP.labels(entry.name), WAITING.labels(entry.name)))
        except FastattnError as error:
            raise Refusal(503, f"{entry.name} cannot be loaded: {error}") from None
        finally:
            entry.loading = None

    def close_unused(self, idle_seconds: float) -> None:
        """Close the models that have no users and were not used for so many seconds."""
        for entry in self.entries.values():
            if entry.model is not None and not entry.users and time.monotonic() - entry.last_used >= idle_seconds:
                entry.model.close()
                entry.model = None

    async def close_idle_models(self) -> None:
        """Close idle models from time to time, as long as the server runs."""
        while self._settings.idle:
            await asyncio.sleep(self._settings.idle / 4)
            self.close_unused(self._settings.idle)


def _language_pairs(name: str, text: TranslationText) -> tuple[tuple[str, str], ...]:
    """(source, target) of each pair that a model translates, by its language tokens, its name (de-en), or its files."""
    if text.languages is not None:
        codes = sorted({iso_code(code) for code in text.languages.tokens})
        return tuple((source, target) for source in codes for target in codes if source != target)
    source, separator, target = name.partition("-")
    if separator and 2 <= len(source) <= 3 and 2 <= len(target) <= 3:
        return ((iso_code(source.lower()), iso_code(target.lower())),)
    return ((iso_code(text.source_language), iso_code(text.target_language)),) if text.source_language else ()


def _kind_of(checkpoint: Checkpoint, names: str) -> Any:
    """The class for a checkpoint; names that hold SPLADE tell a sparse encoder from other models that predict words."""
    text = checkpoint.text
    if isinstance(text, GeneratorText):
        return Generator
    if not isinstance(text, EncoderText):
        return Translator
    if text.sparse is not None or (checkpoint.spec.head is not None and SPLADE in names.lower()):
        return SparseEncoder
    if checkpoint.spec.head is None or not text.scores:
        return Encoder
    return CrossEncoder if checkpoint.spec.head.outputs == 1 else TextClassifier
