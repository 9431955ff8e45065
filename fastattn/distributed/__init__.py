"""A corpus in blocks: read, computed and written each for itself, by one machine or by a cluster under Ray Data."""
