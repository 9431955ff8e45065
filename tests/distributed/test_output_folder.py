"""An output folder of the system: what is finished stays so, whatever is killed, full, or not what it seems."""

import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="output in blocks needs the extra fastattn[ray]")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastattn.distributed import output_folder
from fastattn.distributed.formats.blocks import StringRows
from fastattn.distributed.output_folder import OutputFolder, as_file, as_json_lines, as_parquet
from fastattn.errors import FastattnError, InputError, StorageError
from tests import ROOT
from tests.distributed.jobs import ASIDE, HOLD, RECORD, process, some_job
from tests.messages import refused
from tests.scheduling.by_hand import ended


def visible(out):
    return sorted(name for name in os.listdir(out) if name[0] != ".")


def hidden(out):
    return sorted(path.name for path in out.rglob(".*"))


def test_the_next_run_finds_what_is_finished(out):
    first = OutputFolder(str(out), "parquet")
    with first.hold():
        assert first.begin(some_job()) == some_job()
        assert first.finished_records() == {}
        placed = first.write_block(12, b"rows", RECORD)
        first.write_block(3, b"", RECORD)
    digest = hashlib.sha256(b"rows").hexdigest()
    assert placed == RECORD | {"block": 12, "file": "part-00000012.parquet", "bytes": 4, "digest": digest}
    second = OutputFolder(str(out), "parquet")
    with second.hold():
        later = some_job(files=[file | {"modified": 99} for file in some_job().files])
        assert second.begin(later) == some_job()  # with the times of before
        empty = {"block": 3, "file": "part-00000003.parquet", "bytes": 0, "digest": hashlib.sha256().hexdigest()}
        assert second.finished_records() == {3: placed | empty, 12: placed}
    assert visible(out) == ["_fastattn", "part-00000003.parquet", "part-00000012.parquet"]
    assert (out / "part-00000012.parquet").read_bytes() == b"rows"
    assert hidden(out) == []


def test_any_process_places_blocks_and_buffers_of_any_kind(folder, out):
    OutputFolder(str(out), "parquet").write_block(0, pa.py_buffer(b"abc"), RECORD)
    OutputFolder(str(out), "parquet").write_block(1, np.arange(3, dtype=np.int32).data, RECORD)
    OutputFolder(f"file://{out}", "parquet").write_block(2, pa.py_buffer(b""), RECORD)
    assert [record["bytes"] for record in folder.finished_records().values()] == [3, 12, 0]


def test_a_relative_path_is_absolute_for_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = OutputFolder("out/", "parquet")
    with folder.hold():
        folder.begin(some_job())
        monkeypatch.chdir("/")
        OutputFolder(folder.url, "parquet").write_block(0, b"rows", RECORD)
        assert (folder.name, folder.url, list(folder.finished_records())) == ("out", f"{tmp_path}/out", [0])


def test_a_folder_with_other_files_stays_as_it_was(out):
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    folder = OutputFolder(str(out), "parquet")
    for begin in (lambda: folder.hold().__enter__(), lambda: folder.begin(some_job())):
        with refused(InputError, "thesis.txt"):
            begin()
    assert os.listdir(out) == ["thesis.txt"]


def test_hidden_files_and_an_empty_folder_are_no_hindrance(out):
    out.mkdir()
    (out / ".DS_Store").touch()
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        folder.begin(some_job())
    (out / "notes.txt").touch()  # beside a job they are none either
    with folder.hold():
        folder.begin(some_job())


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for place in (f"{tmp_path}/file", f"{tmp_path}/no/out", ""):
        with refused(InputError, place), OutputFolder(place, "parquet").hold():
            pass


def test_of_two_jobs_the_second_is_refused_until_the_first_is_dead(out):
    folder = OutputFolder(str(out), "parquet")
    with process(HOLD, out) as holder:
        for _ in range(2):
            with pytest.raises(FastattnError) as raised, folder.hold():
                pass
            assert str(raised.value).startswith(f"{out}: another job is at work there (process {holder.pid} on ")
            assert raised.value.exit_code == 1
    with folder.hold() as check:
        check()
        with pytest.raises(FastattnError, match=rf"at work there \(process {os.getpid()} on "), folder.hold():
            pass
    with folder.hold():  # given back
        pass


