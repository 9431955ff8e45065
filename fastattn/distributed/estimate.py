"""What a job will take, from a sample of its rows computed here."""

import time
from collections.abc import Sequence

from fastattn.distributed.batch import BatchRun
from fastattn.distributed.block_models import BLOCK_MODELS, BlockModel
from fastattn.distributed.blocks import read_block
from fastattn.distributed.cluster import ClusterOptions, Host, address_of, joined, pool_of, quiet
from fastattn.distributed.formats.rows import CorpusBlock
from fastattn.errors import InputError
from fastattn.system.cpus import default_threads
from fastattn.system.records import dataclass

SAMPLED_BLOCKS, SAMPLED_ROWS = 8, 64  # rows of each


@dataclass(frozen=True)
class Estimate:
    """blocks, rows  of the whole job; rows are estimated but for Parquet
    rate     rows a second of one actor by itself, of ``cores`` threads
    actors   at once
    seconds  of the whole job, start apart
    """

    blocks: int
    rows: int
    rate: float
    actors: int
    cores: int
    seconds: float

    @property
    def core_hours(self) -> float:
        """For a million rows."""
        return 1e6 / self.rate * self.cores / 3600


def estimate(batch: BatchRun, options: ClusterOptions) -> Estimate:
    """Read and compute a sample; no Ray is needed but to ask a cluster how large it is."""
    nodes = [Host("", default_threads())]
    if address_of(options.address) != "local":
        with quiet(), joined(options.address) as nodes:
            pass
    pool = pool_of(nodes, batch.model.layer_weights, options)
    actors, cores, request = min(pool.actors, len(batch.blocks)), pool.cores, batch.request
    model: BlockModel = BLOCK_MODELS[request.kind](
        batch.path, request.precision, cores, request.output, request.options
    )
    texts, bytes_a_row = _sample(batch.blocks, request.column)
    model.answer(texts[:: max(1, len(texts) // SAMPLED_ROWS)])  # compiles, and warms caches up
    start = time.perf_counter()
    model.answer(texts)
    rate = len(texts) / (time.perf_counter() - start)
    rows = sum(
        block.stop - block.start if block.form == "parquet" else round(block.size / bytes_a_row)
        for block in batch.blocks
    )
    return Estimate(len(batch.blocks), rows, rate, actors, cores, rows / (rate * actors))


def _sample(blocks: Sequence[CorpusBlock], column: str) -> tuple[list[str | None], float]:
    """(rows from all over the input, bytes of the input for each row)."""
    texts: list[str | None] = []
    rows = size = 0
    for block in blocks[:: max(1, -(-len(blocks) // SAMPLED_BLOCKS))]:
        found = read_block(block, column)
        rows, size = rows + found.count, size + block.size
        texts += found.texts[:: max(1, found.count // SAMPLED_ROWS)]
    if not rows:
        raise InputError("the sampled blocks hold no rows, so nothing can be estimated")
    return texts, size / rows
