"""Batches of sentences, and the workers of an Encoder, which turn those of any callers into vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastattn.models.encoder import EncoderModel
from fastattn.scheduling.request import Ticket
from fastattn.scheduling.worker_slot import SlotInterface

# Rows of a pass: enough for the matrix products to run at full speed, few enough to bound memory and for the cores
# to finish together. From 256 to 4096 rows the speed differs by less than its noise (MiniLM, two cores).
MOST_ROWS = 1024
LEAST_ROWS = 256


class EncodingBatch:
    """Sentences of one caller; the result is what ``vectors`` makes, vectors_BE or a list of something of each.

    ids_B    int32, one array each
    vectors  makes their vectors from the last hidden states: (rows_ND, starts_B1), after rows of other batches perhaps
    types_B  the token types of the ids; None: 0. All batches of a model have some, or none has
    seen_B   how many first ids of each are attended to; None: all. All batches of a model have some, or none has
    """

    def __init__(
        self,
        ids_B: Sequence[np.ndarray],
        vectors: Callable[[np.ndarray, np.ndarray], Sequence[Any] | np.ndarray],
        types_B: Sequence[np.ndarray] | None = None,
        seen_B: Sequence[int] | None = None,
    ):
        self.ids_B, self.vectors, self.types_B, self.seen_B = ids_B, vectors, types_B, seen_B
        self.weight = self.length = sum(map(len, ids_B))  # as a Scheduler knows it


class EncodingWorker:
    """Encodes waiting batches, as many as fit into a pass together."""

    def __init__(self, model: EncoderModel, slot: SlotInterface):
        self.model, self.slot = model, slot

    def advance(self) -> bool:
        rows = 0

        def has_room(ticket: Ticket, newcomer: bool) -> bool:
            nonlocal rows
            before, rows = rows, rows + ticket.job.weight
            return not before or rows <= MOST_ROWS

        tickets = self.slot.take(has_room)
        if not tickets:
            return False
        ids_B, types_B, seen_B = (_joined(tickets, name) for name in ("ids_B", "types_B", "seen_B"))
        rows_ND, starts_B1 = self.model.encode(ids_B, types_B, seen_B)
        first = 0
        for ticket in tickets:
            end = first + len(ticket.job.ids_B)
            self.slot.finish(ticket, ticket.job.vectors(rows_ND, starts_B1[first : end + 1]))
            first = end
        return True

    def drop(self) -> None:
        """Nothing is in progress between two passes."""


def _joined(tickets: Sequence[Ticket], name: str) -> Any:
    """What all the batches have under a name, end to end; None where they have nothing."""
    if getattr(tickets[0].job, name) is None:
        return None
    return [one for ticket in tickets for one in getattr(ticket.job, name)]


def split_batches(lengths: Sequence[int], threads: int) -> list[list[int]]:
    """Sentence numbers in batches of bounded rows, longest first.

    Sentences of similar length share a batch, so that the cores' shares are even; with too little work for batches on
    every core, all cores share each batch.
    """
    total = sum(lengths)
    most = MOST_ROWS
    if threads > 1 and total >= 2 * LEAST_ROWS * threads:
        most = min(MOST_ROWS, max(LEAST_ROWS, total // (4 * threads)))
    batches: list[list[int]] = []
    rows = 0
    for b in sorted(range(len(lengths)), key=lambda b: -lengths[b]):
        if not batches or rows + lengths[b] > most:
            batches.append([])
            rows = 0
        batches[-1].append(b)
        rows += lengths[b]
    return batches
