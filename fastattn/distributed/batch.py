"""A job over files, from a user's request to a summary: what ``fastattn batch`` does."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from fastattn._version import VERSION
from fastattn.distributed.block_worker import BLOCK_MODELS, BlockModel
from fastattn.distributed.cluster import ClusterOptions, Host, address_of, cluster_hosts, pool_of, quiet_ray, reach_of
from fastattn.distributed.driver import run_blocks
from fastattn.distributed.extra import import_pyarrow, import_ray
from fastattn.distributed.formats import block_bytes, cut, read_block
from fastattn.distributed.formats.blocks import CorpusBlock, line_number
from fastattn.distributed.job import CorpusJob
from fastattn.distributed.model_source import check_reach, digest_of, source_of
from fastattn.distributed.output_folder import OutputFolder, Record, as_file, names_in, part_name, refuse_duplicates
from fastattn.distributed.storage import InputFile, find_files, input_covering, public_url
from fastattn.errors import FastattnError, InputError
from fastattn.ops import backend
from fastattn.system.cpus import default_threads
from fastattn.system.records import dataclass


@dataclass(frozen=True)
class BatchRequest:
    """kind        "translate" or "encode"
    inputs      files, folders and globs: local paths or URLs
    out         the output folder, a path or a URL
    model       the user's name or path of the model; ``path``: the model's folder or file on this machine
    precision   of the Translator or Encoder; ``options``: of its calls, and "device"
    column      the column of the texts; ``output``: the new column of results
    form        form of the output: "parquet" or "jsonl"; ``input_form``: of the input, None: by the files' names
    size        bytes of text in a block; None: chosen by the size of all input
    """

    kind: str
    inputs: Sequence[str]
    out: str
    model: str
    path: Path
    column: str
    output: str
    form: str = "parquet"
    precision: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    input_form: str | None = None
    size: int | None = None


@dataclass
class Summary:
    """What a job has done: how many blocks and rows, in all and in earlier runs; texts that were null, cut, or failed.

    faults         how many texts failed; ``faulty_record``: the record of the first block with such texts
    tokens, seconds, size   of this run; size in bytes of text
    failed         number of a block that was set aside -> reason
    """

    blocks: int = 0
    rows: int = 0
    earlier_blocks: int = 0
    earlier_rows: int = 0
    null: int = 0
    cut: int = 0
    faults: int = 0
    faulty_record: Mapping[str, Any] | None = None
    tokens: int = 0
    seconds: float = 0.0
    size: int = 0
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        self.blocks += 1
        self.rows += record["rows"]
        self.null += record["null"]
        self.cut += record["cut"]
        self.faults += record["faults"]
        if record["first_faults"] and (self.faulty_record is None or record["block"] < self.faulty_record["block"]):
            self.faulty_record = record


class BatchRun:
    """A job whose inputs, model and options are checked, and whose blocks are cut; nothing is written or started yet.

    Raises InputError or CheckpointError for wrong inputs, models and options.
    """

    def __init__(self, request: BatchRequest):
        import_pyarrow()
        self.request = request
        self.files: list[InputFile] = find_files(request.inputs, request.input_form)
        covering = input_covering(request.out, part_name(0, request.form), request.inputs) if request.out else None
        if covering is not None:  # the output's files would become inputs of the next run
            out = public_url(request.out).rstrip("/")
            raise InputError(
                f"cannot write {out}: the input {public_url(covering)} would take the output's files for its own; name "
                "a folder that is not below it"
            )
        self.path, self.digest = request.path.absolute(), digest_of(request.path)
        model_class = BLOCK_MODELS[request.kind]
        self.model: BlockModel = model_class(self.path, request.precision, None, request.output, request.options)
        size = request.size or block_bytes(self.files)
        self.blocks: list[CorpusBlock] = cut(self.files, request.column, size)
        self._check_outputs()
        self.job = CorpusJob(
            kind=request.kind,
            model=self.digest,
            model_name=request.model,
            options={**self.model.options, "precision": self.model.precision},
            column=request.column,
            outputs=list(self.model.outputs),
            form=request.form,
            version=VERSION,
            block_bytes=size,
            input_form=self.files[0].form if self.files else "",
            files=list(map(vars, self.files)),
        )

    def run(self, options: ClusterOptions, on_progress: Callable[[Summary], None] = lambda _: None) -> Summary:
        """Compute the blocks that no earlier run has finished.

        on_progress  called with the summary so far, at the beginning and after each block
        Raises FastattnError if the output folder belongs to another job or another run, if there is no cluster, or if
        the job cannot go on.
        """
        import_ray()
        check_reach(options.reach)
        folder = OutputFolder(self.request.out, self.request.form)
        with folder.hold() as check_held:
            first_job = folder.begin(self.job)
            summary = Summary()
            records = folder.finished_records()
            self._check_modified(folder, first_job, records)
            for record in records.values():
                summary.add(record)
            summary.earlier_blocks, summary.earlier_rows = summary.blocks, summary.rows
            on_progress(summary)
            open_blocks = [block for block in self.blocks if block.number not in records]
            if not open_blocks:
                return summary
            with quiet_ray(), cluster_hosts(options.address) as hosts:
                pool = pool_of(hosts, self.model.layer_weights, options, self.request.options.get("device", "cpu"))
                source = source_of(self.request.model, self.path, self.digest, options.reach or reach_of(hosts))
                start = time.monotonic()

                def add(record: dict[str, Any]) -> None:
                    check_held()  # raises if another job holds the folder now
                    summary.add(record)
                    summary.tokens += record["tokens"]
                    summary.size += record["size"]
                    summary.seconds = time.monotonic() - start
                    on_progress(summary)

                summary.failed = run_blocks(self.job, open_blocks, folder.url, source, pool, add)
            for block in open_blocks:
                if block.number in summary.failed:
                    rows = b""  # if the block cannot be read
                    with suppress(FastattnError):
                        rows = as_file(read_block(block, self.request.column), {}, "jsonl")
                    folder.set_aside(block.number, rows, {"error": summary.failed[block.number], **block.location})
        return summary

    def first_fault(self, summary: Summary) -> str:
        """Where and why the first text failed: ``line 7 of corpus.csv, byte 123: not UTF-8``."""
        record = summary.faulty_record
        if record is None:
            return ""
        block, number = self.blocks[record["block"]], None
        if block.form != "parquet":
            with suppress(FastattnError):  # the file may be gone
                number = line_number(block.url, record["fault_at"])
        return (f"line {number:,} of " if number else "") + str(record["first_faults"][0])

    def _check_outputs(self) -> None:
        """Raise InputError if a new column has no name, or the name of another new column or of an input column."""
        outputs = self.model.outputs
        duplicate = next((name for name in outputs if outputs.count(name) > 1), None)
        if duplicate is not None or "" in outputs:
            fault = f"two columns would be named {duplicate!r}" if duplicate else "a column to be made has no name"
            raise InputError(f"{fault}; name the one to be written otherwise")
        if not self.blocks:
            return
        try:
            rows = read_block(self.blocks[0], self.request.column)
        except FastattnError:
            return  # the run sets the block aside, like any other block that cannot be read
        refuse_duplicates(names_in(rows, self.request.form), outputs)

    def _check_modified(self, folder: OutputFolder, first_job: CorpusJob, records: Mapping[int, Record]) -> None:
        """Raise InputError if the rows of a finished block have changed; if not, write the job with its new times.

        A changed file of the same size may be cut in other places, so that later blocks get other numbers. A block that
        is cut as before, but of a file with a new time, is read again, since a time alone says little.
        """
        modified_urls = {self.files[number].url for number in self.job.files_with_new_time(first_job)}
        for number, record in records.items():
            block = self.blocks[number] if number < len(self.blocks) else None
            if block is None or block.location != {name: record[name] for name in block.location}:
                fault = f"{record['url']} is not cut as it was when {folder.name} was begun"
            elif block.url in modified_urls and read_block(block, self.request.column).digest != record["input"]:
                fault = f"{record['url']} has changed since {folder.name} was begun"
            else:
                continue
            raise InputError(f"{fault}, as block {number} shows; name another folder")
        if modified_urls:
            folder.write_job(self.job)


SAMPLED_BLOCKS, SAMPLED_ROWS = 8, 64  # rows of each block


@dataclass(frozen=True)
class Estimate:
    """blocks, rows  of the whole job; rows are estimated, except for Parquet
    rate     rows a second that one actor with ``cores`` threads computes
    actors   how many actors work at once
    seconds  of the whole job, without its start
    """

    blocks: int
    rows: int
    rate: float
    actors: int
    cores: int
    seconds: float

    @property
    def core_hours(self) -> float:
        """Core-hours for a million rows."""
        return 1e6 / self.rate * self.cores / 3600


def estimate(batch: BatchRun, options: ClusterOptions) -> Estimate:
    """Estimate the job by a sample, which this process computes. Ray is needed only for the size of a cluster."""
    device = batch.request.options.get("device", "cpu")
    hosts = [Host("", default_threads(), int(backend(device) is not backend("cpu")))]
    if address_of(options.address) != "local":
        with quiet_ray(), cluster_hosts(options.address) as hosts:
            pass
    pool = pool_of(hosts, batch.model.layer_weights, options, device)
    actors, cores, request = min(pool.actors, len(batch.blocks)), pool.cores, batch.request
    model_class = BLOCK_MODELS[request.kind]
    model: BlockModel = model_class(batch.path, request.precision, cores, request.output, request.options)
    texts: list[str | None] = []
    sampled_rows = sampled_bytes = 0
    for block in batch.blocks[:: max(1, -(-len(batch.blocks) // SAMPLED_BLOCKS))]:  # blocks from the whole input
        block_rows = read_block(block, request.column)
        sampled_rows, sampled_bytes = sampled_rows + block_rows.count, sampled_bytes + block.size
        texts += block_rows.texts[:: max(1, block_rows.count // SAMPLED_ROWS)]
    if not sampled_rows:
        raise InputError("the sampled blocks hold no rows, so nothing can be estimated")
    model.answer(texts[:: max(1, len(texts) // SAMPLED_ROWS)])  # compiles kernels and fills caches
    start = time.perf_counter()
    model.answer(texts)
    rate = len(texts) / (time.perf_counter() - start)
    rows = sum(
        block.stop - block.start if block.form == "parquet" else round(block.size / (sampled_bytes / sampled_rows))
        for block in batch.blocks
    )
    return Estimate(len(batch.blocks), rows, rate, actors, cores, rows / (rate * actors))
