"""Plain data that operations and their kernels take: heads, batches, masks, windows, states; it imports NumPy alone."""
