"""What tests of jobs begin with. pyarrow is imported where a test has found that it is installed."""

import pytest

from fastattn.weights.native import convert
from tests.distributed.jobs import some_job


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    """The folder of a small translation model."""
    from tests.models.tiny_models import random_checkpoint

    path = tmp_path_factory.mktemp("translator")
    convert.write(path, random_checkpoint(21), "float32")
    return path


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """The folder of a small encoder."""
    from fastattn.spec.checkpoint import Checkpoint
    from tests.encoders.test_encoder import SPEC, TENSORS, TEXT

    path = tmp_path_factory.mktemp("encoder")
    convert.write(path, Checkpoint(SPEC, TENSORS, TEXT), "float32")
    return path


@pytest.fixture
def request_for(translator, tmp_path):
    """A function that makes the request for a job over inputs, with a small model."""
    from fastattn.distributed.batch import BatchRequest

    def made(*inputs, **changed):
        asked = {"kind": "translate", "inputs": [str(path) for path in inputs], "out": str(tmp_path / "out")}
        asked |= {"model": str(translator), "path": translator, "column": "text", "output": "translation"}
        asked |= {"options": {"beam_size": 1, "max_decoding_length": 9}}
        return BatchRequest(**asked | changed)

    return made


@pytest.fixture(scope="module")
def path(request, tmp_path_factory):
    """A file of the form that a module's tests are about, whose ``SUFFIX`` it has."""
    return tmp_path_factory.mktemp("input") / f"a{request.module.SUFFIX}"


@pytest.fixture(scope="session")
def store_options():
    """The options of URLs that lead to a server of S3, which any bucket may be made in."""
    server = pytest.importorskip("moto.server", reason="moto[server] is the object store of these tests")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        endpoint = "http://127.0.0.1:{1}".format(*running.get_host_and_port())
        yield f"endpoint_override={endpoint}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        running.stop()


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
