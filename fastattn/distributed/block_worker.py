"""The actor that Ray Data gives blocks to: reads each from storage, has it answered, writes the output.

What comes back to the driver is a short record; texts never pass through Ray. An actor has some blocks in progress,
whose texts share the model's batches, so that reading, writing and the last long sentences of one cost nothing.
"""

import json
import os
import socket
import time
from typing import Any

from fastattn._version import VERSION
from fastattn.distributed.block_models import Answers, make_in_actor
from fastattn.distributed.blocks import read_block
from fastattn.distributed.formats.rows import BlockRows, CorpusBlock
from fastattn.distributed.job import CorpusJob
from fastattn.distributed.model_source import ModelSource
from fastattn.distributed.output_folder import OutputFolder
from fastattn.distributed.storage import public
from fastattn.distributed.writing import as_file
from fastattn.errors import FastattnError, StorageError

BLOCKS_AT_ONCE = 3  # with 2, blocks of 1,000 sentences took a tenth more CPU, and left a tenth of two cores idle
FIRST_FAULTS = 10  # of a block, that its record has
# What comes of a block, or of the attempt to begin.
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"


class BlockWorker:
    """A callable class for ``Dataset.map_batches``: a batch is one block, as JSON, and so is what is returned.

    An actor never fails because of its model or the storage: it says so, and the driver ends the job with that line.
    """

    def __init__(self, job: bytes, out: str, model: ModelSource, threads: int):
        self._fault = None
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        try:
            self._job = CorpusJob.from_json(job, out)
            if self._job.version != VERSION:
                versions = f"has fastattn {VERSION}, the job is of {self._job.version}"
                raise FastattnError(f"host {socket.gethostname()} {versions}")
            self._folder = OutputFolder(out, self._job.form)
            options = dict(self._job.options)
            precision = options.pop("precision")
            self._model = make_in_actor(self._job.kind, model, precision, threads, self._job.outputs[0], options)
        except Exception as error:  # noqa: BLE001  the driver's to tell
            self._fault = _described(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        return {"outcome": [json.dumps(self._outcome(CorpusBlock(**json.loads(block)))) for block in batch["block"]]}

    def _outcome(self, block: CorpusBlock) -> dict[str, Any]:
        if self._fault is not None:
            return {"outcome": STOPPED, "block": block.number, "error": self._fault}
        try:
            record = self._folder.finished_block(block.number) or self._finish(block)
        except StorageError as error:
            return {"outcome": STOPPED, "block": block.number, "error": _described(error)}
        except Exception as error:  # noqa: BLE001  the block's: others go on
            return {"outcome": FAILED, "block": block.number, "error": f"{_described(error)} (on {self._host})"}
        return {"outcome": FINISHED, **record}

    def _finish(self, block: CorpusBlock) -> dict[str, Any]:
        start = time.perf_counter()
        rows = read_block(block, self._job.column)
        answers = self._model.answer(rows.texts)
        data = as_file(rows, answers.columns, self._job.form)
        record = _record(block, rows, answers) | {"seconds": time.perf_counter() - start, "host": self._host}
        return self._folder.write_block(block.number, data, record)


def _record(block: CorpusBlock, rows: BlockRows, answers: Answers) -> dict[str, Any]:
    unit = "row" if block.form == "parquet" else "byte"
    faults = rows.faults | {
        number: f"{public(block.url)}, {unit} {rows.starts[number]}: {why}" for number, why in answers.faults.items()
    }
    null = sum(text is None for text in rows.texts) - len(rows.faults)
    return {
        "block": block.number,
        **block.location,
        "rows": rows.count,
        "null": null,
        "cut": answers.cut,
        "faults": len(faults),
        "fault_at": rows.starts[min(faults)] if faults else 0,
        "first_faults": [why for _, why in sorted(faults.items())[:FIRST_FAULTS]],
        "tokens": answers.tokens,
        "input": rows.digest,
        "size": block.size,
    }


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, FastattnError) else f"{type(error).__name__}: {error}"
