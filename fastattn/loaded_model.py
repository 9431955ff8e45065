"""A checkpoint's model, ready to compute: its operations, precision and threads chosen, its weights packed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastattn.balance import input_factors
from fastattn.checkpoint import Checkpoint
from fastattn.errors import check_count
from fastattn.models.kinds import build_model
from fastattn.ops import Ops
from fastattn.precision import resolve_precision


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


def load_model(
    checkpoint: Checkpoint, precision: str, threads: int | None, ops: Ops | None, keep_packed: bool
) -> LoadedModel:
    """Build the model of a checkpoint.

    precision    one of ``fastattn.precision``, "auto" too
    threads      None: all that the process may use
    ops          None: fastattn.operations
    keep_packed  map the packed weights from the cache folder, or write them there
    Raises InputError for an unknown precision or number of threads, CheckpointError for weights that are not finite.
    """
    resolved = resolve_precision(precision, checkpoint)
    checkpoint = resolved.applied(checkpoint)
    if ops is None:  # imported only when they are needed: it takes a while
        from fastattn import operations

        ops = operations
    limit = ops.thread_limit()
    threads = limit if threads is None else min(check_count("threads", threads), limit)
    packed_file = None
    if keep_packed:
        from fastattn.packed_file import PackedFile

        variety = resolved.variety + ("-head" if checkpoint.spec.head is not None else "")
        packed_file = PackedFile(checkpoint.files, resolved.arithmetic, variety)
    factors = partial(input_factors, checkpoint, ops)
    model = build_model(checkpoint, ops, resolved.arithmetic, packed_file, factors)
    if packed_file is not None:
        packed_file.save()
    return LoadedModel(model, ops, resolved.name, threads)
