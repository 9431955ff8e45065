"""One of each class of encoders, for tests of its calls."""

import pytest

from fastattn import (
    CrossEncoder,
    Encoder,
    MaskedLanguageModel,
    MultiVectorEncoder,
    SparseEncoder,
    TextClassifier,
    TokenClassifier,
)
from tests.encoders.classifiers import (
    LABELS,
    TOKENS,
    by_reference,
    write_classifier,
    write_cross_encoder_files,
    write_masked,
    write_sparse,
    write_today,
)
from tests.encoders.test_encoder import _encoder

PROMPTS = {"query": "w11 ", "document": "w12 "}


@pytest.fixture(scope="package")
def made(tmp_path_factory):
    """A function from a class to one of it, on the reference operations; where there are prompts, PROMPTS."""
    folder = tmp_path_factory.mktemp("models")
    write_cross_encoder_files(write_classifier(folder / "pairs", LABELS), {"prompts": PROMPTS})
    folders = {
        CrossEncoder: folder / "pairs",
        TextClassifier: write_classifier(folder / "labels", LABELS),
        TokenClassifier: write_classifier(folder / "tokens", TOKENS),
        MaskedLanguageModel: write_masked(folder / "masked"),
        SparseEncoder: write_sparse(folder / "sparse", {"prompts": PROMPTS}),
        MultiVectorEncoder: write_today(folder / "vectors"),
    }
    known = {Encoder: _encoder()}

    def of(kind):
        if kind not in known:
            known[kind] = by_reference(kind, folders[kind])
        return known[kind]

    return of
