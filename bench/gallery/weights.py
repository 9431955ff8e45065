"""Pictures of scores, of normalizers and of the steps around attention: the weights that mechanisms return."""

from functools import partial
from typing import Any

import numpy as np

from bench.gallery.drawing import (
    SENTENCE,
    SOURCE,
    TARGET,
    WIDTH,
    captioned,
    matrices_picture,
    normal,
    sentence,
    translation,
    weights_picture,
    words,
)
from fastattn import mechanisms as m
from fastattn.mechanisms import attend


def weights_of(query: np.ndarray, key: np.ndarray | None, length: int | None = None, **options: Any) -> np.ndarray:
    """The weights of the first sentence, (T, S) or (H, T, S); the values do not matter."""
    heads = (query.shape[2],) if query.ndim == 4 else ()
    value = np.zeros((1, length or (key if key is not None else query).shape[1], *heads, 1), np.float32)
    return attend(query, key, value, return_weights=True, **options)[1][0]


def translated(**options: Any) -> str:
    return weights_picture(weights_of(*translation(), **options), TARGET, SOURCE)


def biased() -> str:
    """Queries begin at the fifth key: a first word, which sees only itself, would set the colours' scale."""
    T, S = 6, 10
    query, key = np.zeros((1, T, 4, 1), np.float32), np.zeros((1, S, 4, 1), np.float32)
    score = m.ScaledDot(bias=m.alibi_bias(4, T, S, offset=S - T))
    weights = weights_of(query, key, score=score, seen=m.Causal(offset=S - T))
    slopes = tuple(f"slope 1/{1 / slope:.0f}" for slope in m.alibi_slopes(4))
    return weights_picture(weights, list(range(S - T, S)), list(range(S)), slopes)


def general() -> str:
    """Wider queries, whose numbers are in another order: the matrix restores it."""
    query, key = translation()
    order = np.random.default_rng(5).permutation(24)[:WIDTH]
    wide, matrix = 3 * normal(6, 1, len(TARGET), 24), np.zeros((24, WIDTH), np.float32)
    wide[..., order], matrix[order, np.arange(WIDTH)] = query, 1 / 4
    return weights_picture(weights_of(wide, key, score=m.General(matrix)), TARGET, SOURCE)


def location() -> str:
    """A query encodes how far the sentence is, and the matrix maps that to a place."""
    query, places = m.sinusoids(8, 32)[None], m.sinusoids(7, 32)
    weights = weights_of(query, None, 7, score=m.Location(places / 4))
    return weights_picture(weights, TARGET, list(range(7)))


def additive() -> str:
    """tanh(x + 1) - tanh(x - 1) is large where x = q - k is small."""
    same = np.eye(WIDTH, dtype=np.float32)
    sides = np.repeat(np.float32([1, -1]), WIDTH)
    score = m.Additive(np.vstack([same, same]), np.vstack([-same, -same]), sides / 2, bias=sides)
    return weights_picture(weights_of(*translation(), score=score), TARGET, SOURCE)


def pointer() -> str:
    """Numbers point to their ranks: the score falls with a number's distance to the number of the rank."""
    numbers = [7, 2, 9, 4, 1, 6]
    query, key = (np.float32(x).reshape(1, -1, 1) for x in (sorted(numbers), numbers))
    ones, sides = np.ones((2, 1), np.float32), np.float32([1, -1])
    score = m.Additive(ones, -ones, 3 * sides, bias=sides)
    weights = attend(query, key, None, score=score, normalizer=m.Pointer())[0]
    return weights_picture(weights, ["smallest", "second", "third", "fourth", "fifth", "largest"], numbers)


def saliency() -> str:
    """An image of 6 x 8 patches with two things in it, and a query for each."""
    things = 2 * normal(7, 2, WIDTH) / np.float32(WIDTH**0.25)
    row, column = np.mgrid[:6, :8].astype(np.float32)
    shapes = [np.exp(-((row - y) ** 2 + (column - x) ** 2) / 3) for y, x in ((1, 1.5), (4, 5.5))]
    patches = sum(shape[..., None] * thing for shape, thing in zip(shapes, things)).reshape(1, 48, WIDTH)
    maps = attend(things[None], patches.astype(np.float32), None, normalizer=m.Saliency((6, 8)))[0]
    image = np.linalg.norm(patches.reshape(6, 8, WIDTH), axis=2)
    return matrices_picture([("image", image), ("first query", maps[0]), ("second query", maps[1])])


