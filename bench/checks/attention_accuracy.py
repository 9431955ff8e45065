"""The error of fastattn.attention, against that of naive float32."""

import numpy as np

from bench.attention_accuracy import draw, ratio
from bench.checks import Data, Findings, check

CALLS, SEED = 400, 0


@check(
    "attention-accuracy",
    f"{CALLS} random calls: at most twice the error of naive float32, both against float64; sizes, strides, scores of "
    "10,000, rows that see nothing, biases of -inf, lengths 0 and 1",
)
def accuracy(data: Data) -> tuple[bool, str]:
    rng = np.random.default_rng(SEED)
    found = []
    for number in range(CALLS):
        call, layout = draw(rng)
        shapes = "x".join(str(array.shape).replace(" ", "") for array in call.arrays)
        found.append((ratio(call, layout), f"call {number}, {layout} {shapes}, {', '.join(call.options) or 'plain'}"))
    worst, which = max(found)
    findings = Findings()
    middle = float(np.median([one for one, _ in found]))
    findings.at_most("worst:", worst, "x the error of float32", 2.0, f"{which}; median {middle:.2f}")
    return findings.verdict
