"""The number of threads of the operations: the card's are no caller's to choose, and one host thread feeds it."""

# By this models choose how many rows go through all layers at a time, 384 a thread (models/encoder.py). A tile of a
# product is 64 x 64 and a card has some 100 multiprocessors, of a few blocks each: 12,000 rows of 384 columns are
# 1,150 tiles. Twice the rows fill them no better, and take twice the memory.
LARGE = 32


def current_threads() -> int:
    """As many as make chunks of rows large enough for a card."""
    return LARGE


def thread_limit() -> int:
    """One host thread: kernels run one after another, whoever calls them."""
    return 1
