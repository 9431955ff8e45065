"""Searches and scores with one model, for many callers at once."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from fastattn.decoding import capacity
from fastattn.decoding.jobs import Job, late_search
from fastattn.decoding.options import DecodingOptions, Step
from fastattn.decoding.plans import stream_plan
from fastattn.decoding.worker import DecodingWorker
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Plan
from fastattn.scheduling.scheduler import Scheduler


class DecodingService:
    """A scheduler whose workers decode, and separate ones for calls that their own thread must compute.

    end_id, unk_id  of the model's vocabulary
    threads         of all callers together
    """

    def __init__(self, model: Decoder, end_id: int, unk_id: int, threads: int):
        self.model = model
        self._make_worker = partial(DecodingWorker, model, end_id, unk_id, left=[])
        self.threads = threads
        self._scheduler = self._make_scheduler(threads)

    def _make_scheduler(self, slots: int) -> Scheduler:
        enough = capacity.SENTENCES_A_THREAD
        return Scheduler(self._make_worker, self.threads, self.model.ops.use_threads, enough, slots)

    def scheduler(self, options: DecodingOptions | None = None) -> Scheduler:
        """The scheduler for a call with these options: a separate one if this thread must call a callback."""
        return self._scheduler if options is None or options.callback is None else self._make_scheduler(1)

    def stream(self, job: Job) -> Iterator[Step]:
        """The tokens of one sentence's greedy search, or of its samples, each as soon as it is known.

        Nothing runs between two of them, so closing the iterator ends the work. Raises as ``search_plan`` does, and
        SearchTimeout if its time is over.
        """
        steps: list[Step] = []
        job = replace(job, options=replace(job.options, callback=steps.append))
        in_time = False

        def plan() -> Plan:
            nonlocal in_time
            in_time = yield from stream_plan(job, self.model.sizes)

        for _ in self._make_scheduler(1).steps(plan):
            yield from steps
            steps.clear()
        if not in_time:
            raise late_search(job.options)
