"""Prompts of a model without an encoder, which reads them in chunks between the steps of other sentences.

A chunk has the bits of as many steps, wherever it cuts a prompt and whatever else it reads. So a chunk may be as long
as time allows, and prompts with the same beginning share one reading of it. One layer of SmolLM-135M's shape reads 512
tokens at once in 0.91 to 1.1 times the seconds of a pass over the whole sequence, which has other bits.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from fastattn.decoding.step import FIRST_GUESS, Sentence
from fastattn.layers.key_value_cache import KeyValueCache, common_beginning
from fastattn.models.decoder import Decoder
from fastattn.scheduling.state import WorkerSlot

# Other sentences wait so many seconds for a chunk; one of fewer than LEAST_CHUNK tokens costs hardly less than that.
CHUNK_SECONDS = 0.04
LEAST_CHUNK, MOST_CHUNK = 32, 512
# To read a beginning of fewer tokens again takes less time than to wait for another prompt that reads it.
LEAST_SHARED = 16


class PromptReader:
    """Reads the prompts of one worker, a chunk at a time; ``prompts``: those that it has not read whole."""

    def __init__(self, model: Decoder):
        self.model, self.prompts = model, list[Sentence]()
        self._seconds_a_row = FIRST_GUESS * model.sizes.layer_weights

    def add(self, cache: KeyValueCache, sentences: Sequence[Sentence]) -> None:
        """Read these sentences' prompts too."""
        for sentence in sentences:
            sentence.memory_slot, sentence.slots_R = own_slots(cache, sentence.beam)
        self.prompts += sentences

    def read_on(self, cache: KeyValueCache, scheduler: WorkerSlot) -> tuple[list[Sentence], np.ndarray]:
        """Read a chunk: (prompts that are whole now, hidden_BD of their last inputs). Ends tickets that only score."""
        start, started = perf_counter(), begin_prompts(cache, self.prompts)
        count = min(MOST_CHUNK, max(LEAST_CHUNK, len(started), int(CHUNK_SECONDS / max(self._seconds_a_row, 1e-9))))
        count = min(count, sum(prompt.unread for prompt in started))
        hidden_BD = read_chunk(self.model, cache, started, count)
        if count >= LEAST_CHUNK:
            self._seconds_a_row = (perf_counter() - start) / count
        ready = [prompt for prompt in started if not prompt.unread]
        self.prompts[:] = [prompt for prompt in self.prompts if prompt.unread]
        for prompt in ready:
            if prompt.job.only_scores:
                cache.release(prompt.memory_slot, prompt.slots_R)
                scheduler.finish(prompt.ticket, np.concatenate(prompt.log_probs))
            else:
                cache.keep(int(prompt.slots_R[0]), prompt.cached)
        searched = [b for b, prompt in enumerate(ready) if not prompt.job.only_scores]
        return [ready[b] for b in searched], self.model.ops.take_rows(hidden_BD, np.array(searched, np.int64))


def own_slots(cache: KeyValueCache, beam: int) -> tuple[int, np.ndarray]:
    """(memory_slot, slots_R) of a new sentence without a source."""
    memory_slot = int(cache.add_memory_slots(np.zeros(2, np.int64))[0][0])
    return memory_slot, cache.add_slots(memory_slot, beam)


def begin_prompts(cache: KeyValueCache, prompts: Sequence[Sentence]) -> list[Sentence]:
    """Give new prompts the rows of beginnings that others have read; returns prompts that need not wait for more."""
    started = [prompt for prompt in prompts if prompt.cached >= 0]
    for prompt in prompts:
        if prompt.cached >= 0:
            continue
        rows_T, inputs_T = np.zeros(0, np.int32), prompt.inputs_T[:-1]  # the search needs the last hidden state
        if not prompt.job.only_scores:  # scores need all hidden states
            rows_T = cache.longest_beginning(inputs_T)
            common = [common_beginning(inputs_T, shared.inputs_T) for shared in started]
            longest = max(common, default=0)
            if longest >= max(LEAST_SHARED, len(rows_T) + 1):
                shared = started[common.index(longest)]
                if shared.cached < longest:
                    continue
                rows_T = cache.shared_rows(int(shared.slots_R[0]), longest)
        cache.begin_with(int(prompt.slots_R[0]), rows_T)
        prompt.cached = len(rows_T)
        started.append(prompt)
    return started


def read_chunk(model: Decoder, cache: KeyValueCache, prompts: Sequence[Sentence], count: int) -> np.ndarray:
    """Read ``count`` more tokens: hidden_BD of the last inputs of the prompts that are whole now, in their order."""
    counts_B = np.array(fair_shares([prompt.unread for prompt in prompts], count), np.int64)
    in_chunk = [prompt for prompt, tokens in zip(prompts, counts_B) if tokens]
    counts_B = counts_B[counts_B > 0]
    firsts_B = np.array([prompt.cached for prompt in in_chunk], np.int64)
    starts_B1 = np.concatenate([[0], np.cumsum(counts_B)])
    for prompt, tokens in zip(in_chunk, counts_B.tolist()):
        prompt.cached += tokens
    parts = [prompt.inputs_T[first : prompt.cached] for prompt, first in zip(in_chunk, firsts_B.tolist())]
    slots_B = np.array([prompt.slots_R[0] for prompt in in_chunk], np.int64)
    hidden_ND, _ = model.prefill(np.concatenate(parts), starts_B1, cache=cache, slots_B=slots_B, firsts_B=firsts_B)
    scored = [b for b, prompt in enumerate(in_chunk) if prompt.job.only_scores]
    if scored:
        rows_n = np.concatenate([np.arange(starts_B1[b], starts_B1[b + 1]) for b in scored])
        next_n = np.concatenate([in_chunk[b].job.start[firsts_B[b] + 1 : in_chunk[b].cached + 1] for b in scored])
        log_probs_n = model.output.log_probs(model.ops.take_rows(hidden_ND, rows_n), next_n.astype(np.int32))
        ends = np.cumsum(counts_B[scored])[:-1]
        for b, part in zip(scored, np.split(log_probs_n, ends)):
            in_chunk[b].log_probs.append(part)
    ready = [b for b, prompt in enumerate(in_chunk) if not prompt.unread]
    return model.ops.take_rows(hidden_ND, starts_B1[1:][ready] - 1)


def fair_shares(demands: Sequence[int], total: int) -> list[int]:
    """A share of ``total`` for each demand, equal for all whose demand is greater; the first get the remainder."""
    shares = [0] * len(demands)
    for position, n in enumerate(sorted(range(len(demands)), key=lambda n: demands[n])):
        shares[n] = min(demands[n], -(-total // (len(demands) - position)))
        total -= shares[n]
    return shares
