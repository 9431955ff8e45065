"""A published model's vectors or scores here and from sentence-transformers, both from the folder its authors saved."""

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from fastattn import CrossEncoder, Encoder
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
    """The least cosine of a vector to the oracle's, and the largest difference of a number.

    Of vectors, relative to the oracle's largest number; of scores as it is.
    """

    least_cosine: float
    largest: float


def compare(published: Published, folder: Path) -> Difference:
    """Build the model in a folder and compare: as published, and as sentence-transformers saves it today.

    Raises what ``read`` does where it is not supported.
    """
    write(published, folder / "published")
    if published.pooling is None:
        return _compare_scores(folder)
    name = "query" if "query" in published.prompts else None
    found = _vectors(folder / "published", name)
    if "feed_forward_type" in published.config:
        expected = np.concatenate([_jina_vectors(published, folder / "published")] * 2)
    else:
        expected = _save_and_encode(published, folder, name)
        found = np.concatenate([found, _vectors(folder / "saved", name)])
        expected = np.concatenate([expected, expected])
    assert found.shape == expected.shape
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found.astype(np.float64) * expected).sum(axis=1) / norms
    return Difference(float(cosines.min()), float(np.abs(found - expected).max() / np.abs(expected).max()))


def _vectors(folder: Path, prompt_name: str | None) -> np.ndarray:
    encoder = Encoder.from_checkpoint(read(folder))  # which keeps no packed weights
    return np.concatenate([encoder.encode(TEXTS), encoder.encode(TEXTS, prompt_name=prompt_name)])


def _save_and_encode(published: Published, folder: Path, prompt_name: str | None) -> np.ndarray:
    """The vectors from sentence-transformers, which saves its model into ``saved``."""
    from sentence_transformers import SentenceTransformer

    case, place = case_of(published), folder / "published"
    config = oracle.as_transformers_has_it(case.config)
    if config != case.config:
        place = Path(shutil.copytree(place, folder / "known"))
        write_json(place / "config.json", config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(place), device="cpu")
        model.save(str(folder / "saved"), create_model_card=False)
        return np.concatenate([model.encode(TEXTS), model.encode(TEXTS, prompt_name=prompt_name)])


def _jina_vectors(published: Published, folder: Path) -> np.ndarray:
    case = case_of(published)
    model = jina.JinaBert(case.config, draw_all(jina.tensor_shapes(case.config, case.task), case.seed))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return np.stack([model.rows(np.array(tokenizer.encode(text).ids), None).mean(axis=0) for text in TEXTS])


def _compare_scores(folder: Path) -> Difference:
    import sentence_transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_transformers.CrossEncoder(str(folder / "published"), device="cpu")
        model.save_pretrained(str(folder / "saved"), create_model_card=False)
        expected = model.predict(PAIRS)
    found = [CrossEncoder.from_checkpoint(read(folder / name)).predict(PAIRS) for name in ("published", "saved")]
    return Difference(1.0, float(np.abs(np.stack(found) - expected).max()))
