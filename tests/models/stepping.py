"""Passes over whole targets, and the same by steps over a cache, as the tests of decoders compare them."""

import numpy as np

from fastattn.layers.key_value_cache import KeyValueCache


def full_pass(model, sources, targets, attention=False):
    starts_B1 = starts_of(targets)
    hidden_ND, attention_NS = model.prefill(
        np.concatenate(targets), starts_B1, model.encode(sources), attention=attention
    )
    return hidden_ND, attention_NS, starts_B1


def starts_of(targets):
    return np.cumsum([0, *map(len, targets)], dtype=np.int64)


def cached(model, sources, attention=False):
    """A cache that holds the sources' memory, the slot of each, and that memory."""
    cache = KeyValueCache(model.ops, model.sizes, 3, 3)
    memory = model.encode(sources)
    memory_slots_B, rows_N = cache.add_memory_slots(memory.starts_B1)
    model.keep_memory(cache, rows_N, memory)
    # Others between, and not in order, so that slots, places and rows are told apart.
    slots = {int(place): cache.add_slots(int(place), 2)[0] for place in memory_slots_B[::-1]}
    return cache, np.array([slots[int(place)] for place in memory_slots_B]), memory


def stepped(model, sources, targets, prefill=0, attention=False):
    """The same, one step at a time after a pass over the first ``prefill`` tokens; sentences of any length at once."""
    cache, slots_B, memory = cached(model, sources, attention)
    hidden = [[] for _ in sources]
    if prefill:
        begun = [target[:prefill] for target in targets]
        hidden_ND, _ = model.prefill(np.concatenate(begun), starts_of(begun), memory, cache=cache, slots_B=slots_B)
        for b in range(len(sources)):
            hidden[b].extend(hidden_ND[prefill * b : prefill * (b + 1)])
    seen = [[] for _ in sources]
    for t in range(prefill, max(len(target) for target in targets)):
        active = [b for b in range(len(sources)) if t < len(targets[b])]
        slots_R = slots_B[active]
        positions_R = np.full(len(active), t, np.int32)
        tokens_R = np.array([targets[b][t] for b in active], np.int32)
        hidden_RD, attention_RS = model.step(cache, slots_R, tokens_R, positions_R, attention)
        for r, b in enumerate(active):
            hidden[b].append(hidden_RD[r])
            if attention:
                seen[b].append(attention_RS[r, : len(sources[b])])
    return [np.array(rows) for rows in hidden], seen
