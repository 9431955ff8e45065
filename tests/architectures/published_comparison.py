"""A published model's vectors or scores here and from sentence-transformers, both from the folder its authors saved."""

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import fastattn
from fastattn import Encoder
from fastattn.weights import read
from tests.architectures import jina, oracle
from tests.architectures.drawing import draw_all
from tests.architectures.published import Published
from tests.architectures.published_folders import case_of, write
from tests.weights.containers.safetensors_writer import write_json

TEXTS = [
    "",
    "a",
    "Attention is all you need.",
    "Übergrößenträger, 日本語 and emoji 🙂 in one   line; CAPITALS too",
    "A sentence vector engine that people use should read the models that people use. " * 4,
    "Far longer than most limits, so that it is cut where the model says: one two three four five six seven. " * 40,
]
PAIRS = [("how many legs has a spider?", text) for text in TEXTS]


@dataclass(frozen=True)
class Difference:
    """The least cosine of a vector to the oracle's, and the largest difference of a number, relative to the largest."""

    least_cosine: float
    largest: float


def compare(published: Published, folder: Path) -> Difference:
    """Build the model in a folder and compare. Raises what ``Encoder`` does where it is not supported."""
    write(published, folder / "published")
    if published.pooling is None:
        found, expected = _scores(folder / "published")
        return Difference(1.0, float(np.abs(found - expected).max()))
    encoder = Encoder.from_checkpoint(read(folder / "published"))  # which keeps no packed weights
    name = "query" if "query" in published.prompts else None
    found = np.concatenate([encoder.encode(TEXTS), encoder.encode(TEXTS, prompt_name=name)])
    expected = _expected(published, folder, name)
    assert found.shape == expected.shape
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found.astype(np.float64) * expected).sum(axis=1) / norms
    return Difference(float(cosines.min()), float(np.abs(found - expected).max() / np.abs(expected).max()))


def _expected(published: Published, folder: Path, prompt_name: str | None) -> np.ndarray:
    case = case_of(published)
    if "feed_forward_type" in case.config:
        return np.concatenate([_jina_vectors(published, folder / "published")] * 2)
    from sentence_transformers import SentenceTransformer

    config, place = oracle.as_transformers_has_it(case.config), folder / "published"
    if config != case.config:
        place = Path(shutil.copytree(place, folder / "known"))
        write_json(place / "config.json", config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(place), device="cpu")
        return np.concatenate([model.encode(TEXTS), model.encode(TEXTS, prompt_name=prompt_name)])


def _jina_vectors(published: Published, folder: Path) -> np.ndarray:
    case = case_of(published)
    model = jina.JinaBert(case.config, draw_all(jina.tensor_shapes(case.config, case.task), case.seed))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return np.stack([model.rows(np.array(tokenizer.encode(text).ids), None).mean(axis=0) for text in TEXTS])


def _scores(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    from sentence_transformers import CrossEncoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    ours: Any = fastattn
    return ours.CrossEncoder(folder).predict(PAIRS), expected
