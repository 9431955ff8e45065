"""``fastattn batch``: translates or encodes whole corpora, files to files, on this machine or on a Ray cluster."""

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fastattn.cli.interrupt import message_at_signal
from fastattn.cli.options import Command, Group, declare, find_encoder, find_entry, find_model, pause_gc, without_none
from fastattn.cli.printing import Progress, duration, say
from fastattn.cli.search_options import options_as_typed, search_options
from fastattn.cli.vector_options import calibration_vectors, encode_arguments, vector_options
from fastattn.cli.watchdog import watchdog
from fastattn.errors import FastattnError, LineError
from fastattn.printable import counted

if TYPE_CHECKING:
    from fastattn.distributed.batch import BatchRun, Summary

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # suffix of a size -> bytes


class _Size(click.ParamType):
    """A number of bytes, such as 500K or 4M."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,9})([KMG]?)", value.strip().upper())
        if not match or not int(match[1]):
            self.fail(f"expected a number of bytes, such as 500K or 4M, got {value!r}", param, context)
        return int(match[1]) * _UNITS[match[2]]


_batch_options = declare(
    """
-o, --out DIR: Write the output there: a folder, or a URL. [required]
--column TEXT: The texts' column; in text files it is text. [default: text]
--format [parquet|jsonl] -> form: Of the output. [default: parquet]
--input-format [text|jsonl|csv|parquet] -> input_form: Of the input (default: by the files' names).
--block-size SIZE -> size: Bytes of text that are done, and lost, together (default: a 200th of the input, 128K to 4M).
--dry-run: Write nothing; say what it would take, from a sample.
--price FLOAT>=0: Of a core for an hour: --dry-run says what a million rows cost.
Cluster options
--address TEXT: Of a Ray cluster: auto, HOST:PORT (default: RAY_ADDRESS, else this machine alone).
--actors INTEGER>=1: At most so many at once (default: as many as have room).
--cores INTEGER>=1: Of an actor, and its threads (default: as many as keep their speed in one process).
--model-by [path|name|store] -> reach: How the model reaches the hosts: it lies there under its path, each pulls it by
    its name, or it is shipped through Ray's object store (default: store where there are several).
""",
    size={"type": _Size()},
)
_inputs = click.argument("inputs", nargs=-1, required=True, metavar="IN...")


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fastattn batch translate corpus/*.txt --out translated -m en-pt
  fastattn batch encode s3://bucket/pages/ --column body --out vectors
  fastattn batch translate big.jsonl --out out --dry-run --price 0.04

\b
Inputs are text, JSON lines, CSV or Parquet: files, folders, globs, or URLs of
object stores. The output is a file a block, in the order of the input, with
all columns of the input and the new ones; of JSON lines, Parquet has the text
and "json", the whole line. What is being done is kept beside the output. A
run that was stopped, however it was, goes on with the same command: what is
finished stays, and is never computed again.

\b
A row without a text, or whose text cannot be read, has null in the new
column; the second kind is counted at the end, and the exit code is 5. A block
that fails is tried again elsewhere, then set aside with its rows in
DIR/_fastattn/set-aside, and the exit code is 1.
""",
)
def batch() -> None:
    """Translate or encode whole corpora, on this machine or on a Ray cluster; needs fastattn[ray]."""


