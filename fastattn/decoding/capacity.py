"""How much a worker has in progress at once."""

from fastattn.decoding.jobs import Job
from fastattn.models.sizes import DecoderSizes

# A step costs one pass over the weights however few its rows are, so more rows are cheaper each; past this many the
# gain is gone, and the cache grows with every row.
ROWS = 112
# Of a greedy search. 128 of zh-en on two threads: 1.41 s where all are taken at once, 1.32 s where the shorter ones
# fill the places that come free; on one thread 2.3 s with 48 places and with 64.
SENTENCES = 48
# A light model's step is done before Python has prepared the next: it takes so many times as many. Firefox's en-pt
# spends 21% of its steps' time outside kernels with 64 sentences, 13% with 256.
LIGHT = 5
LIGHT_WEIGHTS = 1 << 22  # of its decoder's layers at most
# Cache rows that the admitted sentences are expected to fill: about 24 KB each for a base Transformer.
TOKENS = 16384
# Sentences go whole to threads from this many a thread on; below it the threads share each product.
SENTENCES_A_THREAD = 4
# Source tokens of sentences that enter together: some 50 ms of a base Transformer's encoder. Who waits is looked at
# between.
ADMITTED = 1024
# Rows of a pass over whole sequences; at 65,000 words their log-softmax would fill 500 MB were it ever stored whole.
PASS_ROWS = 2048


def places_for(sizes: DecoderSizes, beam: int) -> int:
    """How many sentences with so many beams a worker has in progress at most."""
    scale = _scale(sizes)
    return max(1, min(scale * SENTENCES, scale * ROWS // beam))


def admitted_at_once(sizes: DecoderSizes) -> int:
    """How many source tokens are admitted between two looks at who else waits."""
    return _scale(sizes) * ADMITTED


def _scale(sizes: DecoderSizes) -> int:
    return LIGHT if sizes.layer_weights <= LIGHT_WEIGHTS else 1


def expected_rows(job: Job) -> int:
    """How many of the cache's rows a sentence will about fill."""
    beam = job.options.beam_size
    return beam * (len(job.source) * 5 // 4 + 16 + len(job.start) + len(job.prefix))
