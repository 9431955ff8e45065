"""Base of all classes that load a model, and how a checkpoint's model is built."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from fastattn.errors import FastattnError, InputError, WrongModelError, check_count
from fastattn.loading.model_cache import LoadRecord, PackedWeights, load_or_build
from fastattn.models.kinds import build_model
from fastattn.ops import backend, check_device
from fastattn.ops.protocol import Ops
from fastattn.processes.choice import Sharing, choose_sharing
from fastattn.spec.checkpoint import Checkpoint, resolve_precision
from fastattn.spec.quantized import as_float32, unread
from fastattn.spec.text_spec import EncoderText, GeneratorText, TranslationText
from fastattn.system.memory import return_freed_memory
from fastattn.system.option_names import MODEL, explains_options
from fastattn.system.records import dataclass
from fastattn.weights import download

_Self = TypeVar("_Self", bound="ModelBase")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A checkpoint's model, ready to compute.

    model       from ``fastattn.models.kinds``
    ops         the namespace of operations that it uses
    precision   of the matrix products, as ``ModelBase.precision`` says
    threads     the most threads to use
    find_fault  returns the name of the first tensor in the checkpoint's files that has NaN or infinity, "" for none
    """

    model: Any
    ops: Ops
    precision: str
    threads: int
    find_fault: Callable[[], str] = str


class ModelBase:
    """Base of all classes that load a model: loading, worker processes, closing.

    A model is open until ``close``, until the end of ``with Translator(path) as translator:``, or until nothing refers
    to the model. Then it frees all that it has; a later use raises FastattnError.
    """

    _takes_processes: ClassVar[bool] = False
    _checkpoint_part: ClassVar[str] = ""  # see ``fastattn.weights.read``
    _pool: Any = None  # the worker processes, if there are any
    _scheduler: Any  # of the calls without a callback
    _folder: Path | None = None  # of the checkpoint's files; None: it was in memory
    _loaded: LoadedModel

    @explains_options(MODEL)
    def __init__(
        self,
        path: str | os.PathLike,
        precision: str = "auto",
        threads: int | None = None,
        processes: int | None = None,
        device: str = "cpu",
    ):
        """Load the model of a checkpoint; all classes that load a model take these options.

        path       a folder, a name from the catalog, or OWNER/NAME on the Hugging Face hub
        precision  of the matrix products: "float32", "bfloat16", "int8", or "auto" (int8 if the checkpoint holds int8,
                   else float32)
        threads    the most threads to use; None: all that the process may use
        processes  how many processes share the work, since the threads of one process share an interpreter's lock.
                   Each has ``threads`` threads (None: an equal part of all), and all map the same weights. 1: this
                   process alone. None: 1 below 8 threads, else as many as ``processes.choice`` finds, started with the
                   first large call; ``threads`` is then the total. Only a Translator and an Encoder take more than 1
        device     where the model computes: "cpu", "cuda" (an NVIDIA card) or "auto" (a card where there is one)
        """
        check_device(device)
        if processes is not None and check_count("processes", processes) > 1 and not self._takes_processes:
            raise InputError(f"{type(self).__name__} computes in this process alone: processes should be 1 or None")
        self._folder = folder = download.resolve(path)
        self._begin(folder)

        def build(checkpoint: Checkpoint, record: LoadRecord) -> None:
            self._build(precision, threads, backend(device), checkpoint, record)

        load_or_build(folder, precision, type(self).__qualname__, build, device, self._checkpoint_part)
        return_freed_memory()
        if self._takes_processes:
            sharing = choose_sharing(processes, threads, self._loaded.threads, self.layer_weights)
            if sharing.processes > 1:
                self._pool = self._make_pool(folder, precision, device, sharing)
                if processes is not None:  # else the first large call starts the processes
                    self._pool.start()

    @classmethod
    def from_checkpoint(
        cls: type[_Self],
        checkpoint: Checkpoint,
        precision: str = "auto",
        threads: int | None = None,
        ops: Ops | None = None,
        device: str = "cpu",
    ) -> _Self:
        """The model of a checkpoint in memory. ``ops`` is its namespace of operations; None: that of the device."""
        model = cls.__new__(cls)
        model._build(precision, threads, ops or backend(device), checkpoint, None)
        return model

    def _build(
        self, precision: str, threads: int | None, ops: Ops, checkpoint: Checkpoint, record: LoadRecord | None
    ) -> None:
        checkpoint = self._check(checkpoint)
        self._loaded = load_model(checkpoint, precision, threads, ops, record)
        if self._folder is not None:
            find_fault = cache(partial(_find_fault, os.path.abspath(self._folder), self._checkpoint_part))
            self._loaded = replace(self._loaded, find_fault=find_fault)
        self._prepare()

    def _begin(self, folder: Path) -> None:
        """Start slow work that needs no Checkpoint, before the folder is read."""

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint, or the part of it that the class needs; CheckpointError for another kind of checkpoint."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make what all calls of the loaded model use."""

    def _make_pool(self, folder: Path, precision: str, device: str, sharing: Sharing) -> Any:
        """The worker processes of a class that takes ``processes``."""

    @property
    def precision(self) -> str:
        """The precision of the matrix products: "float32", "bfloat16", "int8" or "intgemm"; never "auto"."""
        return self._loaded.precision

    @property
    def layer_weights(self) -> int:
        """About how many weights the layers of a step have, for ``processes.choice``."""
        raise NotImplementedError

    def _pool_for(self, text_count: int) -> Any:
        """The worker processes for a call of ``text_count`` texts; None where this process computes alone."""
        return None if self._pool is None or text_count < self._pool.least_texts else self._pool

    def observe_steps(self, observe: Callable[[int, int], None]) -> None:
        """Have ``observe`` called behind each step that this process makes, as ``Scheduler`` calls it."""
        self._scheduler.observe = observe

    def close(self) -> None:
        """End the worker processes, if there are any, and free the memory; a second call does nothing.

        The processes have ended when ``close`` returns; calls that they had begun raise FastattnError, and so do later
        calls. Other calls in progress end as they would without ``close``.
        """
        if "_closed" not in self.__dict__:
            pool = self._pool
            self.__dict__ = {"_closed": frozenset(self.__dict__)}
            if pool is not None:
                pool.close()

    def __enter__(self: _Self) -> _Self:
        if "_closed" in self.__dict__:
            raise self._closed_error()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _closed_error(self) -> FastattnError:
        return FastattnError(f"this {type(self).__name__} is closed")

    if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name in self.__dict__.get("_closed", ()):
                raise self._closed_error()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce_ex__(self, protocol: Any = None) -> Any:
        raise TypeError(
            f"this {type(self).__name__} cannot be pickled or copied: give the other process its path, to make one of "
            "its own there; they map the same weights"
        )


