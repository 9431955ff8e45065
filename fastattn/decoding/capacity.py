"""How many sentences and tokens a worker has in progress at once."""

from fastattn.decoding.jobs import Job
from fastattn.layers.key_value_cache import DecoderSizes

# A step costs one pass over the weights however few its rows, so each of many rows is cheaper; beyond this number there
# is no gain, and the cache grows with every row.
ROWS = 112
# Of greedy search. 128 of zh-en on two threads: 1.41 s if all are taken at once, 1.32 s if shorter ones fill the room
# that becomes free; on one thread 2.3 s with 48 at once and with 64.
SENTENCES = 48
# A light model's kernels are done before Python has prepared the next step: it takes this many times as many sentences.
# Firefox's en-pt spends 21% of its steps' time outside kernels with 64 sentences, 13% with 256.
LIGHT = 5
LIGHT_WEIGHTS = 1 << 22  # of its decoder's layers at most
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
TOKENS = 16384
# With at least this many sentences a thread, threads take whole sentences; with fewer they share each product.
SENTENCES_A_THREAD = 4
# Source tokens of sentences that are admitted together: about 50 ms of a base Transformer's encoder. Then the queue is
# looked at again.
ADMITTED = 1024
# Rows of a pass over whole sequences; at 65,000 words their log-softmax would fill 500 MB were it ever stored whole.
PASS_ROWS = 2048


def most_sentences(sizes: DecoderSizes, beam: int) -> int:
    """The most sentences of this beam size that a worker has in progress."""
    scale = _scale(sizes)
    return max(1, min(scale * SENTENCES, scale * ROWS // beam))


def admitted_at_once(sizes: DecoderSizes) -> int:
    """The source tokens admitted between two looks at the queue."""
    return min(_scale(sizes), 2) * ADMITTED


def _scale(sizes: DecoderSizes) -> int:
    return LIGHT if sizes.layer_weights <= LIGHT_WEIGHTS else 1


def expected_rows(job: Job) -> int:
    """About how many rows of the cache a sentence will fill."""
    beam = job.options.beam_size
    return beam * (len(job.source) * 5 // 4 + 16 + len(job.start) + len(job.prefix))
