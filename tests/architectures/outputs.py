"""A case through the product: an encoder's rows or its head's numbers; a decoder's logits and what its search finds."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.decoding.options import DecodingOptions
from fastattn.decoding.search import Job, search_plan
from fastattn.decoding.worker import DecodingService
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.weights import read
from tests.architectures.case import FIRST_WORD, VOCABULARY, Case, make_ids, make_types
from tests.models.tiny_models import END, starts_of, stepped

NOTHING = np.zeros(0, np.int32)  # a source that there is not
PROMPTS, TOKENS = 10, 64


def load(folder: Path, precision: str = "float32") -> Any:
    return build_model(read(folder), operations, precision)


def outputs(folder: Path, case: Case, precision: str = "float32") -> list[np.ndarray]:
    """The last hidden states [T, D] of each sentence, or what the head gives of it: [labels], [T, labels] or [T, V]."""
    checkpoint, types_B = read(folder, "encoder"), make_types(case)
    model: Any = build_model(checkpoint, operations, precision)
    rows_ND, starts_B1 = model.encode(make_ids(case), *(() if types_B is None else (types_B,)))
    if case.task != "encoder":
        assert checkpoint.spec.head is not None, checkpoint.headless
        rows_ND = model.head(rows_ND, starts_B1)
        if checkpoint.spec.head.rows != "each":
            return list(rows_ND)
    return np.split(rows_ND, starts_B1[1:-1])


def _logits(model: Any, hidden_TD: np.ndarray) -> np.ndarray:
    """The logits of all tokens, in order of ids."""
    values, ids = model.output.top_k(hidden_TD, VOCABULARY, normalized=False)
    return np.take_along_axis(values, np.argsort(ids, axis=1), axis=1)


def pass_logits(model: Any, case: Case) -> list[np.ndarray]:
    """[T, V] of each sentence, by one pass over all of them."""
    ids_B = make_ids(case)
    starts_B1 = starts_of(ids_B)
    hidden_ND, _ = model.prefill(np.concatenate(ids_B), starts_B1)
    return [_logits(model, hidden_ND[start:end]) for start, end in zip(starts_B1, starts_B1[1:])]


def step_logits(model: Any, case: Case) -> list[np.ndarray]:
    """The same by cached steps, behind a pass over the first token."""
    ids_B = make_ids(case)
    return [_logits(model, rows_TD) for rows_TD in stepped(model, [NOTHING] * len(ids_B), ids_B, prefill=1)[0]]


def prompts(case: Case) -> list[list[int]]:
    """Ids of prompts of 1 to 28 tokens."""
    rng = np.random.default_rng(case.seed + 77)
    return [[int(t) for t in FIRST_WORD + rng.random(3 * b + 1) * (VOCABULARY - FIRST_WORD)] for b in range(PROMPTS)]


def continuations(model: Any, case: Case) -> np.ndarray:
    """tokens_BT that greedy search puts behind the prompts, the end never."""
    options = DecodingOptions(beam_size=1, min_decoding_length=0, max_decoding_length=TOKENS, disable_unk=True)
    jobs = [Job(NOTHING, prompt, options=options) for prompt in prompts(case)]
    service = DecodingService(model, VOCABULARY, END, threads=1)  # no token ends, and the end is never chosen
    found = service.scheduler(options).run(partial(search_plan, jobs, model.sizes))
    return np.array([hypothesis.tokens for (hypothesis,) in found])
