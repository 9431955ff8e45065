"""A job's open blocks, given to Ray Data until each block is finished or has failed too often.

A pass is one dataset of blocks on one pool of actors. The blocks of an actor that died are not tried again within the
pass, which Ray would do forever. They get a later pass, in which an actor has one block at a time, so that a block that
ends its actors takes no other block with it.
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

# A block that raised an error twice will raise it again; a block whose actors died may have had bad luck.
MOST_FAILURES, MOST_LOSSES = 2, 4
MOST_LOST_ACTORS = 8  # in a row, before any begins: so many are not lost with their hosts
MOST_AT_ONCE = 20_000  # blocks of a pass, which takes Ray ten seconds to plan
LOST = "its worker ended before it was done: killed, out of memory, or lost with its host"


OnRecord = Callable[[dict[str, Any]], None]


def run_blocks(
    job: CorpusJob, blocks: Sequence[CorpusBlock], out: str, source: ModelSource, pool: ActorPool, on_progress: OnRecord
) -> dict[int, str]:
    """Have blocks computed and written; returns number -> reason of the blocks that failed.

    out          the output folder
    on_progress  called with each record, in the order in which blocks are finished
    Raises FastattnError where the job cannot go on: no model on a host, no room for the output.
    """
    folder = OutputFolder(out, job.form)
    open_blocks = {block.number: block for block in blocks}
    failures: Counter[int] = Counter()
    losses: Counter[int] = Counter()
    reasons: dict[int, str] = {}
    while numbers := [n for n in open_blocks if failures[n] < MOST_FAILURES and losses[n] < MOST_LOSSES]:
        suspects = [n for n in numbers if losses[n]]
        is_alone = len(suspects) == len(numbers)
        numbers = (suspects if is_alone else [n for n in numbers if not losses[n]])[:MOST_AT_ONCE]
        unreported = set(numbers)
        for outcome in _one_pass(job, [open_blocks[n] for n in numbers], out, source, pool, is_alone):
            number, kind = outcome["block"], outcome["outcome"]
            if kind == STOPPED:
                raise FastattnError(outcome["error"])
            unreported.discard(number)
            if kind == FAILED:
                failures[number] += 1
                reasons[number] = outcome["error"]
            elif open_blocks.pop(number, None) is not None:
                on_progress(outcome)
        for number in unreported:  # the actor was lost, perhaps after it had finished the block
            record = folder.finished_block(number)
            if record is None:
                losses[number] += 1
                reasons[number] = LOST
            else:
                del open_blocks[number]
                on_progress({"outcome": FINISHED, **record})
    return {number: reasons[number] for number in open_blocks}


def _one_pass(
    job: CorpusJob, blocks: Sequence[CorpusBlock], out: str, source: ModelSource, pool: ActorPool, alone: bool
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each block as soon as it is known; blocks of lost actors have none.

    alone  an actor has one block at a time, and no block waits for it
    """
    ray = import_ray()
    actors, at_once = min(pool.actors, len(blocks)), 1 if alone else BLOCKS_AT_ONCE
    with _settings(ray.data.DataContext.get_current()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated names: setup.cfg bounds the version of Ray
        items = [{"block": json.dumps(asdict(block))} for block in blocks]
        blocks_of_ray = ray.data.from_items(items, override_num_blocks=len(blocks))
        outcomes = blocks_of_ray.map_batches(
            BlockWorker,
            fn_constructor_args=(job.without_files().as_json(), out, source, pool.cores),
            batch_size=1,
            num_cpus=pool.cores,
            num_gpus=pool.cards or None,
            max_restarts=-1,
            max_task_retries=0,
            compute=ray.data.ActorPoolStrategy(
                # The least is 1, so that idle actors make room for actors that lost their host.
                min_size=1,
                max_size=actors,
                initial_size=actors,
                # No block waits beside them: a slow actor would keep it from the others.
                max_tasks_in_flight_per_actor=at_once,
                max_concurrent_calls_per_actor=at_once,
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
def _settings(context: Any) -> Iterator[None]:
    """Ray Data's settings for a pass: a lost block does not end it, and Ray shows no progress of its own."""
    settings = {
        "max_errored_blocks": -1,
        "max_consecutive_actor_init_deaths": MOST_LOST_ACTORS,
        # An actor that was lost before it began is replaced while the others work, not only while work waits.
        "autoscaling_config": replace(context.autoscaling_config, actor_pool_util_upscaling_threshold=0.99),
        "enable_progress_bars": False,
        "print_on_execution_start": False,
    }
    saved = {name: getattr(context, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(context, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(context, name, value)
