"""An encoder, ready to compute for any number of callers: its model, tokenizer and scheduler."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fastattn.checkpoint import Checkpoint
from fastattn.encoding import LEAST_ROWS, Batch, EncodingWorker, split_batches
from fastattn.errors import CheckpointError
from fastattn.loaded_model import load_model
from fastattn.ops import Ops
from fastattn.progress import Progress
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler
from fastattn.spec import StackSpec
from fastattn.text_spec import EncoderText


class LoadedEncoder:
    """What is made of a checkpoint that ``encoder_parts`` accepts.

    text, spec  the checkpoint's
    loaded      its LoadedModel, with a head if the checkpoint has one
    max_length  the most ids of a text, special ones included
    """

    def __init__(self, checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, keep: bool):
        """The arguments are those of ``load_model``."""
        self.text, self.spec = encoder_parts(checkpoint)
        self.loaded = loaded = load_model(checkpoint, precision, threads, ops, keep)
        limit = self.spec.positions.limit
        self.max_length = min(self.text.max_length, limit) if limit else self.text.max_length
        make_worker = partial(EncodingWorker, loaded.model)
        self.scheduler = Scheduler(make_worker, loaded.threads, loaded.ops.use_threads, 2 * LEAST_ROWS, loaded.threads)
        from fastattn.text.huggingface import HuggingFaceTokenizer  # needs the tokenizers library

        self.tokenizer = HuggingFaceTokenizer(
            self.text.tokenizer, self.max_length, self.text.lowercase, self.text.truncation_side
        )

    def run_alone(self, make_plan: Callable[[], Plan]) -> np.ndarray:
        """The result of a plan for little work, without a worker."""
        found: np.ndarray = self.scheduler.run_alone(make_plan, self._encode)
        return found

    def _encode(self, batches: list[Batch]) -> list[np.ndarray]:
        model = self.loaded.model
        return [batch.vectors(*model.encode(batch.ids_B, batch.types_B)) for batch in batches]


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
    make: Callable[[np.ndarray, np.ndarray], np.ndarray],
    width: int,
    threads: int,
    progress: Progress | None = None,
    types_B: Sequence[np.ndarray] | None = None,
    what: str = "texts",
) -> Plan:
    """What ``make`` makes of the hidden states of all ids, as a Batch has it, float32 [B, width].

    types_B  their token types; None: 0
    what     the ids are of, for the progress
    """
    done: list[np.ndarray] = []

    def vectors(rows_ND: np.ndarray, starts_B1: np.ndarray) -> np.ndarray:
        vectors_BE = make(rows_ND, starts_B1)
        if progress is not None:
            done.extend(vectors_BE)
            progress.show(f"{len(done):,} of {len(ids_B):,} {what}")
        return vectors_BE

    def batch_of(numbers: list[int]) -> Batch:
        types = None if types_B is None else [types_B[b] for b in numbers]
        return Batch([ids_B[b] for b in numbers], vectors, types)

    # Each core takes whole batches, or all cores share each batch.
    batches = split_batches([len(ids) for ids in ids_B], threads)
    vectors_BE = np.zeros((len(ids_B), width), np.float32)
    for numbers, found_BE in zip(batches, (yield [batch_of(numbers) for numbers in batches])):
        vectors_BE[numbers] = found_BE
    return vectors_BE
