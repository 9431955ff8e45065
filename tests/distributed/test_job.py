"""What makes another job, and files that may hold anything."""

import json

import pytest

from fastattn.distributed.job import CorpusJob, parse_object
from fastattn.errors import InputError
from tests.distributed.jobs import some_job

FILES = some_job().files


def test_a_job_is_read_as_it_was_written():
    job = some_job(options={"precision": "int8", "prefix": None, "bias": [["a b", 0.5]], "große": "ß\udc80"})
    assert CorpusJob.from_json(job.as_json(), "job.json") == job
    assert job.differences(CorpusJob.from_json(job.as_json(), "job.json")) == []


DIFFERENCES = [
    ({"kind": "encode"}, "kind: encode, was translate"),
    ({"model": "cd" * 32}, "model: en-pt (cdcdcdcdcdcd), was en-pt (abababababab)"),
    ({"options": {"precision": "int8", "beam_size": 1}}, "precision: int8, was float32"),
    ({"options": {"precision": "float32", "beam_size": True}}, "beam_size: true, was 1"),
    ({"options": {"precision": "float32"}}, "beam_size: not given, was 1"),
    ({"options": {"precision": "float32", "beam_size": 1, "n": {"a": "b"}}}, 'n: {"a": "b"}, was not given'),
    ({"column": "body"}, "column: body, was text"),
    ({"outputs": ["translation", "score"]}, 'outputs: ["translation", "score"], was ["translation"]'),
    ({"form": "jsonl"}, "form: jsonl, was parquet"),
    ({"version": "0.2.0"}, "version: 0.2.0, was 0.1.0"),
    ({"block_bytes": 5}, "block_bytes: 5, was 131072"),
    ({"input_form": "csv"}, "input_form: csv, was text"),
    ({"files": FILES[:1]}, "input: 1 file, were 2 (gone: in/b.txt)"),
    ({"files": [*FILES, FILES[0] | {"url": "in/c"}]}, "input: 3 files, were 2 (new: in/c)"),
    ({"files": [FILES[0], FILES[1] | {"url": "c"}]}, "input: 2 files, were 2 (new: c; gone: in/b.txt)"),
    ({"files": [FILES[0] | {"size": 10}, FILES[1]]}, "in/a.txt: 10 bytes, was 12"),
    ({"files": FILES[::-1]}, "input: the same files in another order"),
]


def test_each_thing_that_differs_is_told():
    for changes, phrase in DIFFERENCES:
        assert some_job(**changes).differences(some_job()) == [phrase]


def test_what_the_output_does_not_depend_on_is_no_difference():
    other = some_job(model_name="/models/en-pt", files=[file | {"modified": 99} for file in FILES])
    assert other.differences(some_job()) == []


def test_options_are_compared_as_json_keeps_them():
    first, second = (
        {"suppressed": ["a", "b"], "bias": {"a": 1, "b": 2}},
        {"bias": {"b": 2, "a": 1}, "suppressed": ("a", "b")},
    )
    assert some_job(options=second).differences(some_job(options=first)) == []


def test_many_differences_are_a_short_line():
    many = [{"url": f"in/{number}.txt", "size": 1, "modified": 0} for number in range(500)]
    grown = [file | {"size": 2} for file in many]
    (told,) = some_job(files=many).differences(some_job())
    assert told.startswith("input: 500 files, were 2 (new: in/0.txt, in/1.txt, in/2.txt and 497 more; gone: in/a.txt")
    (told,) = some_job(files=grown).differences(some_job(files=many))
    assert told.endswith("in/2.txt: 2 bytes, was 1 and 497 more")
    (told,) = some_job(options={"precision": "x" * 10**6, "beam_size": 1}).differences(some_job())
    assert len(told) < 200


def test_files_that_were_touched_are_told_by_their_numbers():
    first = some_job(files=[FILES[0], FILES[1] | {"modified": 0}])  # 0: not known
    assert some_job(files=[file | {"modified": 99} for file in FILES]).touched(first) == [0]
    assert some_job().touched(some_job()) == []


def test_what_an_actor_is_sent_has_no_files():
    sent = some_job().without_files()
    assert (sent.files, sent.differences(some_job(files=[]))) == ([], [])


def test_secrets_of_urls_are_not_kept():
    url = "abfs://me:secret@account/in/a.txt?client_secret=hidden"
    job = some_job(files=[{"url": url, "size": 1, "modified": 0, "form": "text"}])
    assert job.files == [{"url": "abfs://account/in/a.txt", "size": 1, "modified": 0}]
    assert some_job(files=[{"url": "in/what?.txt", "size": 1, "modified": 0}]).files[0]["url"] == "in/what?.txt"


def changed(**changes):
    return json.dumps(json.loads(some_job().as_json()) | changes).encode()


NO_JOBS = [
    (b"", "should hold a job"),
    (some_job().as_json()[:-20], "should hold a job"),
    (b"[1, 2]", "should hold a job"),
    (b"null", "should hold a job"),
    (b"\xff\xfe{}", "should hold a job"),
    (b'{"layout": NaN}', "should hold a job"),
    (b'{"layout": ' + b"[" * 10**5, "should hold a job"),
    (b'{"layout": 1' + b"0" * 10**4 + b"}", "should hold a job"),
    (b"{}", "layout not given, this version of fastattn has 1"),
    (changed(layout=2), "layout 2, this version of fastattn has 1"),
    (changed(layout=True, kind=7), "kind"),
    (changed(kind="sing"), "kind cannot be that of a job, is sing"),
    (changed(kind={}), "kind"),
    (changed(model=None), "model cannot be that of a job, is not given"),
    (changed(options=[]), "options"),
    (changed(outputs="translation"), "outputs"),
    (changed(outputs=[1]), "outputs"),
    (changed(block_bytes=10**30), "block_bytes"),
    (changed(block_bytes=1.5), "block_bytes"),
    (changed(block_bytes=True), "block_bytes"),
    (changed(form="csv"), "form"),
    (changed(input_form=None), "input_form"),
    (changed(files={}), "files"),
    (changed(files=[{"url": "a", "size": -1, "modified": 0}]), "files"),
    (changed(files=[{"url": "a", "size": 10**30, "modified": 0}]), "files"),
    (changed(files=[{"url": "a"}]), "files"),
    (changed(files=["a" * 10**6]), "files"),
]


def test_what_is_no_job_is_refused_in_one_line():
    for data, told in NO_JOBS:
        with pytest.raises(InputError) as raised:
            CorpusJob.from_json(data, "out/_fastattn/job.json")
        message = str(raised.value)
        assert told in message and message.startswith("out/_fastattn/job.json") and "name another folder" in message
        assert "\n" not in message and len(message) < 300


def test_objects_are_told_from_anything_else():
    assert parse_object(b'{"a": 1}') == {"a": 1}
    assert [parse_object(data) for data in (b"", b"{", b"[]", b'"a"', b'{"a": Infinity}', b"\x80")] == [None] * 6
