"""Time limits of the search for a text's translation."""

from fastattn.decoding.jobs import Job
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import SearchTimeout


def is_over(job: Job) -> bool:
    """Whether the job's time is used up."""
    return job.allowance is not None and job.allowance.left <= 0


def charge(jobs: list[Job], seconds: float) -> None:
    """Subtract the time of a shared step from the jobs' allowances, in equal shares.

    So a text's neighbours in a batch, however many, cost it no time.
    """
    for job in jobs:
        if job.allowance is not None:
            job.allowance.left -= seconds / len(jobs)


def late_search(options: DecodingOptions) -> SearchTimeout:
    """The error for a text whose time is over."""
    return SearchTimeout(f"the search took longer than the timeout of {options.timeout:g} s")