FORK = """
import os, sys
from fastattn.distributed.output_folder import OutputFolder
folder = OutputFolder(sys.argv[1], "parquet")
reading, writing = os.pipe()
with folder.hold():
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until its parent closes the pipe
        os._exit(0)
with folder.hold():
    print("held")
os.close(writing)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_does_not_keep_what_its_parent_held(out):
    done = subprocess.run([sys.executable, "-c", FORK, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "held\n", done.stderr


WRITE = """
import sys, time
from fastattn.distributed import output_stores
from fastattn.distributed.output_folder import OutputFolder

def stop(stream, part, path):
    if sys.argv[2] in path:
        stream.flush()
        print("ready", flush=True)
        time.sleep(60)
    finish(stream, part, path)

finish, output_stores.finish_file = output_stores.finish_file, stop
OutputFolder(sys.argv[1], "parquet").write_block(7, b"x" * 100_000, {"rows": 1})
"""


@pytest.mark.parametrize("killed_at, left", [("part-00000007", []), ("00000007.json", ["part-00000007.parquet"])])
def test_a_writer_that_is_killed_leaves_nothing_unfinished_under_a_final_name(out, killed_at, left):
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        folder.begin(some_job())
        folder.write_block(1, b"rows", RECORD)
    with process(WRITE, out, killed_at):
        assert len(hidden(out)) == 1
        with folder.hold():
            assert len(hidden(out)) == 1  # its writer lives
    assert visible(out) == ["_fastattn", "part-00000001.parquet", *left]
    assert list(folder.finished_records()) == [1]
    assert len(hidden(out)) == 1
    with folder.hold():
        assert hidden(out) == []
        folder.write_block(7, b"rows", RECORD)
    assert list(folder.finished_records()) == [1, 7]


@contextlib.contextmanager
def file_size_limit(most):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_cannot_be_written_is_one_line_and_changes_nothing(folder, out):
    folder.write_block(0, b"rows", RECORD)
    with file_size_limit(1 << 16), refused(StorageError):
        folder.write_block(1, b"x" * (1 << 17), RECORD)
    assert (visible(out), hidden(out)) == (["_fastattn", "part-00000000.parquet"], [])
    assert list(folder.finished_records()) == [0]
    folder.write_block(1, b"x" * (1 << 17), RECORD)
    assert list(folder.finished_records()) == [0, 1]


def test_a_record_that_cannot_be_written_leaves_its_block_open(folder, out):
    with file_size_limit(100), refused(StorageError, "00000001.json"):
        folder.write_block(1, b"x", RECORD)
    assert (visible(out), hidden(out)) == (["_fastattn", "part-00000001.parquet"], [])
    assert folder.finished_records() == {}


def test_a_host_that_does_not_see_the_folder_says_so(tmp_path):
    with refused(StorageError, "nowhere"):
        OutputFolder(str(tmp_path / "nowhere"), "parquet").write_block(0, b"rows", RECORD)
    assert os.listdir(tmp_path) == []


def test_a_block_set_aside_is_so_until_it_is_finished(folder, out):
    aside = folder.set_aside(4, b'{"text": "a"}\n', ASIDE)
    assert aside == ASIDE | {"block": 4}
    path = out / "_fastattn" / "set-aside"
    assert json.loads((path / "00000004.json").read_bytes()) == aside
    assert (path / "00000004.jsonl").read_bytes() == b'{"text": "a"}\n'
    assert folder.finished_records() == {}
    folder.write_block(4, b"rows", RECORD)
    assert (list(folder.finished_records()), os.listdir(path)) == ([4], [])


def test_a_damaged_job_is_refused_and_kept(folder, out, monkeypatch):
    """One that is too large is not read whole."""
    path = out / "_fastattn" / "job.json"
    path.write_bytes(b"{")
    with refused(InputError, "job.json"):
        folder.begin(some_job())
    assert path.read_bytes() == b"{"
    monkeypatch.setattr(output_folder, "_LARGEST_JOB", 1000)
    os.truncate(path, 1 << 40)
    with refused(InputError, "job.json"):
        folder.begin(some_job())


WRONG = {"bytes": [5, None], "digest": [None, "ab" * 32], "block": [1, False], "rows": [10**30, -1, "3"]}
WRONG |= {"file": ["part-00000001.parquet", "../../etc/passwd", ["part-00000000.parquet"]], "seconds": [10**400, "1"]}
WRONG |= {"fault_at": [-1], "first_faults": [[1]], "input": [None], "cut": [None, "1"], "url": [3], "start": [-1]}
WRONG |= {"stop": ["12"], "tokens": [1.5]}
DAMAGED = [b"", b"[1]", b'{"block": 0', b"\xff", b" " * (1 << 20) + b"{}", b"[" * 10**5]


def test_a_record_that_cannot_be_right_is_not_believed(folder, out):
    placed = folder.write_block(0, b"rows", RECORD)
    path = out / "_fastattn" / "finished" / "00000000.json"
    lacking = [{name: value for name, value in placed.items() if name != field} for field in placed]
    assert len(lacking) == len(RECORD) + 4
    wrong = [placed | {name: value} for name, values in WRONG.items() for value in values]
    for written in wrong + lacking:
        path.write_text(json.dumps(written))
        assert (folder.finished_records(), folder.finished_block(0)) == ({}, None), written
    for data in DAMAGED:
        path.write_bytes(data)
        assert folder.finished_records() == {}, data[:20]
    path.write_text(json.dumps(placed))
    assert folder.finished_records() == {0: placed}


def test_names_that_are_no_records_are_passed_over(folder, out):
    placed = folder.write_block(0, b"rows", RECORD)
    for name in ("0.json", "000000000.json", "a.json", "00000000.json.bak", "٠٠٠٠٠٠٠٠.json"):
        (out / "_fastattn" / "finished" / name).write_text(json.dumps(placed))
    assert folder.finished_records() == {0: placed}


def test_a_part_that_is_gone_or_changed_is_not_finished(folder, out):
    part = out / "part-00000000.parquet"
    for data in (None, b"row", b"rows, and more", b"rowt"):
        placed = folder.write_block(0, b"rows", RECORD)
        assert (folder.finished_records(), folder.finished_block(0)) == ({0: placed}, placed)
        part.unlink() if data is None else part.write_bytes(data)
        assert (folder.finished_records(), folder.finished_block(0)) == ({}, None)
    assert folder.finished_block(1) is None


def test_a_job_that_is_too_large_to_be_read_again_is_not_begun(out, monkeypatch):
    monkeypatch.setattr(output_folder, "_LARGEST_JOB", 1000)
    many = [{"url": f"in/{number}.txt", "size": 1, "modified": 0} for number in range(50)]
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        with refused(InputError):
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
        with refused(StorageError), OutputFolder(str(out), "parquet").hold():
            pass
        assert victim.read_text() == "years of work" and not (folder / "new").exists()


def test_a_folder_within_that_leads_elsewhere_is_refused(tmp_path_factory):
    for name in ("_fastattn", "_fastattn/finished", "_fastattn/set-aside"):
        folder = tmp_path_factory.mktemp("case")
        out = folder / "out"
        (folder / "elsewhere").mkdir()
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(folder / "elsewhere")
        with refused(StorageError, name), OutputFolder(str(out), "parquet").hold():
            pass
        assert os.listdir(folder / "elsewhere") == []


@pytest.mark.parametrize("name", ["job.json", "finished/00000000.json"])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(out, name):
    folder = OutputFolder(str(out), "parquet")
    with folder.hold():
        os.mkfifo(out / "_fastattn" / name)
    with refused(StorageError, name):
        raise ended(lambda: (folder.begin(some_job()), folder.finished_records()), 100)


VECTORS_NE = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS_NE.ravel()), 5)


def test_parquet_keeps_all_columns_with_their_types():
    columns = {"id": pa.array([1, None], pa.uint16()), "text": pa.array(["a", "ß"], pa.large_string())}
    columns |= {"kind": pa.array(["x", "x"]).dictionary_encode(), "when": pa.array([0, 1], pa.timestamp("us", "UTC"))}
    table = pa.table(columns | {"nested": [[{"a": 1}], None]})
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": pa.array(["b", None]), "vector": VECTORS})))
    assert read.select(table.column_names).equals(table)
    assert read.column_names == [*table.column_names, "translation", "vector"]
    assert read["translation"].to_pylist() == ["b", None]
    assert read["vector"].type == pa.list_(pa.float32(), 5)
    assert np.array_equal(read["vector"].combine_chunks().flatten().to_numpy().reshape(2, 5), VECTORS_NE)


def test_a_block_without_rows_is_a_file_with_its_columns_and_no_description_that_lacks_the_new_one():
    none = pa.array([], pa.string())
    table = pa.table({"text": none}).replace_schema_metadata({"huggingface": '{"info": {"features": {"text": 1}}}'})
    read = pq.read_table(pa.BufferReader(as_parquet(table, {"translation": none})))
    assert (read.num_rows, read.column_names, read.schema.metadata) == (0, ["text", "translation"], None)
    assert as_json_lines([], {"translation": none}) == b""


def test_json_lines_have_the_records_own_fields_first():
    objects = ['{"text": "a", "n": {"b": [1, null]}}', "{ }", r'{"text": "\u202e\n\udc80"}']
    lines = as_json_lines(objects, {"translation": pa.array(["ß", None, "x"]), "score": pa.array([1, 2, 3])})
    assert lines.decode().splitlines() == [
        '{"text": "a", "n": {"b": [1, null]}, "translation": "ß", "score": 1}',
        '{"translation": null, "score": 2}',
        r'{"text": "\u202e\n\udc80", "translation": "x", "score": 3}',
    ]


def test_json_lines_give_float32_back():
    scores = pa.array([0.1, None], pa.float32())
    for vectors in (VECTORS, VECTORS.cast(pa.list_(pa.float32()))):
        lines = as_json_lines(["{}", "{}"], {"embedding": vectors.take(pa.array([1, None])), "score": scores})
        first, second = map(json.loads, lines.splitlines())
        assert np.array_equal(np.array(first["embedding"], np.float32), VECTORS_NE[1])
        assert (first["score"], second) == (0.1, {"embedding": None, "score": None})
    vectors = pa.array([[float("nan"), float("inf"), -float("inf"), 1.5]], pa.list_(pa.float32()))
    integers = pa.array([[1, -128]], pa.list_(pa.int8()))
    line = as_json_lines(["{}"], {"v": vectors, "n": integers})
    assert line == b'{"v": [null, null, null, 1.5], "n": [1, -128]}\n'


def test_json_lines_of_several_hypotheses_are_json():
    hypotheses = [['a "b"\\', "\u2028\x1b", None], None, []]
    columns = {"hypotheses": pa.array(hypotheses, pa.list_(pa.string())), "text": pa.array(["x\n", None, '"'])}
    columns["scores"] = pa.array([[0.5, None], [], None], pa.list_(pa.float32()))
    lines = list(map(json.loads, as_json_lines(["{}"] * 3, columns).decode().splitlines()))
    assert lines == [dict(zip(columns, row)) for row in zip(*(array.to_pylist() for array in columns.values()))]


def test_a_column_that_is_there_already_is_refused():
    for form in ("parquet", "jsonl"):
        with refused(InputError):
            as_file(StringRows(["a"], {}, [0], "", {"text": ["a"]}), {"text": pa.array(["b"])}, form)
