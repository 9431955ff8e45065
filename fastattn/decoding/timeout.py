"""How long the search for the translation of one text may take."""

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import SearchTimeout


def is_over(job: Job) -> bool:
    """Whether no time is left for it."""
    return job.allowance is not None and job.allowance.left <= 0


def charge(jobs: list[Job], seconds: float) -> None:
    """Take the time that they were searched together off their allowances, in equal shares.

    So a text's time is its own: its neighbours in a batch, however many, cost it nothing.
    """
    for job in jobs:
        if job.allowance is not None:
            job.allowance.left -= seconds / len(jobs)


def late_search(options: DecodingOptions) -> SearchTimeout:
    """What to raise for a text whose time was over."""
    return SearchTimeout(f"the search took longer than the timeout of {options.timeout:g} s")
