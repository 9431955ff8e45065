"""What every use of a translation model needs: the model, its tokenizer and its pipeline, loaded; and its processes."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.service import DecodingService
from fastattn.errors import CheckpointError, check_count
from fastattn.loading.kept_checkpoint import load
from fastattn.loading.loaded_model import Loading, load_model, refuse_pickling
from fastattn.ops.protocol import Ops
from fastattn.processes.choice import Sharing, begin_crew
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.system.closing import Closable
from fastattn.system.option_names import MODEL, explains_options
from fastattn.text.sentencepiece import SentencePiece, begin_models
from fastattn.text.translation import TranslationTokenizer
from fastattn.translation.call_options import CallOptions
from fastattn.translation.pipeline import Pipeline
from fastattn.weights.download import catalog

if TYPE_CHECKING:
    from fastattn.translation.worker_processes import TranslatingCrew

_Self = TypeVar("_Self", bound="LoadedTranslator")


class LoadedTranslator(Closable):
    """The part of ``Translator`` that loads: see there."""

    _crew: "TranslatingCrew | None" = None
    __reduce_ex__ = refuse_pickling

    @explains_options(MODEL)
    def __init__(
        self,
        path: str | os.PathLike,
        precision: str = "auto",
        threads: int | None = None,
        processes: int | None = None,
    ):
        if processes is not None:
            check_count("processes", processes)
        folder = catalog.resolve(path)
        models = begin_models(folder)
        load(
            folder,
            precision,
            "Translator",
            lambda checkpoint, loading: self._build(checkpoint, precision, threads, None, loading, models),
        )
        self._share(folder, precision, threads, processes)

    @classmethod
    def from_checkpoint(
        cls: type[_Self],
        checkpoint: Checkpoint,
        precision: str = "auto",
        threads: int | None = None,
        ops: Ops | None = None,
    ) -> _Self:
        """A Translator of a checkpoint in memory; ``ops`` is the namespace of operations, None: fastattn.ops.cpu."""
        translator = cls.__new__(cls)
        translator._build(checkpoint, precision, threads, ops, None)
        return translator

    def _build(
        self,
        checkpoint: Checkpoint,
        precision: str,
        threads: int | None,
        ops: Ops | None,
        loading: Loading | None,
        models: Mapping[bytes, SentencePiece] = MappingProxyType({}),
    ) -> None:
        text, encoder = checkpoint.text, checkpoint.spec.encoder
        if not isinstance(text, TranslationText):
            raise CheckpointError(
                f"a translation model's checkpoint is expected, this one is an {checkpoint.spec.kind} model's: "
                "use Encoder, or fastattn encode"
            )
        if encoder is None or checkpoint.spec.decoder is None:
            raise CheckpointError(f"expected an encoder-decoder checkpoint, got {checkpoint.spec.kind!r}")
        self._tokenizer = TranslationTokenizer(text, models)
        self._options = CallOptions(self._tokenizer)
        loaded = load_model(checkpoint, precision, threads, ops, loading)
        self._tokenizer.wait()
        self._precision = loaded.precision
        self._service = DecodingService(loaded.model, self._tokenizer.end_id, self._tokenizer.unk_id, loaded.threads)
        self._pipeline = Pipeline(self._service, self._tokenizer, encoder.max_positions)

    def _share(self, folder: Path, precision: str, threads: int | None, processes: int | None) -> None:
        """Have processes, if the caller or the model asks for them."""

        def make_crew(shared: Sharing) -> "TranslatingCrew":
            from fastattn.translation.worker_processes import TranslatingCrew

            return TranslatingCrew(shared, folder, precision)

        self._crew = begin_crew(make_crew, processes, threads, self._service.threads, self.layer_weights)

    def _crew_for(self, texts: int, options: DecodingOptions | None = None) -> "TranslatingCrew | None":
        """The processes for a call with so many texts; None where they are translated here."""
        if self._crew is None or texts < self._crew.least or (options is not None and options.callback is not None):
            return None
        return self._crew

    @property
    def precision(self) -> str:
        """The precision of the matrix products: "float32", "bfloat16", "int8" or "intgemm"; never "auto"."""
        return self._precision

    @property
    def layer_weights(self) -> int:
        """About how many weights the layers of a decoding step have: what ``processes.choice`` asks."""
        return self._service.model.sizes.layer_weights
