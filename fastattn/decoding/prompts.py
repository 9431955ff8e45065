"""Prompts: what a model without an encoder reads before it continues them, in chunks between others' steps.

A chunk has the bits of as many steps, wherever a prompt is cut and whatever is read beside it. So chunks may be as long
as time allows, and what prompts begin with is read once for all of them. One layer of SmolLM-135M's shape reads 512
tokens at once in 0.91 to 1.1 times the seconds of a pass over the whole sequence, which has other bits.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from fastattn.decoding.batch import DecodingBatch
from fastattn.decoding.jobs import Job, expected_rows
from fastattn.layers.key_value_cache import KeyValueCache, common_beginning
from fastattn.models.decoder import Decoder
from fastattn.scheduling.request import Ticket
from fastattn.scheduling.state import WorkerSlot

# Seconds of a chunk, which others wait for; a chunk of fewer rows than the least costs hardly less than that.
CHUNK_SECONDS = 0.04
LEAST_CHUNK, MOST_CHUNK = 32, 512
FIRST_GUESS = 2e-11  # seconds of a row and a weight
# A common beginning of fewer tokens is sooner read again than waited for.
LEAST_SHARED = 16


class Prompt:
    """A job whose inputs are being read into a slot of the cache.

    slots_R  its slots, one for each beam; the first one is filled
    done     how many inputs the cache has; -1: not even those that others have read
    """

    def __init__(self, ticket: Ticket, cache: KeyValueCache, limit: int):
        """``limit``: the most tokens of the target."""
        self.ticket, job, self.limit = ticket, ticket.job, limit
        self.job: Job = job
        inputs = job.start[:-1] if job.scored else [*job.start, *job.prefix][: len(job.start) + self.limit - 1]
        self.inputs_T, self.done = np.array(inputs, np.int32), -1
        memory_slots, _ = cache.add_memory_slots(np.zeros(2, np.int64))
        self.memory_slot, self.beam = int(memory_slots[0]), 1 if job.scored else job.options.beam_size
        self.slots_R = cache.add_slots(self.memory_slot, self.beam)
        self.expected = expected_rows(job)
        self.log_probs: list[np.ndarray] = []  # of a scored job

    @property
    def left(self) -> int:
        """How many inputs are to be read."""
        return len(self.inputs_T) - max(self.done, 0)


class PromptReader:
    """Reads the prompts of one worker, a chunk at a time.

    prompts  those that are not read whole
    """

    def __init__(self, model: Decoder):
        self.model, self.prompts = model, list[Prompt]()
        self._seconds_a_row = FIRST_GUESS * model.sizes.layer_weights

    def add(self, cache: KeyValueCache, tickets: Sequence[Ticket], batch_of: Callable[[Job], DecodingBatch]) -> None:
        """Read these, too; a callback is shown a target's prefix first, and may end it there."""
        for ticket in tickets:
            limit = ticket.job.limit(self.model.sizes.max_positions)
            if ticket.job.prefix:
                limit = batch_of(ticket.job).show_prefix(ticket, limit)
            self.prompts.append(Prompt(ticket, cache, limit))

    def read_on(self, cache: KeyValueCache, scheduler: WorkerSlot) -> tuple[list[Prompt], np.ndarray]:
        """Read a chunk: the prompts that are read whole now, and hidden_BD of their last inputs; scores are done."""
        start, begun = perf_counter(), begin_prompts(cache, self.prompts)
        most = min(MOST_CHUNK, max(LEAST_CHUNK, len(begun), int(CHUNK_SECONDS / max(self._seconds_a_row, 1e-9))))
        most = min(most, sum(prompt.left for prompt in begun))
        hidden_BD = read_chunk(self.model, cache, begun, most)
        if most >= LEAST_CHUNK:
            self._seconds_a_row = (perf_counter() - start) / most
        whole = [prompt for prompt in begun if not prompt.left]
        self.prompts[:] = [prompt for prompt in self.prompts if prompt.left]
        for prompt in whole:
            if prompt.job.scored:
                cache.release(prompt.memory_slot, prompt.slots_R)
                scheduler.finish(prompt.ticket, np.concatenate(prompt.log_probs))
            else:
                cache.keep(int(prompt.slots_R[0]), prompt.done)
        searched = [b for b, prompt in enumerate(whole) if not prompt.job.scored]
        return [whole[b] for b in searched], self.model.ops.take_rows(hidden_BD, np.array(searched, np.int64))


