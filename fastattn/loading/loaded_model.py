"""A checkpoint's model, ready to compute: its operations, precision and threads chosen, its weights packed."""

from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import check_count
from fastattn.layers.parameters import NeededTensors
from fastattn.models.kinds import build_model
from fastattn.ops.protocol import Ops
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.precision import resolve_precision
from fastattn.system.records import dataclass


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """model      of the checkpoint's kind, from ``fastattn.models.kinds``
    ops        the namespace of operations that it uses
    precision  of the matrix products: "float32", "bfloat16", "int8" or "intgemm"; never "auto"
    threads    the most threads to use
    """

    model: Any
    ops: Ops
    precision: str
    threads: int


@dataclass(eq=False)
class Loading:
    """What is kept of a loaded model for other processes; see ``fastattn.loading.kept_checkpoint``.

    needed  what the model asked of its tensors
    known   whether ``needed`` has all its layers from the start, from an earlier process
    packed  the file of its packed weights, if all of them were there from an earlier process
    """

    needed: NeededTensors = field(default_factory=NeededTensors)
    known: bool = False
    packed: Path | None = None


def refuse_pickling(model: Any, protocol: Any = None) -> Any:
    """In the place of ``__reduce_ex__`` in a class whose objects have threads and mapped weights."""
    raise TypeError(
        f"this {type(model).__name__} cannot be pickled or copied: give the other process its path, to make one of its "
        "own there; they map the same weights"
    )


def load_model(
    checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, loading: Loading | None
) -> LoadedModel:
    """Build the model of a checkpoint.

    precision    one of ``fastattn.spec.precision``, "auto" too
    threads      None: all that the process may use
    ops          None: fastattn.ops.cpu
    loading      map the packed weights from the cache folder, or write them there; filled. None: nothing is kept
    Raises InputError for an unknown precision or number of threads, CheckpointError for weights that are not finite.
    """
    resolved = resolve_precision(precision, checkpoint)
    if loading is None or not loading.known:
        checkpoint = resolved.applied(checkpoint)
    if ops is None:  # imported only when they are needed: it takes a while
        from fastattn.ops import cpu as operations

        ops = operations
    limit = ops.thread_limit()
    threads = limit if threads is None else min(check_count("threads", threads), limit)
    packed_file = None
    if loading is not None and not loading.known:
        from fastattn.loading.packed_file import PackedFile

        variety = resolved.variety + ("-head" if checkpoint.spec.head is not None else "")
        packed_file = PackedFile(checkpoint.files, resolved.arithmetic, variety)
    factors = partial(_input_factors, checkpoint, ops)
    needed = None if loading is None else loading.needed
    model = build_model(checkpoint, ops, resolved.arithmetic, packed_file, factors, needed)
    if loading is not None and packed_file is not None:
        loading.packed = packed_file.path if packed_file.is_whole else None
        packed_file.save()
    return LoadedModel(model, ops, resolved.name, threads)


def _input_factors(checkpoint: Checkpoint, ops: Ops) -> dict[str, np.ndarray]:
    from fastattn.loading.balance import input_factors  # for a model that is packed

    return input_factors(checkpoint, ops)