def _find_fault(path: str, part: str) -> str:
    """``LoadedModel.find_fault`` of the checkpoint at a path; "" also where the files cannot be read any more."""
    from fastattn.weights import read  # this import loads what all exporters need

    with suppress(FastattnError):
        checkpoint = read(path, part, later=True)
        dense = checkpoint.input.dense if isinstance(checkpoint.input, EncoderText) else ()
        weights = {f"dense.{number}.weight": weight for number, (weight, _, _) in enumerate(dense)}
        for name, tensor in {**checkpoint.tensors, **weights}.items():
            parts = unread(tensor).rows() if tensor.ndim == 2 else [tensor]
            if not all(np.isfinite(as_float32(rows)).all() for rows in parts):
                return name
    return ""


def wrong_model_error(expected: str, checkpoint: Checkpoint) -> WrongModelError:
    """The error where ``expected``, such as "an encoder's", is not the checkpoint's kind; it names the class to use."""
    kind, usage = checkpoint.spec.kind, _USAGES[type(checkpoint.text)]
    if checkpoint.pictures is not None and checkpoint.spec.decoder is not None:
        usage = "vision.Captioner, or fastattn caption"
    return WrongModelError(
        f"{expected} checkpoint is expected, "
        f"this one is {'a' if kind == 'decoder' else 'an'} {kind} model's: use {usage}"
    )


# Type of a checkpoint's text -> the class and the command that take such a checkpoint, for messages.
_USAGES = {
    TranslationText: "Translator, or fastattn translate",
    EncoderText: "Encoder, or fastattn encode",
    GeneratorText: "Generator, or fastattn generate; to translate, LanguageModelTranslator, or fastattn translate with "
    "--from and --to",
}


def load_model(
    checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops, record: LoadRecord | None
) -> LoadedModel:
    """Build the model of a checkpoint.

    record  gets what the model uses; packed weights are mapped from the cache folder, or written there. None: nothing
            is cached
    Raises InputError for an unknown precision or invalid ``threads``, CheckpointError for weights that are not finite.
    """
    resolved = resolve_precision(precision, checkpoint)
    if record is None or not record.is_cached:
        checkpoint = resolved.without_unused_scales(checkpoint)
    limit = ops.thread_limit()
    threads = limit if threads is None else min(check_count("threads", threads), limit)
    packed = None
    if record is not None and not record.is_cached and ops.packed_layout(resolved.arithmetic) is not None:
        variety = resolved.file_suffix + "-head" * (checkpoint.spec.head is not None)
        variety += "-decoder" * (checkpoint.spec.kind == "decoder")  # an encoder's layers have other names
        packed = PackedWeights(checkpoint.files, resolved.arithmetic, variety, ops)

    def factors() -> dict[str, np.ndarray]:
        from fastattn.loading.balance import input_factors  # only where weights are packed

        return input_factors(checkpoint, ops)

    needed = None if record is None else record.needed
    try:
        model = build_model(checkpoint, ops, resolved.arithmetic, packed, factors, needed)
    except BaseException:
        if packed is not None:
            packed.abandon()
        raise
    if record is not None and packed is not None:
        record.packed_path = packed.path if packed.is_whole else None
        packed.save()
    return LoadedModel(model, ops, resolved.name, threads)
