"""An output folder in an object store, here moto's server of S3."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

import pyarrow as pa
from pyarrow import fs

from fastattn.distributed import output_stores
from fastattn.distributed.output_folder import OutputFolder
from fastattn.distributed.output_stores import ObjectStore
from fastattn.errors import FastattnError, InputError, StorageError
from tests.distributed.jobs import ASIDE, HOLD, RECORD, process, some_job
from tests.messages import refused

BUCKET = "fastattn-tests"


@pytest.fixture(scope="module")
def server(store_options):
    """The options of URLs that lead to a server of S3 with a bucket."""
    filesystem, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{store_options}")
    filesystem.create_dir(BUCKET)
    return store_options.replace("&allow_bucket_creation=true", "")


@pytest.fixture
def url(server, request):
    return f"s3://{BUCKET}/{request.node.name}/out?{server}"


def objects(url):
    filesystem, path = fs.FileSystem.from_uri(url)
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(info.path.removeprefix(f"{path}/") for info in found if info.is_file)


def put(url, name, data):
    filesystem, path = fs.FileSystem.from_uri(url)
    with filesystem.open_output_stream(f"{path}/{name}") as stream:
        stream.write(data)


def test_the_next_run_finds_what_is_finished(url):
    first = OutputFolder(url, "parquet")
    with first.hold() as check:
        assert first.begin(some_job()) == some_job()
        assert first.finished_records() == {}
        first.set_aside(2, b"{}\n", ASIDE)
        placed = {number: first.write_block(number, b"x" * number, RECORD) for number in (0, 2)}
        check()
    second = OutputFolder(f"{url}&allow_delayed_open=true", "parquet")
    with second.hold():
        assert second.begin(some_job()) == some_job()
        with refused(InputError, "/out"):
            second.begin(some_job(column="body"))
        assert second.finished_records() == placed
    records = [f"_fastattn/finished/0000000{number}.json" for number in (0, 2)]
    parts = [f"part-0000000{number}.parquet" for number in (0, 2)]
    assert objects(url) == [*records, "_fastattn/job.json", *parts]


def test_a_part_of_another_size_is_not_finished(url):
    folder = OutputFolder(url, "parquet")
    folder.write_block(0, b"rows", RECORD)
    folder.write_block(1, b"rows", RECORD)
    put(url, "part-00000000.parquet", b"row")
    put(url, "_fastattn/finished/00000002.json", b"{")
    assert list(folder.finished_records()) == [1]
    assert [folder.finished_block(number) is None for number in range(4)] == [True, False, True, True]


def test_of_two_jobs_the_second_is_refused_until_the_first_is_dead(url, monkeypatch):
    folder = OutputFolder(url, "parquet")
    with process(HOLD, url) as holder:
        told = rf"/out: another job is at work there, or was killed .* \(seen \d+ seconds ago, process {holder.pid} on "
        with pytest.raises(FastattnError, match=told), folder.hold():
            pass
    with pytest.raises(FastattnError, match="another job is at work there"), folder.hold():
        pass
    monkeypatch.setattr(output_stores, "DEAD_AFTER", 0.0)
    with folder.hold() as check:
        assert len(objects(url)) == 1  # its own
        check()
    assert objects(url) == []


WRITE = """
import sys, time
from fastattn.distributed.output_folder import OutputFolder

class Slow:
    def __init__(self, filesystem):
        self.filesystem = filesystem

    def open_output_stream(self, path):
        self.stream = self.filesystem.open_output_stream(path)
        return self

    def write(self, data):
        self.stream.write(data)
        self.stream.flush()
        print("ready", flush=True)
        time.sleep(60)

folder = OutputFolder(sys.argv[1], "parquet")
folder._store._filesystem = Slow(folder._store._filesystem)
folder.write_block(7, b"x" * 20_000_000, {"rows": 1})
"""


def test_a_writer_that_is_killed_leaves_no_object(url):
    with process(WRITE, url):
        pass
    assert objects(url) == []
    folder = OutputFolder(url, "parquet")
    folder.write_block(7, b"x" * 20_000_000, RECORD)
    assert list(folder.finished_records()) == [7]


def test_what_cannot_be_written_is_one_line_without_secrets(server, monkeypatch):
    monkeypatch.setattr(output_stores, "_RETRY_SECONDS", (0.0,))
    url = f"s3://testing:hidden@no-such-bucket/out?{server}"
    with pytest.raises(StorageError) as raised:
        OutputFolder(url, "parquet").write_block(0, b"rows", RECORD)
    message = str(raised.value)
    assert message.startswith("cannot write s3://no-such-bucket/out/part-00000000.parquet: ")
    assert "NO_SUCH_BUCKET" in message and "\n" not in message and "hidden" not in message


def test_a_file_system_that_shows_half_written_files_is_refused():
    with refused(InputError, "hdfs://there/out"):
        ObjectStore(fs._MockFileSystem(), "out", "hdfs://there/out")


def test_a_write_that_fails_is_tried_again(monkeypatch):
    waited, attempts = [], []
    monkeypatch.setattr(output_stores, "time", SimpleNamespace(sleep=waited.append))

    class Failing:
        type_name = "s3"

        def open_output_stream(self, path):
            attempts.append(path)
            if len(attempts) < fails:
                raise OSError("slow down")
            return pa.BufferOutputStream()

    store = ObjectStore(Failing(), "out/", "s3://out")
    fails = 3
    store.write("a", b"rows")
    assert (attempts, waited) == (["out/a"] * 3, [1.0, 4.0])
    attempts.clear()
    fails = 4
    with refused(StorageError):
        store.write("a", b"rows")
    assert len(attempts) == 3
