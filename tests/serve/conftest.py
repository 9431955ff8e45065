"""One server for the tests of dialects."""

import pytest

from tests.serve.serving import Asked, serving


@pytest.fixture(scope="session")
def served(pulled):
    """A server of a small translator each way and an encoder."""
    models = tuple((name, str(pulled(name))) for name in ("en-pt", "pt-en", "minilm"))
    with serving(models=models, threads=2) as asked:
        yield asked


@pytest.fixture(scope="session")
def asked(served) -> Asked:
    return served
