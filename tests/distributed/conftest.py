"""What tests of a job's output folder begin with. pyarrow is imported where a test has found that it is installed."""

import pytest

from tests.distributed.jobs import some_job


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def folder(out):
    """A folder that is held, with a job."""
    from fastattn.distributed.output_folder import OutputFolder

    made = OutputFolder(str(out), "parquet")
    with made.hold():
        made.begin(some_job())
        yield made
