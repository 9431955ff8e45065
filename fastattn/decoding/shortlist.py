"""Which target ids a sentence may choose from, where the checkpoint has a lexical shortlist."""

from collections.abc import Sequence

import numpy as np

from fastattn.spec.checkpoint import Shortlist


def allowed_ids(shortlist: Shortlist, source: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """The ids that every sentence may choose, those that its source ids add, and the ends; int32, rising.

    A sentence's own list, where Marian takes one for all sentences of a batch, so a translation does not depend on its
    batch. Nor is it filled up to a multiple of eight ids, which only Marian's products need.
    """
    distinct = np.array(list(set(source.tolist())), np.int64)
    starts, ends = shortlist.starts_V1[distinct].tolist(), shortlist.starts_V1[distinct + 1].tolist()
    lists = [shortlist.targets[start:end] for start, end in zip(starts, ends)]
    copied = [source] if shortlist.copied else []
    # Sorting these thousand or two and dropping repeats takes 20 us; marks in a table of the vocabulary, 35.
    ids = np.concatenate([shortlist.always, np.array(end_ids, np.int32), *copied, *lists], dtype=np.int32)
    ids.sort()
    is_new = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=is_new[1:])
    return ids[is_new]
