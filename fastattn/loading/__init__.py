"""From a checkpoint to a model in memory, and what a cache folder keeps of that."""
