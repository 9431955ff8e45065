"""Which target ids a sentence may choose from, where the checkpoint has a lexical shortlist."""

from collections.abc import Sequence

import numpy as np

from fastattn.checkpoint import Shortlist


def allowed_ids(shortlist: Shortlist, source: np.ndarray, end_ids: Sequence[int], vocabulary: int) -> np.ndarray:
    """The ids that every sentence may choose, those that its source ids add, and the ends; int32, rising.

    A sentence's own list, where Marian takes one for all sentences of a batch, so a translation does not depend on its
    batch. Nor is it filled up to a multiple of eight ids, which only Marian's products need.
    """
    allowed_V = np.zeros(vocabulary, bool)
    allowed_V[shortlist.always] = True
    allowed_V[list(end_ids)] = True
    if shortlist.copied:
        allowed_V[source] = True
    starts, ends = shortlist.starts_V1[source].astype(np.int64), shortlist.starts_V1[source + 1].astype(np.int64)
    counts = ends - starts
    # every list's places one after the other: each place less the number of those before its list, plus the start
    before = np.cumsum(counts) - counts
    allowed_V[shortlist.targets[np.arange(counts.sum()) + np.repeat(starts - before, counts)]] = True
    return np.flatnonzero(allowed_V).astype(np.int32)
