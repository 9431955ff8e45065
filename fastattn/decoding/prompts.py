"""Prompts of a model without an encoder, which are read in chunks between the steps of other sentences.

A chunk has the bits of as many steps, wherever it cuts a prompt and whatever else it reads. So a chunk may be as long
as time allows, and prompts with the same beginning share one reading of the beginning. One layer of SmolLM-135M's shape
reads 512 tokens at once in 0.91 to 1.1 times the seconds of a pass over the whole sequence, which has other bits.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from fastattn.decoding.recorded_layers import RecordedLayers
from fastattn.decoding.search import top_tokens
from fastattn.decoding.step import GUESSED_SECONDS, Sentence
from fastattn.layers.key_value_cache import KeyValueCache, common_length
from fastattn.models.decoder import Decoder
from fastattn.scheduling.state import WorkerSlot

# The sentences in progress wait so long for a chunk. Fewer tokens than LEAST_CHUNK cost hardly less than LEAST_CHUNK.
CHUNK_SECONDS = 0.04
LEAST_CHUNK, MOST_CHUNK = 32, 512
CHUNK_GRAIN = 16  # so that chunks of few different lengths are recorded
# A shared beginning of fewer tokens is read again, which takes less time than waiting for the prompt that reads it.
LEAST_SHARED = 16


class PromptReader:
    """Reads one worker's prompts, a chunk at a time; ``prompts``: the sentences whose prompts are not read whole."""

    def __init__(self, model: Decoder):
        self.model, self.prompts = model, list[Sentence]()
        self._seconds_a_row = GUESSED_SECONDS * model.sizes.layer_weights

    def add(self, cache: KeyValueCache, sentences: Sequence[Sentence]) -> None:
        """Give these sentences slots, and read their prompts from now on."""
        for sentence in sentences:
            sentence.memory_slot, sentence.slots_R = own_slots(cache, sentence.beam)
        self.prompts += sentences

    def read_on(
        self, cache: KeyValueCache, layers: RecordedLayers | None, scheduler: WorkerSlot
    ) -> tuple[list[Sentence], np.ndarray]:
        """Read a chunk, finish jobs that only score: (searches with whole prompts, hidden_BD of their last inputs)."""
        start, prompts = perf_counter(), begin_prompts(cache, self.prompts)
        rows = int(CHUNK_SECONDS / max(self._seconds_a_row, 1e-9))
        count = min(MOST_CHUNK, max(LEAST_CHUNK, len(prompts), rows // CHUNK_GRAIN * CHUNK_GRAIN))
        count = min(count, sum(prompt.unread_inputs for prompt in prompts))
        hidden_BD = read_chunk(self.model, cache, layers, prompts, count)
        if count >= LEAST_CHUNK:
            self._seconds_a_row = (perf_counter() - start) / count
        whole_prompts = [prompt for prompt in prompts if not prompt.unread_inputs]
        self.prompts[:] = [prompt for prompt in self.prompts if prompt.unread_inputs]
        for prompt in whole_prompts:
            if prompt.job.only_scores:
                cache.release(prompt.memory_slot, prompt.slots_R)
                scheduler.finish(prompt.ticket, (np.concatenate(prompt.log_probs), prompt.tops))
            else:
                cache.keep_beginning(int(prompt.slots_R[0]), prompt.cached_inputs)
        searches = [b for b, prompt in enumerate(whole_prompts) if not prompt.job.only_scores]
        return [whole_prompts[b] for b in searches], self.model.ops.take_rows(hidden_BD, np.array(searches, np.int64))


def own_slots(cache: KeyValueCache, beam: int) -> tuple[int, np.ndarray]:
    """(memory_slot, slots_R) of a new sentence without a source."""
    memory_slot = int(cache.add_memory_slots(np.zeros(2, np.int64))[0][0])
    return memory_slot, cache.add_slots(memory_slot, beam)


def begin_prompts(cache: KeyValueCache, prompts: Sequence[Sentence]) -> list[Sentence]:
    """Give new prompts the rows of beginnings that other prompts have read; returns prompts that wait for no other."""
    begun_prompts = [prompt for prompt in prompts if prompt.cached_inputs >= 0]
    for prompt in prompts:
        if prompt.cached_inputs >= 0:
            continue
        rows_T, inputs_T = np.zeros(0, np.int32), prompt.inputs_T[:-1]  # the search needs the last hidden state
        if not prompt.job.only_scores:  # scores need all hidden states
            rows_T = cache.longest_beginning(inputs_T)
            lengths = [common_length(inputs_T, other.inputs_T) for other in begun_prompts]
            longest = max(lengths, default=0)
            if longest >= max(LEAST_SHARED, len(rows_T) + 1):
                other = begun_prompts[lengths.index(longest)]
                if other.cached_inputs < longest:
                    continue
                rows_T = cache.shared_rows(int(other.slots_R[0]), longest)
        cache.begin_with_rows(int(prompt.slots_R[0]), rows_T, prompt.cache_rows)
        prompt.cached_inputs = prompt.shared_inputs = len(rows_T)
        begun_prompts.append(prompt)
    return begun_prompts


def read_chunk(
    model: Decoder, cache: KeyValueCache, layers: RecordedLayers | None, prompts: Sequence[Sentence], count: int
) -> np.ndarray:
    """Read a chunk of ``count`` tokens: hidden_BD of the last inputs of the prompts that are whole now, in order."""
    counts_B = np.array(fair_shares([prompt.unread_inputs for prompt in prompts], count), np.int64)
    prompts = [prompt for prompt, tokens in zip(prompts, counts_B) if tokens]
    counts_B = counts_B[counts_B > 0]
    firsts_B = np.array([prompt.cached_inputs for prompt in prompts], np.int64)
    starts_B1, ends_B = np.concatenate([[0], np.cumsum(counts_B)]), firsts_B + counts_B
    for prompt, end in zip(prompts, ends_B.tolist()):
        prompt.cached_inputs = end
    tokens_N = np.concatenate([prompt.inputs_T[first:end] for prompt, first, end in zip(prompts, firsts_B, ends_B)])
    slots_B = np.array([prompt.slots_R[0] for prompt in prompts], np.int64)
    positions_N = np.concatenate([np.arange(first, end, dtype=np.int32) for first, end in zip(firsts_B, ends_B)])
    hidden_ND = None if layers is None else layers.step(np.repeat(slots_B, counts_B), tokens_N, positions_N)
    if hidden_ND is None:
        hidden_ND, _ = model.prefill(tokens_N, starts_B1, cache=cache, slots_B=slots_B, firsts_B=firsts_B)
    scoring = [b for b, prompt in enumerate(prompts) if prompt.job.only_scores]
    if scoring:
        rows_n = np.concatenate([np.arange(starts_B1[b], starts_B1[b + 1]) for b in scoring])
        next_n = np.concatenate([prompts[b].job.start[firsts_B[b] + 1 : ends_B[b] + 1] for b in scoring])
        log_probs_n = model.output.log_probs(model.ops.take_rows(hidden_ND, rows_n), next_n.astype(np.int32))
        for b, log_probs_T in zip(scoring, np.split(log_probs_n, np.cumsum(counts_B[scoring])[:-1])):
            prompts[b].log_probs.append(log_probs_T)
            if count := prompts[b].job.top_count:
                hidden_TD = model.ops.take_rows(hidden_ND, np.arange(starts_B1[b], starts_B1[b + 1]))
                prompts[b].tops += top_tokens(*model.output.top_k(hidden_TD, min(count, model.sizes.vocabulary)))
    whole = [b for b, prompt in enumerate(prompts) if not prompt.unread_inputs]
    return model.ops.take_rows(hidden_ND, starts_B1[1:][whole] - 1)


def fair_shares(demands: Sequence[int], total: int) -> list[int]:
    """A share of ``total`` for each demand: at most the demand, and equal shares where demands are greater."""
    shares = [0] * len(demands)
    for position, n in enumerate(sorted(range(len(demands)), key=lambda n: demands[n])):
        shares[n] = min(demands[n], -(-total // (len(demands) - position)))  # rounded up: low demands get the remainder
        total -= shares[n]
    return shares
