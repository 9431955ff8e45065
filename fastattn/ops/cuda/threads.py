"""The number of threads of the operations: the card's are no caller's to choose, and one host thread feeds it."""

from fastattn.ops.cuda.card import free_memory

# By this models choose how many rows go through all layers at a time, 384 a thread (models/encoder.py). A tile of a
# product is 64 x 64 and a card has some 100 multiprocessors, of a few blocks each: 12,000 rows of 384 columns are
# 1,150 tiles. Twice the rows fill them no better, and take twice the memory.
LARGE = 32
# Bytes of 384 rows as they go through a layer: of 16,384 numbers each, those of a width of 1,024 with room to spare.
SHARE = 384 * 16384 * 4


def current_threads() -> int:
    """As many as make chunks of rows large enough for a card, and small enough for half of its free memory."""
    return max(1, min(LARGE, free_memory() // 2 // SHARE))


def thread_limit() -> int:
    """One host thread: kernels run one after another, whoever calls them."""
    return 1
