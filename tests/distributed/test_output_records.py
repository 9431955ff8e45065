"""What an output folder says of a job, and its files: believed where it can be right, and read by others."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

import pyarrow as pa
import pyarrow.parquet as pq

from fastattn.distributed import output_folder
from fastattn.distributed.formats.blocks import StringRows
from fastattn.distributed.output_folder import OutputFolder, as_file, as_json_lines, as_parquet
from fastattn.errors import InputError, StorageError
from tests import ROOT
from tests.distributed.jobs import RECORD, some_job


def test_a_damaged_job_is_refused_and_kept(folder, out):
    for data in (b"{", b"[]", b'{"layout": 2}', b'{"layout": 1' + b"0" * 30 + b"}"):
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


IMPOSSIBLE = [
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
]
DAMAGED = [b"", b"[1]", b'{"block": 0', b"\xff", b" " * (1 << 20) + b"{}", b"[" * 10**5]


def test_a_record_that_cannot_be_right_is_not_believed(folder, out):
    placed = folder.write_block(0, b"rows", RECORD)
    path = out / "_fastattn" / "finished" / "00000000.json"
    lacking = [{name: value for name, value in placed.items() if name != field} for field in placed]
    assert len(lacking) == len(RECORD) + 4
    for written in [placed | changes for changes in IMPOSSIBLE] + lacking:
        path.write_text(json.dumps(written))
        assert (folder.finished(), folder.finished_block(0)) == ({}, None), written
    for data in DAMAGED:
        path.write_bytes(data)
        assert folder.finished() == {}, data[:20]
    path.write_text(json.dumps(placed))
    assert folder.finished() == {0: placed}


def test_names_that_are_no_records_are_passed_over(folder, out):
    placed = folder.write_block(0, b"rows", RECORD)
    for name in ("0.json", "000000000.json", "a.json", "00000000.json.bak", "٠٠٠٠٠٠٠٠.json"):
        (out / "_fastattn" / "finished" / name).write_text(json.dumps(placed))
    assert folder.finished() == {0: placed}


def test_a_part_that_is_gone_or_changed_is_not_finished(folder, out):
    part = out / "part-00000000.parquet"
    for data in (None, b"row", b"rows, and more", b"rowt"):
        placed = folder.write_block(0, b"rows", RECORD)
        assert (folder.finished(), folder.finished_block(0)) == ({0: placed}, placed)
        part.unlink() if data is None else part.write_bytes(data)
        assert (folder.finished(), folder.finished_block(0)) == ({}, None)
    assert folder.finished_block(1) is None


def test_a_job_that_is_too_large_to_be_read_again_is_not_begun(out, monkeypatch):
    monkeypatch.setattr(output_folder, "_LARGEST_JOB", 1000)
    many = [{"url": f"in/{number}.txt", "size": 1, "modified": 0} for number in range(50)]
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        with pytest.raises(InputError, match=r"^50 input files are too many for one job: .*; begin several jobs$"):
            folder.begin(some_job(files=many))
        assert folder.begin(some_job()) == some_job()


def test_a_lock_that_is_no_plain_file_is_refused_and_left(tmp_path_factory):
    for kind in ("link", "dangling", "folder", "fifo"):
        folder = tmp_path_factory.mktemp("case")
        out = folder / "out"
        victim, lock = folder / "victim", out / "_fastattn" / "lock"
        lock.parent.mkdir(parents=True)
        victim.write_text("years of work")
        if kind == "folder":
            lock.mkdir()
        elif kind == "fifo":
            os.mkfifo(lock)
        else:
            lock.symlink_to(victim if kind == "link" else folder / "new")
        with pytest.raises(StorageError, match=r"^cannot write .*out/_fastattn/lock: "):
            with OutputFolder(str(out), "parquet").hold():
                pass
        assert victim.read_text() == "years of work" and not (folder / "new").exists()


def test_a_folder_within_that_leads_elsewhere_is_refused(tmp_path_factory):
    for name in ("_fastattn", "_fastattn/finished", "_fastattn/set-aside"):
        folder = tmp_path_factory.mktemp("case")
        out = folder / "out"
        (folder / "elsewhere").mkdir()
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(folder / "elsewhere")
        with pytest.raises(StorageError, match=rf"^cannot write .*out/{name}: it is a link, or no folder$"):
            with OutputFolder(str(out), "parquet").hold():
                pass
        assert os.listdir(folder / "elsewhere") == []


@pytest.mark.parametrize("name", ["job.json", "finished/00000000.json"])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(out, name):
    path = out / "_fastattn" / name
    with OutputFolder(str(out), "parquet").hold():
        pass
    os.mkfifo(path)
    reader = subprocess.run(
        [sys.executable, "-c", READ, str(out)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert reader.stdout == f"cannot read {out}/_fastattn/{name}: no regular file\n", reader.stderr


READ = """
import sys
from fastattn.distributed.output_folder import OutputFolder
from fastattn.errors import StorageError
from tests.distributed.jobs import some_job
folder = OutputFolder(sys.argv[1], "parquet")
try:
    folder.begin(some_job())
    folder.finished()
