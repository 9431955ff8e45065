"""From a checkpoint's files to a model in memory, and the cache of both."""
