"""Prompts: what a model without an encoder reads before it continues them, in chunks between others' steps.

A chunk has the bits of as many steps, wherever a prompt is cut and whatever is read beside it. So chunks may be as long
as time allows, and what prompts begin with is read once for all of them. One layer of SmolLM-135M's shape reads 512
tokens at once in 0.91 to 1.1 times the seconds of a pass over the whole sequence, which has other bits.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from fastattn.decoding.step import FIRST_GUESS, Sentence
from fastattn.layers.key_value_cache import KeyValueCache, common_beginning
from fastattn.models.decoder import Decoder
from fastattn.scheduling.state import WorkerSlot

# Seconds of a chunk, which others wait for; a chunk of fewer rows than the least costs hardly less than that.
CHUNK_SECONDS = 0.04
LEAST_CHUNK, MOST_CHUNK = 32, 512
# A common beginning of fewer tokens is sooner read again than waited for.
LEAST_SHARED = 16


class PromptReader:
    """Reads the prompts of one worker, a chunk at a time.

    prompts  those that are not read whole
    """

    def __init__(self, model: Decoder):
        self.model, self.prompts = model, list[Sentence]()
        self._seconds_a_row = FIRST_GUESS * model.sizes.layer_weights

    def add(self, cache: KeyValueCache, sentences: Sequence[Sentence]) -> None:
        """Read these, too."""
        for sentence in sentences:
            sentence.memory_slot, sentence.slots_R = own_slots(cache, sentence.beam)
        self.prompts += sentences

    def read_on(self, cache: KeyValueCache, scheduler: WorkerSlot) -> tuple[list[Sentence], np.ndarray]:
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


def own_slots(cache: KeyValueCache, beam: int) -> tuple[int, np.ndarray]:
    """(memory_slot, slots_R) of a new sentence without a source."""
    memory_slot = int(cache.add_memory_slots(np.zeros(2, np.int64))[0][0])
    return memory_slot, cache.add_slots(memory_slot, beam)


def begin_prompts(cache: KeyValueCache, prompts: Sequence[Sentence]) -> list[Sentence]:
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


def read_chunk(model: Decoder, cache: KeyValueCache, prompts: Sequence[Sentence], most: int) -> np.ndarray:
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
