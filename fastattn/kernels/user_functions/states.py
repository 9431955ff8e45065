"""What stands for no function, and how many of some keys a mask function shows."""

NO_FUNCTION = 0
NONE, SOME, ALL = 0, 1, 2  # how many of a tile's keys its queries see; SOME may also be unknown
