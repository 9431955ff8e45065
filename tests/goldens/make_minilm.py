"""Writes minilm.npz: vectors of the catalog's all-MiniLM-L6-v2 as sentence-transformers computes them.

Run in an environment with sentence-transformers: python -m tests.goldens.make_minilm FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers

TEXTS = [
    "",
    "The cat sits on the mat.",
    "Übergrößenträger, 日本語 and emoji 🙂 in one   line",
    "Attention is all you need, and a sentence far longer than the limit is cut. " * 30,
]


def main() -> None:
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    plain, prompted = model.encode(TEXTS), model.encode(TEXTS[:3], prompt="query: ")
    model.set_pooling_include_prompt(False)
    versions = [f"{module.__name__} {module.__version__}" for module in (sentence_transformers, transformers, torch)]
    np.savez_compressed(
        Path(__file__).with_name("minilm.npz"),
        versions=np.array(", ".join(versions)),
        texts=np.array(TEXTS),
        plain=plain,
        prompted=prompted,
        prompt_not_pooled=model.encode(TEXTS[:3], prompt="query: "),
        similarity=model.similarity(plain, plain).numpy(),
    )


if __name__ == "__main__":
    main()
