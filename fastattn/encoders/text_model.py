"""What the classes of texts share whose results are of their own kind each: loading, and running over texts."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from fastattn.encoders.loaded_encoder import LoadedEncoder, encoder_parts
from fastattn.errors import CheckpointError, check_bool, check_texts
from fastattn.loading.kept_checkpoint import load
from fastattn.loading.loaded_model import Loading, refuse_pickling
from fastattn.models.head import Head
from fastattn.ops.protocol import Ops
from fastattn.scheduling.request import Plan
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.system.closing import Closable
from fastattn.system.option_names import MODEL, explains_options
from fastattn.system.progress import Progress
from fastattn.weights.download import catalog

Model = TypeVar("Model", bound="TextModel")


class TextModel(Closable):
    """An encoder that is loaded, for a class that makes something of its hidden states."""

    __reduce_ex__ = refuse_pickling

    @explains_options(MODEL)
    def __init__(self, path: str | os.PathLike, precision: str = "auto", threads: int | None = None):
        load(
            catalog.resolve(path),
            precision,
            type(self).__qualname__,
            lambda checkpoint, loading: self._build(checkpoint, precision, threads, None, loading),
        )

    @classmethod
    def from_checkpoint(
        cls: type[Model],
        checkpoint: Checkpoint,
        precision: str = "auto",
        threads: int | None = None,
        ops: Ops | None = None,
    ) -> Model:
        """One of a checkpoint in memory; ``ops`` is the namespace of operations, None: fastattn.ops.cpu."""
        made = cls.__new__(cls)
        made._build(checkpoint, precision, threads, ops, None)
        return made

    def _build(
        self, checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, loading: Loading | None
    ) -> None:
        checked = self._checked(checkpoint, *encoder_parts(checkpoint))
        self._encoder = LoadedEncoder(checked, precision, threads, ops, loading)
        self._prepare()

    def _checked(self, checkpoint: Checkpoint, text: EncoderText, stack: StackSpec) -> Checkpoint:
        """The checkpoint, or the part of it that is needed; CheckpointError for one of another kind.

        text, stack  its parts
        """
        return checkpoint

    def _prepare(self) -> None:
        """What is made once, of the loaded encoder."""

    @property
    def precision(self) -> str:
        """The precision of the encoder's matrix products: "float32", "bfloat16" or "int8"; never "auto"."""
        return self._encoder.loaded.precision

    @property
    def max_length(self) -> int:
        """The most ids of a text, special ones included; longer texts are cut."""
        return self._encoder.max_length

    @property
    def prompts(self) -> dict[str, str]:
        """The checkpoint's prompts by name."""
        return dict(self._encoder.text.prompts)

    @property
    def _head(self) -> Head:
        head: Head = self._encoder.loaded.model.head
        return head

    def _run(
        self,
        plan: Callable[[list[str], Progress | None], Plan],
        texts: str | Iterable[str],
        show_progress_bar: bool | None = None,
    ) -> Any:
        """What the plan gives of the texts, one after the other; of one, if ``texts`` is a str."""
        if isinstance(texts, str):
            return self._encoder.run_alone(partial(plan, [texts], None))
        listed = check_texts("texts", texts)
        with Progress(show_progress_bar is not None and check_bool("show_progress_bar", show_progress_bar)) as progress:
            return self._encoder.scheduler.run(partial(plan, listed, progress))


def check_predicts(checkpoint: Checkpoint, text: EncoderText, stack: StackSpec, wanted: str) -> Checkpoint:
    """The checkpoint; CheckpointError unless its head gives a number for each token of the vocabulary."""
    head = checkpoint.spec.head
    if head is None:
        raise CheckpointError(f"{wanted} is expected: {checkpoint.headless or 'the checkpoint has no head'}")
    if head.rows != "each" or text.labels or head.outputs != stack.vocabulary:
        raise CheckpointError(f"{wanted} is expected: the checkpoint's head does not predict tokens")
    return checkpoint
