"""Forced decoding: the log-probability of each token of a given target; passes over batches of sentences."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fastattn.decoding.model import Model
from fastattn.decoding.scheduler import SENTENCES_A_THREAD
from fastattn.sharing import share_out

# Rows of a pass; at 65,000 words their log-softmax would fill 500 MB were it ever stored whole.
TOKENS = 2048


def score(
    model: Model, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], threads: int = 1
) -> list[np.ndarray]:
    """Log-probabilities of targets[b][1:], float32, each given the source and the target before it.

    A target is its start token, its tokens and, usually, its end token: int32.
    """
    results: list[np.ndarray] = [np.zeros(0, np.float32) for _ in sources]
    chosen = [b for b in range(len(sources)) if len(targets[b]) > 1]

    def run(batch: list[int]) -> list[np.ndarray]:
        return _score_batch(model, [sources[b] for b in batch], [targets[b] for b in batch])

    for b, log_probs_T in in_batches(model, chosen, sources, targets, threads, run).items():
        results[b] = log_probs_T
    return results


def in_batches(
    model: Model,
    chosen: list[int],
    sources: Sequence[np.ndarray],
    targets: Sequence[Sequence[int]] | Sequence[np.ndarray],
    threads: int,
    run: Callable[[list[int]], Iterable],
) -> dict[int, Any]:
    """What ``run`` gives for each of the chosen sentences, run in batches of them that are shared among threads."""
    order = sorted(chosen, key=lambda b: -len(targets[b]))
    workers = max(1, min(threads, len(order) // SENTENCES_A_THREAD))

    def work(batch: list[int]) -> dict[int, Any]:
        with model.ops.use_threads(threads if workers == 1 else 1):
            return dict(zip(batch, run(batch)))

    results: dict[int, Any] = {}
    for done in share_out(work, _batches(order, sources, targets, workers), workers):
        results.update(done)
    return results


def _batches(order: list[int], sources, targets, workers: int) -> list[list[int]]:
    """The sentences in groups of about TOKENS rows, and at least as many groups as workers."""
    most = -(-len(order) // workers) if order else 1
    batches: list[list[int]] = []
    rows = 0
    for b in order:
        rows += len(sources[b]) + len(targets[b])
        if not batches or rows > TOKENS or len(batches[-1]) >= most:
            batches.append([])
            rows = len(sources[b]) + len(targets[b])
        batches[-1].append(b)
    return batches


def _score_batch(model: Model, sources, targets) -> list[np.ndarray]:
    starts_B1 = np.zeros(len(targets) + 1, np.int64)
    np.cumsum([len(target) - 1 for target in targets], out=starts_B1[1:])
    inputs_N = np.concatenate([target[:-1] for target in targets]).astype(np.int32, copy=False)
    outputs_N = np.concatenate([target[1:] for target in targets]).astype(np.int32, copy=False)
    hidden_ND, _ = model.prefill(inputs_N, starts_B1, model.encode(sources))
    log_probs_N = model.output.log_probs(hidden_ND, outputs_N)
    return [log_probs_N[starts_B1[b] : starts_B1[b + 1]] for b in range(len(targets))]
