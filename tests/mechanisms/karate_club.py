"""Zachary's karate club (Zachary 1977): 34 members, and the 78 pairs of them who met outside of it."""

from fastattn import mechanisms as m
from tests.mechanisms.oracle import normal

# Member, counted from 0: those after it whom it met.
_MET = {
    0: "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31", 1: "2 3 7 13 17 19 21 30", 2: "3 7 8 9 13 27 28 32", 3: "7 12 13",
    4: "6 10", 5: "6 10 16", 6: "16", 8: "30 32 33", 9: "33", 13: "33", 14: "32 33", 15: "32 33", 18: "32 33", 19: "33",
    20: "32 33", 22: "32 33", 23: "25 27 29 32 33", 24: "25 27 31", 25: "31", 26: "29 33", 27: "33", 28: "31 33",
    29: "32 33", 30: "32 33", 31: "32 33", 32: "33",
}  # fmt: skip
MEMBERS = 34
EDGES = [(one, int(other)) for one, others in _MET.items() for other in others.split()]
CLUB = m.Neighbours.from_edges(EDGES, MEMBERS)


def layer(nodes=MEMBERS, F=34, H=8, V=8):
    """Features, and a layer's weight and vector."""
    return normal(1, nodes, F), normal(2, H, V, F, size=F**-0.5), normal(3, H, 2 * V)
