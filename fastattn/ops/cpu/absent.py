"""Empty arrays, which kernels take in place of absent ones: a kernel looks at the length."""

import numpy as np

# The index is the number of axes.
NO_FLOATS = tuple(np.empty((0,) * axes, np.float32) for axes in range(5))
NO_LONGS = tuple(np.empty((0,) * axes, np.int64) for axes in range(3))
NO_INTS, NO_BYTES = np.empty(0, np.int32), np.empty(0, np.uint8)
