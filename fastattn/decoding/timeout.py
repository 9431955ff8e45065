"""How long the search for the translation of one text may take."""

from dataclasses import dataclass

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import SearchTimeout


class Allowance:
    """The seconds of search that all sentences of a text have left together."""

    def __init__(self, seconds: float):
        self.left = seconds


@dataclass(frozen=True)
class TimedJob(Job):
    """A Job that is given up, and has no hypotheses, once its text's allowance is used up."""

    allowance: Allowance | None = None


def is_over(job: Job) -> bool:
    """Whether no time is left for it."""
    return isinstance(job, TimedJob) and job.allowance is not None and job.allowance.left <= 0


def charge(jobs: list[Job], seconds: float) -> None:
    """Take the time that they were searched together off their allowances, in equal shares.

    So a text's time is its own: its neighbours in a batch, however many, cost it nothing.
    """
    for job in jobs:
        if isinstance(job, TimedJob) and job.allowance is not None:
            job.allowance.left -= seconds / len(jobs)


def late_search(options: DecodingOptions) -> SearchTimeout:
    """What to raise for a text whose time was over."""
    return SearchTimeout(f"the search took longer than the timeout of {options.timeout:g} s")