except StorageError as error:
    print(error)
"""


VECTORS_NE = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS_NE.ravel()), 5)


def test_parquet_keeps_all_columns_with_their_types():
    table = pa.table(
        {
            "id": pa.array([1, None], pa.uint16()),
            "text": pa.array(["a", "ß"], pa.large_string()),
            "kind": pa.array(["x", "x"]).dictionary_encode(),
            "when": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "nested": [[{"a": 1}], None],
        }
    )
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": pa.array(["b", None]), "vector": VECTORS})))
    assert read.select(table.column_names).equals(table)
    assert read.column_names == [*table.column_names, "translation", "vector"]
    assert read["translation"].to_pylist() == ["b", None]
    assert read["vector"].type == pa.list_(pa.float32(), 5)
    assert np.array_equal(read["vector"].combine_chunks().flatten().to_numpy().reshape(2, 5), VECTORS_NE)


def test_parquet_keeps_no_description_of_columns_that_lacks_the_new_ones():
    table = pa.table({"text": ["a"]}).replace_schema_metadata({"huggingface": '{"info": {"features": {"text": 1}}}'})
    assert pq.read_schema(pa.BufferReader(as_parquet(table, {"n": pa.array([1])}))).metadata is None


def test_a_block_without_rows_is_a_file_with_its_columns():
    table = pa.table({"text": pa.array([], pa.string())})
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": pa.array([], pa.string())})))
    assert (read.num_rows, read.column_names) == (0, ["text", "translation"])
    assert as_json_lines([], {"translation": pa.array([], pa.string())}) == b""


def test_json_lines_have_the_records_own_fields_first():
    objects = ['{"text": "a", "n": {"b": [1, null]}}', "{ }", r'{"text": "\u202e\n\udc80"}']
    lines = as_json_lines(objects, {"translation": pa.array(["ß", None, "x"]), "score": pa.array([1, 2, 3])})
    assert lines.decode().splitlines() == [
        '{"text": "a", "n": {"b": [1, null]}, "translation": "ß", "score": 1}',
        '{"translation": null, "score": 2}',
        r'{"text": "\u202e\n\udc80", "translation": "x", "score": 3}',
    ]


def test_json_lines_give_float32_back():
    for kind in ("fixed", "list"):
        vectors = VECTORS if kind == "fixed" else VECTORS.cast(pa.list_(pa.float32()))
        scores = pa.array([0.1, None], pa.float32())
        lines = as_json_lines(
            ["{}", "{}"], {"embedding": vectors.take(pa.array([1, None])), "score": scores}
        ).splitlines()
        first, second = map(json.loads, lines)
        assert np.array_equal(np.array(first["embedding"], np.float32), VECTORS_NE[1])
        assert (first["score"], second) == (0.1, {"embedding": None, "score": None})


def test_json_lines_of_several_hypotheses_are_json():
    hypotheses = [['a "b"\\', "\u2028\x1b", None], None, []]
    columns = {"hypotheses": pa.array(hypotheses, pa.list_(pa.string())), "text": pa.array(["x\n", None, '"'])}
    columns["scores"] = pa.array([[0.5, None], [], None], pa.list_(pa.float32()))
    lines = list(map(json.loads, as_json_lines(["{}"] * 3, columns).decode().splitlines()))
    assert lines == [dict(zip(columns, row)) for row in zip(*(array.to_pylist() for array in columns.values()))]


def test_numbers_that_json_has_no_word_for_are_null():
    def refuse(word):
        raise AssertionError(word)

    vectors = pa.array([[float("nan"), float("inf"), -float("inf"), 1.5]], pa.list_(pa.float32()))
    line = json.loads(as_json_lines(["{}"], {"v": vectors}), parse_constant=refuse)
    assert line == {"v": [None, None, None, 1.5]}


def test_whole_numbers_stay_so():
    vectors = pa.array([[1, -128]], pa.list_(pa.int8()))
    assert as_json_lines(["{}"], {"v": vectors}) == b'{"v": [1, -128]}\n'


def test_a_column_that_is_there_already_is_refused():
    with pytest.raises(InputError, match="the input has a column 'text' already"):
        as_parquet(pa.table({"text": ["a"]}), {"text": pa.array(["b"])})
    with pytest.raises(InputError, match="the input has a column 'text' already"):
        as_file(StringRows(["a"], {}, [0], "", {"text": ["a"]}), {"text": pa.array(["b"])}, "jsonl")
