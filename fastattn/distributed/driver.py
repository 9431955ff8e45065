"""Gives a job's open blocks to Ray Data until each block is finished or has failed too often.

A pass is one dataset of blocks on one pool of actors. The blocks of an actor that died are not tried again in the same
pass, where Ray would try forever. A later pass has these blocks, each alone at an actor, so that a block that ends its
actors takes no other block with it.
"""

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from fastattn.distributed.block_worker import BLOCKS_AT_ONCE, FAILED, FINISHED, STOPPED, BlockWorker
from fastattn.distributed.cluster import ActorPool
from fastattn.distributed.extra import import_ray
from fastattn.distributed.formats.blocks import CorpusBlock
from fastattn.distributed.job import CorpusJob
from fastattn.distributed.model_source import ModelSource
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import FastattnError

# A block that raised an error twice will raise it again. A block whose actors died may only have had bad luck.
MOST_FAILURES, MOST_LOSSES = 2, 4
MOST_LOST_ACTORS = 8  # in a row before any begins: more are a fault, not lost hosts
MOST_PASS_BLOCKS = 20_000  # Ray needs ten seconds to plan a pass of so many blocks
LOST_REASON = "its worker ended before it was done: killed, out of memory, or lost with its host"

OnRecord = Callable[[dict[str, Any]], None]


def run_blocks(
    job: CorpusJob, blocks: Sequence[CorpusBlock], out: str, source: ModelSource, pool: ActorPool, on_progress: OnRecord
) -> dict[int, str]:
    """Have blocks computed and written; returns the number of each block that failed -> the reason.

    out          the output folder
    on_progress  called with the record of each block, in the order in which blocks are finished
    Raises FastattnError if the job cannot go on, say without a model on a host or without room for the output.
    """
    folder = OutputFolder(out, job.form)
    open_blocks = {block.number: block for block in blocks}
    failures: Counter[int] = Counter()
    losses: Counter[int] = Counter()
    reasons: dict[int, str] = {}
    while numbers := [n for n in open_blocks if failures[n] < MOST_FAILURES and losses[n] < MOST_LOSSES]:
        suspects = [n for n in numbers if losses[n]]
        one_at_a_time = len(suspects) == len(numbers)
        numbers = (suspects if one_at_a_time else [n for n in numbers if not losses[n]])[:MOST_PASS_BLOCKS]
        unreported = set(numbers)
        for outcome in _run_pass(job, [open_blocks[n] for n in numbers], out, source, pool, one_at_a_time):
            number, outcome_kind = outcome["block"], outcome["outcome"]
            if outcome_kind == STOPPED:
                raise FastattnError(outcome["error"])
            unreported.discard(number)
            if outcome_kind == FAILED:
                failures[number] += 1
                reasons[number] = outcome["error"]
            elif open_blocks.pop(number, None) is not None:
                on_progress(outcome)
        for number in unreported:  # the actor was lost, perhaps after it finished the block
            record = folder.finished_block(number)
            if record is None:
                losses[number] += 1
                reasons[number] = LOST_REASON
            else:
                del open_blocks[number]
                on_progress({"outcome": FINISHED, **record})
    return {number: reasons[number] for number in open_blocks}


def _run_pass(
    job: CorpusJob, blocks: Sequence[CorpusBlock], out: str, source: ModelSource, pool: ActorPool, one_at_a_time: bool
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each block as soon as the block is done; a block of a lost actor has no outcome.

    one_at_a_time  whether an actor has one block at a time; if not, it has BLOCKS_AT_ONCE
    """
    ray = import_ray()
    actors, blocks_at_once = min(pool.actors, len(blocks)), 1 if one_at_a_time else BLOCKS_AT_ONCE
    with _pass_settings(ray.data.DataContext.get_current()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated names: setup.cfg bounds Ray's version
        items = [{"block": json.dumps(asdict(block))} for block in blocks]
        dataset = ray.data.from_items(items, override_num_blocks=len(blocks))
        outcomes = dataset.map_batches(
            BlockWorker,
            fn_constructor_args=(job.without_files().as_json(), out, source, pool.cores),
            batch_size=1,
            num_cpus=pool.cores,
            num_gpus=pool.cards or None,
            max_restarts=-1,
            max_task_retries=0,
            compute=ray.data.ActorPoolStrategy(
                # The minimum is 1, so that idle actors make room for actors whose host was lost.
                min_size=1,
                max_size=actors,
                initial_size=actors,
                # No further block waits at an actor, since a slow actor would keep the block from the others.
                max_tasks_in_flight_per_actor=blocks_at_once,
                max_concurrent_calls_per_actor=blocks_at_once,
                enable_true_multi_threading=True,
            ),
        )
        try:
            for row in outcomes.iter_rows():
                yield json.loads(row["outcome"])
        except ray.exceptions.RayError as error:  # no actor can start, for example without fastattn on a host
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise FastattnError(f"Ray cannot go on: {reason[-1].strip()}") from error


@contextlib.contextmanager
def _pass_settings(context: Any) -> Iterator[None]:
    """Ray Data's settings for a pass: a lost block does not end the pass, and Ray shows no progress."""
    settings = {
        "max_errored_blocks": -1,
        "max_consecutive_actor_init_deaths": MOST_LOST_ACTORS,
        # An actor that was lost before it began is replaced while other actors work, not only while work waits.
        "autoscaling_config": replace(context.autoscaling_config, actor_pool_util_upscaling_threshold=0.99),
        "enable_progress_bars": False,
        "print_on_execution_start": False,
    }
    previous = {name: getattr(context, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(context, name, value)
        yield
    finally:
        for name, value in previous.items():
            setattr(context, name, value)
