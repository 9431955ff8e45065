"""What the threads of a block do together: sums and maxima by way of shared memory."""

from numba import cuda

from fastattn.ops.cuda.card import THREADS


@cuda.jit(device=True)
def block_sum(value, shared_T):
    """The sum of the values of a block's threads, in each of them; shared_T float32 [THREADS]."""
    t = cuda.threadIdx.x
    cuda.syncthreads()  # whoever still reads what was there before
    shared_T[t] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared_T[t] += shared_T[t + half]
        cuda.syncthreads()
        half //= 2
    return shared_T[0]


@cuda.jit(device=True)
def block_max(value, shared_T):
    """The greatest of the values of a block's threads, in each of them; NaN is not seen."""
    t = cuda.threadIdx.x
    cuda.syncthreads()
    shared_T[t] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half and shared_T[t + half] > shared_T[t]:
            shared_T[t] = shared_T[t + half]
        cuda.syncthreads()
        half //= 2
    return shared_T[0]
