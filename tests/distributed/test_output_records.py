"""What an output folder says of a job and of finished blocks: believed only where it can be right."""

import json

import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

from fastattn.distributed import output_folder
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import InputError
from tests.distributed.jobs import RECORD, some_job


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"layout": 2}', b'{"layout": 1' + b"0" * 30 + b"}"])
def test_a_damaged_job_is_refused_and_kept(folder, out, data):
    (out / "_fastattn" / "job.json").write_bytes(data)
    with pytest.raises(InputError, match=r"out/_fastattn/job.json.*; name another folder"):
        folder.begin(some_job())
    assert (out / "_fastattn" / "job.json").read_bytes() == data


def test_files_too_large_for_a_job_are_not_read_whole(folder, out, monkeypatch):
    monkeypatch.setattr(output_folder, "_LARGEST_JOB", 1000)
    with open(out / "_fastattn" / "job.json", "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="job.json should hold a job"):
        folder.begin(some_job())


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": 5},
        {"bytes": None},
        {"digest": None},
        {"digest": "ab" * 32},
        {"file": "part-00000001.parquet"},
        {"file": "../../etc/passwd"},
        {"file": ["part-00000000.parquet"]},
        {"block": 1},
        {"block": False},
        {"rows": 10**30},
        {"rows": -1},
        {"rows": "3"},
        {"tokens": 1.5},
        {"seconds": 10**400},
        {"seconds": "1"},
        {"fault_at": -1},
        {"first_faults": [1]},
        {"input": None},
        {"cut": None},
        {"cut": "1"},
        {"url": 3},
        {"start": -1},
        {"stop": "12"},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_right_is_not_believed(folder, out, changes):
    placed = folder.write_block(0, b"rows", RECORD)
    path = out / "_fastattn" / "finished" / "00000000.json"
    path.write_text(json.dumps(placed | changes))
    assert folder.finished() == {}
    path.write_text(json.dumps(placed))
    assert folder.finished() == {0: placed}


@pytest.mark.parametrize("field", [*RECORD, "block", "file", "bytes", "digest"])
def test_a_record_that_lacks_something_is_not_believed(folder, out, field):
    placed = folder.write_block(0, b"rows", RECORD)
    del placed[field]
    (out / "_fastattn" / "finished" / "00000000.json").write_text(json.dumps(placed))
    assert (folder.finished(), folder.finished_block(0)) == ({}, None)


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"block": 0', b"\xff", b" " * (1 << 20) + b"{}", b"[" * 10**5])
def test_a_damaged_record_is_not_believed(folder, out, data):
    folder.write_block(0, b"rows", RECORD)
    folder.write_block(1, b"rows", RECORD)
    (out / "_fastattn" / "finished" / "00000000.json").write_bytes(data)
    assert list(folder.finished()) == [1]


def test_names_that_are_no_records_are_passed_over(folder, out):
    placed = folder.write_block(0, b"rows", RECORD)
    for name in ("0.json", "000000000.json", "a.json", "00000000.json.bak", "٠٠٠٠٠٠٠٠.json"):
        (out / "_fastattn" / "finished" / name).write_text(json.dumps(placed))
    assert folder.finished() == {0: placed}


@pytest.mark.parametrize("data", [None, b"row", b"rows, and more", b"rowt"])
def test_a_part_that_is_gone_or_changed_is_not_finished(folder, out, data):
    folder.write_block(0, b"rows", RECORD)
    part = out / "part-00000000.parquet"
    part.unlink() if data is None else part.write_bytes(data)
    assert (folder.finished(), folder.finished_block(0)) == ({}, None)
    placed = folder.write_block(0, b"rows", RECORD)
    assert (folder.finished(), folder.finished_block(0)) == ({0: placed}, placed)
    assert folder.finished_block(1) is None


def test_a_job_that_is_too_large_to_be_read_again_is_not_begun(out, monkeypatch):
    monkeypatch.setattr(output_folder, "_LARGEST_JOB", 1000)
    many = [{"url": f"in/{number}.txt", "size": 1, "modified": 0} for number in range(50)]
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        with pytest.raises(InputError, match=r"^50 input files are too many for one job: .*; begin several jobs$"):
            folder.begin(some_job(files=many))
        assert folder.begin(some_job()) == some_job()
