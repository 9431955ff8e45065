"""Searches and scores as the tests of decoding call them: with a scheduler of their own."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fastattn.decoding.jobs import Hypothesis, Job
from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.plans import score_plan, search_plan
from fastattn.decoding.service import DecodingService
from tests.models.tiny_models import END, UNK


def decode(model, jobs: Sequence[Job], options: DecodingOptions, threads: int = 1) -> list[list[Hypothesis]]:
    """The hypotheses of each job, all searched for with these options."""
    jobs = [replace(job, options=options) for job in jobs]
    service = DecodingService(model, END, UNK, threads)
    return service.scheduler(options).run(partial(search_plan, jobs, model.sizes))


def score(model, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """The log-probabilities of each target's tokens behind its first."""
    return DecodingService(model, END, UNK, threads).scheduler().run(partial(score_plan, sources, targets))
