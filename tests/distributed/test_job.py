"""What makes another job, and files that may hold anything."""

import json

from fastattn.distributed.job import CorpusJob, parse_object
from fastattn.errors import InputError
from tests.distributed.jobs import some_job
from tests.messages import check, refused

FILES = some_job().files


def test_a_job_is_read_as_it_was_written():
    job = some_job(options={"precision": "int8", "prefix": None, "bias": [["a b", 0.5]], "große": "ß\udc80"})
    assert CorpusJob.from_json(job.as_json(), "job.json") == job
    assert job.differences(CorpusJob.from_json(job.as_json(), "job.json")) == []


OPTIONS = {"precision": "float32", "beam_size": 1}
DIFFERENCES = [{"kind": "encode"}, {"model": "cd" * 32}, {"column": "body"}, {"outputs": ["translation", "score"]}]
DIFFERENCES += [{"form": "jsonl"}, {"version": "0.2.0"}, {"block_bytes": 5}, {"input_form": "csv"}]
DIFFERENCES += [{"options": OPTIONS | {"precision": "int8"}}, {"options": OPTIONS | {"beam_size": True}}]
DIFFERENCES += [{"options": {"precision": "float32"}}, {"options": OPTIONS | {"n": {"a": "b"}}}, {"files": FILES[:1]}]
DIFFERENCES += [{"files": [*FILES, FILES[0] | {"url": "in/c"}]}, {"files": [FILES[0], FILES[1] | {"url": "c"}]}]
DIFFERENCES += [{"files": [FILES[0] | {"size": 10}, FILES[1]]}, {"files": FILES[::-1]}]


def test_each_thing_that_differs_is_told():
    for changes in DIFFERENCES:
        (phrase,) = some_job(**changes).differences(some_job())
        check(phrase)


def test_what_the_output_does_not_depend_on_is_no_difference():
    other = some_job(model_name="/models/en-pt", files=[file | {"modified": 99} for file in FILES])
    assert other.differences(some_job()) == []


def test_options_are_compared_as_json_keeps_them():
    other = some_job(options={"bias": {"b": 2, "a": 1}, "suppressed": ("a", "b")})
    assert other.differences(some_job(options={"suppressed": ["a", "b"], "bias": {"a": 1, "b": 2}})) == []


def test_many_differences_are_a_short_line():
    many = [{"url": f"in/{number}.txt", "size": 1, "modified": 0} for number in range(500)]
    grown = [file | {"size": 2} for file in many]
    long = some_job(options=OPTIONS | {"precision": "x" * 10**6})
    for job, first in ((some_job(files=many), some_job()), (some_job(files=grown), some_job(files=many))):
        check(*job.differences(first))
    check(*long.differences(some_job()))


def test_files_that_were_touched_are_told_by_their_numbers():
    first = some_job(files=[FILES[0], FILES[1] | {"modified": 0}])  # 0: not known
    assert some_job(files=[file | {"modified": 99} for file in FILES]).files_with_new_time(first) == [0]
    assert some_job().files_with_new_time(some_job()) == []


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


FILE = {"url": "a", "size": 1, "modified": 0}
WRONG = [{"layout": 2}, {"layout": True, "kind": 7}, {"kind": "sing"}, {"kind": {}}, {"model": None}, {"options": []}]
WRONG += [{"outputs": "translation"}, {"outputs": [1]}, {"block_bytes": 10**30}, {"block_bytes": 1.5}]
WRONG += [{"block_bytes": True}, {"form": "csv"}, {"input_form": None}, {"files": {}}, {"files": ["a" * 10**6]}]
WRONG += [{"files": [file]} for file in (FILE | {"size": -1}, FILE | {"size": 10**30}, {"url": "a"})]
NO_JOBS = [b"", some_job().as_json()[:-20], b"[1, 2]", b"null", b"\xff\xfe{}", b'{"layout": NaN}', b"{}"]
NO_JOBS += [b'{"layout": ' + b"[" * 10**5, b'{"layout": 1' + b"0" * 10**4 + b"}"]


def test_what_is_no_job_is_refused_in_one_line():
    for data in (*NO_JOBS, *(changed(**wrong) for wrong in WRONG)):
        with refused(InputError, "out/_fastattn/job.json") as raised:
            CorpusJob.from_json(data, "out/_fastattn/job.json")
        assert len(str(raised.value)) < 300


def test_objects_are_told_from_anything_else():
    assert parse_object(b'{"a": 1}') == {"a": 1}
    assert [parse_object(data) for data in (b"", b"{", b"[]", b'"a"', b'{"a": Infinity}', b"\x80")] == [None] * 6
