"""Convex hulls of points in the unit square.

Points are sorted from left to right; a hull begins at the leftmost point and goes counterclockwise.
"""

import numpy as np

FEWEST, MOST = 5, 10


def hull(points_N2: np.ndarray) -> list[int]:
    """The corners of the hull of points from left to right, by Andrew's monotone chain (1979)."""

    def chain(order: list[int]) -> list[int]:
        path: list[int] = []
        for n in order:
            while len(path) > 1:
                (ax, ay), (bx, by) = points_N2[[path[-1], n]] - points_N2[path[-2]]
                if ax * by - ay * bx > 0:  # a turn to the left
                    break
                path.pop()
            path.append(n)
        return path[:-1]

    order = list(range(len(points_N2)))
    return chain(order) + chain(order[::-1])


def examples(count: int, seed: int) -> list[np.ndarray]:
    """Points float32 (n, 2), from left to right."""
    rng = np.random.default_rng(seed)
    sets = [rng.uniform(size=(rng.integers(FEWEST, MOST + 1), 2)).astype(np.float32) for _ in range(count)]
    return [points_N2[points_N2[:, 0].argsort()] for points_N2 in sets]
