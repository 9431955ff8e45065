"""One server for the tests of dialects."""

import pytest

from tests.serve.serving import serving


@pytest.fixture(scope="session")
def asked(pulled):
    """A server of a small translator each way and an encoder."""
    models = tuple((name, str(pulled(name))) for name in ("en-pt", "pt-en", "minilm"))
    with serving(models=models, threads=2) as asked:
        yield asked
