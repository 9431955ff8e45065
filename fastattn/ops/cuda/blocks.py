"""What the threads of a block do together: sums and maxima by way of shared memory."""

from numba import cuda

from fastattn.ops.cuda.card import THREADS, device


@device
def _joined(value, shared_T, join):
    """The values of a block's threads joined by twos, in each of them; shared_T float32 [THREADS]."""
    t = cuda.threadIdx.x
    cuda.syncthreads()  # whoever still reads what was there before
    shared_T[t] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared_T[t] = join(shared_T[t], shared_T[t + half])
        cuda.syncthreads()
        half //= 2
    return shared_T[0]


_sum = device(lambda a, b: a + b)
_greater = device(lambda a, b: b if b > a else a)  # NaN is not seen
block_sum = device(lambda value, shared_T: _joined(value, shared_T, _sum))
block_max = device(lambda value, shared_T: _joined(value, shared_T, _greater))
