"""An encoder, ready to compute for any number of callers: its model, tokenizer and scheduler."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fastattn.encoders.encoding import LEAST_ROWS, EncodingBatch, EncodingWorker, split_batches
from fastattn.errors import CheckpointError
from fastattn.loading.loaded_model import Loading, load_model
from fastattn.ops.protocol import Ops
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec.architecture import StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from fastattn.system.progress import Progress

# From the last hidden states of a batch, as a EncodingBatch has it, to something of each of its texts.
Make: TypeAlias = Callable[[np.ndarray, np.ndarray], Sequence[Any] | np.ndarray]
MakeFor: TypeAlias = Callable[[list[int]], Make]


class LoadedEncoder:
    """What is made of a checkpoint that ``encoder_parts`` accepts.

    text, spec  the checkpoint's
    loaded      its LoadedModel, with a head if the checkpoint has one
    max_length  the most ids of a text, special ones included
    """

    def __init__(
        self, checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, loading: Loading | None
    ):
        """The arguments are those of ``load_model``."""
        self.text, self.spec = encoder_parts(checkpoint)
        self.loaded = loaded = load_model(checkpoint, precision, threads, ops, loading)
        limit = self.spec.max_positions
        self.max_length = min(self.text.max_length, limit) if limit else self.text.max_length
        make_worker = partial(EncodingWorker, loaded.model)
        self.scheduler = Scheduler(make_worker, loaded.threads, loaded.ops.use_threads, 2 * LEAST_ROWS, loaded.threads)
        from fastattn.text.huggingface import HuggingFaceTokenizer  # needs the tokenizers library

        self.tokenizer = HuggingFaceTokenizer(
            self.text.tokenizer, self.max_length, self.text.lowercase, self.text.truncation_side
        )

    def run_alone(self, make_plan: Callable[[], Plan]) -> Any:
        """The result of a plan for little work, without a worker."""
        return self.scheduler.run_alone(make_plan, self._encode)

    def _encode(self, batches: list[EncodingBatch]) -> list[Any]:
        model = self.loaded.model
        return [batch.vectors(*model.encode(batch.ids_B, batch.types_B, batch.seen_B)) for batch in batches]


def encoder_parts(checkpoint: Checkpoint) -> tuple[EncoderText, StackSpec]:
    """(text, spec) of an encoder. Raises CheckpointError for another checkpoint."""
    text, spec = checkpoint.text, checkpoint.spec.encoder
    if not isinstance(text, EncoderText):
        raise CheckpointError(
            f"an encoder's checkpoint is expected, this one is an {checkpoint.spec.kind} model's: "
            "use Translator, or fastattn translate"
        )
    if spec is None or checkpoint.spec.decoder is not None:
        raise CheckpointError(f"expected an encoder's checkpoint, got {checkpoint.spec.kind!r}")
    return text, spec


def plan_batches(
    ids_B: Sequence[np.ndarray],
    make_for: MakeFor,
    width: int,
    threads: int,
    progress: Progress | None = None,
    types_B: Sequence[np.ndarray] | None = None,
    what: str = "texts",
) -> Plan:
    """Rows of numbers of each of the ids, in their order, float32 [B, width].

    make_for  from the numbers of a batch's ids to what makes their rows, of their hidden states
    types_B  their token types; None: 0
    what     the ids are of, for the progress
    """
    vectors_BE = np.zeros((len(ids_B), width), np.float32)
    for numbers, found_BE in (yield from _plan_parts(ids_B, make_for, threads, progress, types_B, what=what)):
        vectors_BE[numbers] = found_BE
    return vectors_BE


def plan_each(
    ids_B: Sequence[np.ndarray],
    make_for: MakeFor,
    threads: int,
    progress: Progress | None = None,
    seen_B: Sequence[int] | None = None,
) -> Plan:
    """A list of something of each text, in their order.

    make_for  from the numbers of a batch's texts to what makes the list of them, of their hidden states
    seen_B    how many first ids of each are attended to, as a EncodingBatch has it
    """
    results: list[Any] = [None] * len(ids_B)
    for numbers, found_B in (yield from _plan_parts(ids_B, make_for, threads, progress, seen_B=seen_B)):
        for b, one in zip(numbers, found_B):
            results[b] = one
    return results


def _plan_parts(
    ids_B: Sequence[np.ndarray],
    make_for: MakeFor,
    threads: int,
    progress: Progress | None,
    types_B: Sequence[np.ndarray] | None = None,
    seen_B: Sequence[int] | None = None,
    what: str = "texts",
) -> Plan:
    """(numbers of texts, what was made of them) of each batch."""
    done = 0

    def counted(make: Make) -> Make:
        def made(rows_ND: np.ndarray, starts_B1: np.ndarray) -> Sequence[Any] | np.ndarray:
            nonlocal done
            found_B = make(rows_ND, starts_B1)
            if progress is not None:
                done += len(found_B)
                progress.show(f"{done:,} of {len(ids_B):,} {what}")
            return found_B

        return made

    def batch_of(numbers: list[int]) -> EncodingBatch:
        types = None if types_B is None else [types_B[b] for b in numbers]
        seen = None if seen_B is None else [seen_B[b] for b in numbers]
        return EncodingBatch([ids_B[b] for b in numbers], counted(make_for(numbers)), types, seen)

    # Each core takes whole batches, or all cores share each batch.
    batches = split_batches([len(ids) for ids in ids_B], threads)
    return list(zip(batches, (yield [batch_of(numbers) for numbers in batches])))