def begin_prompts(cache: KeyValueCache, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Give new prompts what they have in common with others; returns those that need not wait for it."""
    begun = [prompt for prompt in prompts if prompt.done >= 0]
    for prompt in prompts:
        if prompt.done >= 0:
            continue
        rows_T, wanted_T = np.zeros(0, np.int32), prompt.inputs_T[:-1]  # the last one's hidden state is needed
        if not prompt.job.scored:  # which needs all hidden states
            rows_T = cache.longest_beginning(wanted_T)
            common = [common_beginning(wanted_T, other.inputs_T) for other in begun]
            longest = max(common, default=0)
            if longest >= max(LEAST_SHARED, len(rows_T) + 1):
                other = begun[common.index(longest)]
                if other.done < longest:
                    continue
                rows_T = cache.shared_rows(int(other.slots_R[0]), longest)
        cache.begin_with(int(prompt.slots_R[0]), rows_T)
        prompt.done = len(rows_T)
        begun.append(prompt)
    return begun


def read_chunk(model: Decoder, cache: KeyValueCache, prompts: Sequence[Prompt], most: int) -> np.ndarray:
    """Read on, ``most`` tokens in all: hidden_BD of the last input of each prompt that is read whole now, in order."""
    counts_B = np.array(fair_shares([prompt.left for prompt in prompts], most), np.int64)
    chosen = [prompt for prompt, count in zip(prompts, counts_B) if count]
    counts_B = counts_B[counts_B > 0]
    firsts_B = np.array([prompt.done for prompt in chosen], np.int64)
    starts_B1 = np.concatenate([[0], np.cumsum(counts_B)])
    for prompt, count in zip(chosen, counts_B.tolist()):
        prompt.done += count
    parts = [prompt.inputs_T[first : prompt.done] for prompt, first in zip(chosen, firsts_B.tolist())]
    slots_B = np.array([prompt.slots_R[0] for prompt in chosen], np.int64)
    hidden_ND, _ = model.prefill(np.concatenate(parts), starts_B1, cache=cache, slots_B=slots_B, firsts_B=firsts_B)
    scored = [b for b, prompt in enumerate(chosen) if prompt.job.scored]
    if scored:
        rows_n = np.concatenate([np.arange(starts_B1[b], starts_B1[b + 1]) for b in scored])
        next_n = np.concatenate([chosen[b].job.start[firsts_B[b] + 1 : chosen[b].done + 1] for b in scored])
        log_probs_n = model.output.log_probs(model.ops.take_rows(hidden_ND, rows_n), next_n.astype(np.int32))
        ends = np.cumsum(counts_B[scored])[:-1]
        for b, part in zip(scored, np.split(log_probs_n, ends)):
            chosen[b].log_probs.append(part)
    whole = [b for b, prompt in enumerate(chosen) if not prompt.left]
    return model.ops.take_rows(hidden_ND, starts_B1[1:][whole] - 1)


def fair_shares(wanted: Sequence[int], most: int) -> list[int]:
    """What each gets of ``most``, at most what it wants: the same for all that want more. The first get the rest."""
    shares = [0] * len(wanted)
    for done, n in enumerate(sorted(range(len(wanted)), key=lambda n: wanted[n])):
        shares[n] = min(wanted[n], -(-most // (len(wanted) - done)))
        most -= shares[n]
    return shares
