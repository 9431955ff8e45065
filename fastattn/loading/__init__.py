"""Loading a checkpoint: from its files to a model in memory, and the cache of both."""
