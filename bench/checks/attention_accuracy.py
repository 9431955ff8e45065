"""The error of fastattn.attention, against that of naive float32."""

import numpy as np

from bench.attention_accuracy import draw, ratio
from bench.checks import Data, Findings, check

CALLS, SEED = 600, 0


@check(
    "attention-accuracy",
    f"{CALLS} random calls: at most twice the error of naive float32, both against float64; sizes, strides, scores of "
    "10,000, rows that see nothing, biases of -inf, lengths 0 and 1",
)
def accuracy(findings: Findings, data: Data) -> None:
    rng = np.random.default_rng(SEED)
    found: dict[str, list[tuple[float, str]]] = {"without a soft cap": [], "with one": []}
    for number in range(CALLS):
        call, layout = draw(rng)
        shapes = " ".join(str(array.shape).replace(" ", "") for array in call.arrays)
        which = f"the worst is call {number}: {layout}, {shapes}, {', '.join(call.options) or 'no options'}"
        found["with one" if "softcap" in call.options else "without a soft cap"].append((ratio(call, layout), which))
    for what, ratios in found.items():
        worst, which = max(ratios)
        middle = float(np.median([one for one, _ in ratios]))
        remark = f"{which}, of {len(ratios)}, median {middle:.2f}"
        findings.at_most(f"{what}:", worst, "x the error of float32", 2.0, remark)