@batch.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn batch translate corpus.txt --out translated
  fastattn batch translate pages/*.parquet --column body -m zh-en --out out
  fastattn batch translate big.jsonl -m ./my-model -b 1 --out out --dry-run
  fastattn batch translate s3://in/ --out s3://out/ --address auto
""",
)
@declare("""
--model
--from LANGUAGE -> source: Language of the texts: as in fastattn translate, but not auto.
--to LANGUAGE -> target: Language to translate to, likewise (default: en to pt).
--output-column TEXT -> output: The translations' column. [default: translation]
""")
@_inputs
@_batch_options
@declare("""
-n, --num-hypotheses INTEGER: Above 1: a column of so many translations, best first.
--scores: A column of scores.
--split
--precision [float32|bfloat16|int8|intgemm|int4|auto]
--device
""")
@search_options
def translate(
    model: str | None, source: str | None, target: str | None, scores: bool, precision: str | None, **options: Any
) -> None:
    """Translate a column of IN..., files of text, JSON lines, CSV or Parquet.

    -m names the model; --from and --to choose one, from the catalog or Firefox's, or languages of -m's. The default is
    en-pt, English to Portuguese.
    """
    job, search = _split_options(options)
    with Progress() as progress, pause_gc():
        name, path = _model_between(source, target, progress) if model is None else (model, find_model(model, progress))
        call_options = without_none(**search, return_scores=scores or None)
        call_options |= {} if model is None else without_none(source_lang=source, target_lang=target)
        with options_as_typed():
            run = _prepare("translate", name, path, precision, call_options, job)
    _execute(run, job)


def _model_between(source: str | None, target: str | None, progress: Progress) -> tuple[str, str]:
    """(name, folder) of the model that translates between two languages; UsageError if that takes two models."""
    from fastattn.weights.download import models_between

    if source == "auto":
        raise click.UsageError("a batch has one model: give the language of its texts in place of --from auto")
    models = models_between(source, target)
    if len(models) > 1:
        raise click.UsageError(f"from {source} to {target} takes two models, and a batch has one: run it twice")
    return models[0].name, find_entry(models[0], progress)


@batch.command(
    cls=Command,
    epilog="""\b
Examples:
  fastattn batch encode sentences.txt --out vectors
  fastattn batch encode pages/ --column body -m ./my-encoder --out out
  fastattn batch encode s3://in/ --out s3://out/ --address auto
""",
)
@declare("""
--model
--output-column TEXT -> output: The vectors' column. [default: embedding]
""")
@_inputs
@_batch_options
@vector_options
@declare("""
--precision [float32|bfloat16|int8|auto]
--device
""")
def encode(model: str | None, precision: str | None, device: str | None, **options: Any) -> None:
    """Turn a column of IN..., files of text, JSON lines, CSV or Parquet, into vectors.

    -m names the model. The default is minilm, for English.
    """
    job, vector_settings = _split_options(options)
    vectors_MD = calibration_vectors(vector_settings)
    with Progress() as progress, pause_gc():
        from fastattn.weights.download.catalog import DEFAULT_ENCODER

        path = find_encoder(model, progress)
        from fastattn.encoders.encoder import Encoder

        call_options = encode_arguments(vector_settings, vectors_MD, partial(Encoder, path, precision or "auto"))
        call_options |= without_none(device=device)
        for name in ("ranges", "pooling"):  # an array and a tuple become lists, since the job is written as JSON
            if name in call_options:
                call_options[name] = call_options[name].tolist() if name == "ranges" else list(call_options[name])
        run = _prepare("encode", model or DEFAULT_ENCODER, path, precision, call_options, job)
    _execute(run, job)


_REQUEST_OPTIONS = ("inputs", "out", "column", "output", "form", "input_form", "size")
_CLUSTER_OPTIONS = ("address", "actors", "cores", "reach")


def _split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the job, options of the model's calls); FastattnError if the extra ``ray`` is not installed."""
    from fastattn.distributed.extra import import_pyarrow

    import_pyarrow()
    job = {name: options.pop(name) for name in (*_REQUEST_OPTIONS, "dry_run", "price", *_CLUSTER_OPTIONS)}
    if job["price"] is not None and not (job["dry_run"] and math.isfinite(job["price"])):
        raise click.UsageError("--price goes with --dry-run, and is a number")
    return job, options


def _prepare(
    kind: str, name: str, path: Any, precision: str | None, options: dict[str, Any], job: dict[str, Any]
) -> Any:
    from pathlib import Path

    from fastattn.distributed.batch import BatchRequest, BatchRun

    request = {key: job[key] for key in _REQUEST_OPTIONS} | {"kind": kind, "model": name, "path": Path(path)}
    return BatchRun(BatchRequest(**request, precision=precision or "auto", options=options))


def _execute(run: "BatchRun", job: dict[str, Any]) -> None:
    from fastattn.distributed.cluster import ClusterOptions

    cluster = ClusterOptions(**{name: job[name] for name in _CLUSTER_OPTIONS})
    if job["dry_run"]:
        _print_estimate(run, cluster, job["price"])
        return
    message_at_death = "fastattn: this process was ended, by Ray or by the system; the same command does what is left"
    count, done_count = len(run.blocks), 0

    def done_text() -> str:
        return f"{done_count:,} of {counted(count, 'block')} {_is_or_are(done_count)} done"

    def on_progress(summary: "Summary") -> None:
        nonlocal done_count
        done_count, is_new = summary.blocks, summary.blocks > summary.earlier_blocks
        progress.show(_pace_text(summary, count) if is_new else f"starting, {done_text()}")

    at_signal = message_at_signal(lambda: f"fastattn: {done_text()}; the same command does the rest")
    with watchdog(message_at_death), at_signal, Progress(log=True) as progress:
        progress.show(f"starting, {counted(count, 'block')}")
        summary = run.run(cluster, on_progress)
    _report(run, summary)


def _is_or_are(number: int) -> str:
    return "is" if number == 1 else "are"


def _pace_text(summary: "Summary", count: int) -> str:
    """``12 of 48 blocks, 9,876 rows, 1,234 rows/s, 45,678 tokens/s, 3 min left``."""
    seconds, remaining_blocks = max(summary.seconds, 1e-9), count - summary.blocks
    new_rows, new_blocks = summary.rows - summary.earlier_rows, summary.blocks - summary.earlier_blocks
    text = f"{summary.blocks:,} of {count:,} blocks, {summary.rows:,} rows"
    text += f", {new_rows / seconds:,.0f} rows/s, {summary.tokens / seconds:,.0f} tokens/s"
    is_estimable = remaining_blocks and new_blocks
    return text + (f", {duration(seconds / new_blocks * remaining_blocks)} left" if is_estimable else "")


def _report(run: "BatchRun", summary: "Summary") -> None:
    from fastattn.distributed.storage import public_url

    out, new_rows = public_url(run.request.out), summary.rows - summary.earlier_rows
    text = f"{counted(summary.rows, 'row')} in {counted(summary.blocks, 'block')} {_is_or_are(summary.rows)} in {out}"
    if summary.earlier_blocks:
        text += f", {counted(summary.earlier_blocks, 'block')} of them from earlier"
    if new_rows:
        text += f"; {new_rows / max(summary.seconds, 1e-9):,.1f} rows/s"
    if summary.null:
        text += f"; {summary.null:,} had no text"
    if summary.cut:
        verb = "was" if summary.cut == 1 else "were"
        text += f"; {summary.cut:,} {verb} longer than the model takes, and cut (--long mean cuts nothing)"
    say(f"fastattn: {text}", err=True)
    if summary.failed:
        number, reason = min(summary.failed.items())
        raise FastattnError(
            f"{len(summary.failed):,} of {counted(len(run.blocks), 'block')} failed, set aside in "
            f"{out}/_fastattn/set-aside; the first, {number}: {reason}; the same command tries them again"
        )
    if summary.faults:
        verb = "translated" if run.request.kind == "translate" else "encoded"
        raise LineError(
            f"{summary.faults:,} of {counted(summary.rows, 'row')} not {verb}, the first: {run.first_fault(summary)}"
        )


def _print_estimate(run: "BatchRun", cluster: Any, price: float | None) -> None:
    from fastattn.distributed.batch import estimate

    with Progress() as progress:
        progress.show("computing a sample")
        job_estimate = estimate(run, cluster)
    say(f"{counted(job_estimate.blocks, 'block')}, about {counted(job_estimate.rows, 'row')}")
    say(f"an actor with {counted(job_estimate.cores, 'thread')}: {job_estimate.rate:,.1f} rows/s")
    say(f"with {job_estimate.actors:,} at once: {duration(job_estimate.seconds)}")
    cost = "" if price is None else f", {job_estimate.core_hours * price:,.4g} at {price:g} for a core-hour"
    say(f"a million rows: {job_estimate.core_hours:,.3g} core-hours{cost}")