def addressing() -> str:
    """The steps of an NTM's head; ``address`` returns the last one."""
    N = 16
    memory, previous = normal(8, 1, N, WIDTH), np.zeros((1, 1, N), np.float32)
    previous[0, 0, 3:6] = 0.25, 0.5, 0.25
    key, unit = memory[:, 10:11] + normal(9, 1, 1, WIDTH) / 2, np.ones((1, 1), np.float32)
    strength, gate, exponent = 8 * unit, 0.6 * unit, 2 * unit
    shifts = np.float32([[[0, 0.2, 0.8]]])
    steps = [previous, m.content_weights(key, memory, strength)]
    steps.append(m.interpolate(steps[-1], previous, gate))
    steps.append(m.shift(steps[-1], shifts))
    steps.append(m.address(key, memory, previous, strength=strength, gate=gate, shifts=shifts, exponent=exponent))
    rows = ["last step", "1 content", "2 gate", "3 shift", "4 sharpen"]
    svg = weights_picture(np.concatenate(steps)[:, 0], rows, list(range(N)))
    return captioned(svg, "weight of a place of the memory")


def key_value() -> str:
    """The weights times the values are the result."""
    query, key = translation()
    place_V, middle_S1 = np.arange(10), 10 * np.float32(np.random.default_rng(10).permutation(7))[:, None] / 7
    value = np.exp(-((place_V - middle_S1) ** 2) / 2).astype(np.float32)[None]
    out, weights = attend(query, key, value, return_weights=True)
    return matrices_picture([("weights", weights[0]), ("values", value[0]), ("result", out[0])], between="x=")


def self_attention() -> str:
    return weights_picture(weights_of(*sentence()), SENTENCE, SENTENCE)


def multi_head() -> str:
    """Heads that look at the word on which a word depends, at the word before, at the next word, at nearby words."""
    T, (query, key) = len(SENTENCE), sentence()
    place = m.sinusoids(T + 2, WIDTH)
    here = place[1:-1]
    queries = np.stack([query[0], 3 * place[:-2], 3 * place[2:], here], axis=1)
    keys = np.stack([key[0], 3 * here, 3 * here, 2 * here], axis=1)
    names = ("dependence", "word before", "next word", "around")
    return weights_picture(weights_of(queries[None], keys[None]), SENTENCE, SENTENCE, names)


def positions() -> str:
    """The same word ten times: only its places differ."""
    T, same = 10, np.ones((1, 10, 32), np.float32)
    bias = m.alibi_bias(8, T, T, symmetric=True)[:1]
    placed = m.add_positions(0 * same, 2 * m.sinusoids(T, 32))
    turned = m.rotary(same, base=100.0)
    pictures = [
        weights_of(same, same),
        weights_of(placed, placed),
        weights_of(turned, turned),
        weights_of(same, same, score=m.ScaledDot(bias=bias)),
    ]
    return weights_picture(np.stack(pictures), list(range(T)), list(range(T)), ("none", "sinusoids", "rotary", "ALiBi"))


def graph() -> str:
    """All nodes rank their neighbours alike, since the numbers of both nodes are added (Brody 2022)."""
    query, key = words([0, 1, 2, 3, 4, 5], seed=11)
    weights = weights_of(query, key, score=m.Graph(normal(12, 2 * WIDTH) / 4))
    return weights_picture(weights, list("abcdef"), list("abcdef"))


PICTURES = {
    "dot": partial(translated, score=m.Dot()),
    "scaled-dot": translated,
    "biased": biased,
    "content": partial(translated, score=m.Content(5.0)),
    "general": general,
    "location": location,
    "additive": additive,
    "graph": graph,
    "soft": translated,
    "hard": partial(translated, normalizer=m.Hard()),
    "pointer": pointer,
    "saliency": saliency,
    "addressing": addressing,
    "key-value": key_value,
    "self": self_attention,
    "multi-head": multi_head,
    "positions": positions,
}
