"""What kernels call of a user's functions of scores and masks."""
