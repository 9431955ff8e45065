"""``python -m bench.train NAME --into DIR``."""

import argparse
from functools import partial
from pathlib import Path

import torch

from bench.train import captions, digits, pointer, translation

MODELS = {name: partial(translation.train, name) for name in ("attention", "plain")}
MODELS |= {"captions": captions.train, "digits": digits.train, "looks": digits.train_looks, "pointer": pointer.train}
MODELS["captions-hard"] = partial(captions.train, hard=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.train", description="Train a small model.")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    parser.add_argument("--data", type=Path, default=Path("fra-eng.zip"), help="sentences (default fra-eng.zip)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums of one order, so that a seed gives the same weights
    MODELS[options.name](options.data, options.into)


if __name__ == "__main__":
    main()
