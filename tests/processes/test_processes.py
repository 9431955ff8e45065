"""Worker processes: the same results as without, in order; what fails says so; nothing is left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
import pytest

from fastattn import ops
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, FastattnError, InputError, SearchTimeout
from fastattn.processes import worker_process
from fastattn.processes.worker_process import ENDED, Answers, WorkerProcess
from fastattn.scheduling import scheduler
from fastattn.spec.checkpoint import Checkpoint
from fastattn.translation.translator import Translator
from fastattn.weights.native import convert
from tests import ROOT
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.messages import refused
from tests.models.tiny_models import random_checkpoint
from tests.processes.served import is_gone

SHORT = {"max_decoding_length": 9}
TEXTS = [" ".join(f"w{(7 * n + k) % 16}" for k in range(1 + n % 9)) for n in range(40)]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    convert.write(path, Checkpoint(SPEC, TENSORS, TEXT), "float32")
    return path


@pytest.fixture(scope="module")
def alone(folder):
    return Translator(folder, threads=1)


@pytest.fixture(scope="module")
def shared(folder):
    with Translator(folder, threads=1, processes=2) as translator:
        yield translator


def _numbers(made):
    """Of the system, those of its processes."""
    assert made._pool is not None
    return [process.pid for process in made._pool._pool._processes.values()]


def test_translations_are_the_same_and_in_order(alone, shared):
    expected = alone.translate(TEXTS, **SHORT)
    assert shared.translate(TEXTS, **SHORT) == expected
    assert [shared.translate(TEXTS[3], **SHORT), shared.translate("")] == [expected[3], ""]
    assert shared.translate([]) == [] == list(shared.translate_iter([]))
    assert list(shared.translate_iter(TEXTS, **SHORT, beam_size=3)) == alone.translate(TEXTS, **SHORT, beam_size=3)
    assert [shared.submit(text, **SHORT).result() for text in TEXTS[:3]] == expected[:3]


def test_details_tokens_and_scores_travel(alone, shared):
    how = {"details": True, "beam_size": 2, "num_hypotheses": 2, "return_attention": True, **SHORT}
    prefixes, sources = [None if n % 2 else "w3" for n in range(len(TEXTS))], [text.split() for text in TEXTS]
    for our, their in zip(*(made.translate(TEXTS, target_prefix=prefixes, **how) for made in (shared, alone))):
        np.testing.assert_equal(asdict(our), asdict(their))
    for our, their in zip(shared.score(TEXTS, TEXTS), alone.score(TEXTS, TEXTS)):
        np.testing.assert_equal(asdict(our), asdict(their))
    assert shared.translate_tokens(sources, **SHORT) == alone.translate_tokens(sources, **SHORT)
    seeded = {"beam_size": 1, "sampling_topk": 4, "seed": 7, "num_hypotheses": np.int64(1)}
    assert shared.translate(TEXTS, **SHORT, **seeded) == alone.translate(TEXTS, **SHORT, **seeded)


def test_a_file_and_a_callback(alone, shared, tmp_path):
    (tmp_path / "in").write_text("\n".join(TEXTS) + "\n")
    for made, name in ((alone, "alone"), (shared, "shared")):
        made.translate_file(tmp_path / "in", tmp_path / name)
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "alone").read_bytes()
    callers: set[int] = set()
    shared.translate(TEXTS[:3], **SHORT, beam_size=1, callback=lambda step: callers.add(threading.get_ident()))
    assert callers == {threading.get_ident()}  # called here, where it is


def test_vectors_are_the_same(encoder_folder):
    texts = ["the cat sat on the mat " * (n % 7) for n in range(40)]
    alone, shared = Encoder(encoder_folder, threads=1), Encoder(encoder_folder, threads=1, processes=2)
    for how in ({}, {"long": "mean"}, {"output_dtype": "ubinary"}, {"truncate_dim": 4, "prompt_name": "query"}):
        ours, theirs = shared.encode(texts, **how), alone.encode(texts, **how)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    expected = alone.encode(texts)
    for found in (list(shared.encode_iter(texts)), shared.submit(texts).result(), [*map(shared.encode, texts)]):
        np.testing.assert_array_equal(found, expected)
    assert shared.encode([]).shape == alone.encode([]).shape
    stream = shared.encode_iter([*texts[:30], "cat " * 99, *texts], long="error")
    np.testing.assert_array_equal(list(islice(stream, 30)), expected[:30])
    for call in (lambda: next(stream), lambda: shared.encode([*texts[:30], "cat " * 99], long="error")):
        with refused(InputError, "text number 30"):
            call()
    shared.close()


def outcome(call, made):
    try:
        return call(made)
    except FastattnError as error:
        return type(error), str(error)


def test_errors_are_those_of_one_process(alone, shared):
    calls = (
        lambda made: made.translate(["w1", 3]),
        lambda made: made.translate("w1 " * 3000, split="never"),
        lambda made: made.translate(["w1", "\ud800"]),
        lambda made: made.translate(TEXTS, **SHORT, sampling_topk=1000, beam_size=1),
        lambda made: made.translate(TEXTS, **SHORT, no_such_option=1),
        lambda made: made.translate_tokens([["w1"], "w2"]),
        lambda made: list(made.translate_iter(["w1", 3])),
        lambda made: made.score(["w1"], []),
    )
    for call in calls:
        assert outcome(call, shared) == outcome(call, alone)
    with pytest.raises(SearchTimeout, match="longer than the timeout"):
        shared.translate(["w1 " * 50] * 40, timeout=1e-9)


def test_a_stream_yields_what_comes_before_an_error(shared, alone):
    def source():
        yield from TEXTS
        raise KeyError("the source's own")

    found = []
    with pytest.raises(KeyError):
        found.extend(shared.translate_iter(source(), **SHORT))  # extend keeps nothing
    stream = shared.translate_iter(source(), **SHORT)
    assert list(islice(stream, len(TEXTS))) == alone.translate(TEXTS, **SHORT)
    mixed = list(shared.translate_iter(["w1", "\ud800", 5, "w2"], return_exceptions=True))
    assert [type(one) for one in mixed] == [str, InputError, InputError, str]


def test_a_stream_goes_on_however_much_others_wait(alone, shared, monkeypatch):
    """It asks for no more before a result has come."""
    monkeypatch.setattr(scheduler, "MOST_WAITING", 0)
    assert list(shared.translate_iter(TEXTS, **SHORT)) == alone.translate(TEXTS, **SHORT)


HELLO = "print('hello from a start-up file of this machine', flush=True)\n"


@pytest.mark.parametrize(
    "begins, reason", [("", "none"), (HELLO, "something else than a message came: b'hello fr'...")]
)
def test_a_process_that_is_of_no_use_before_it_is_asked_says_so(begins, reason, tmp_path, monkeypatch):
    paths = "import sys; sys.path[:] = sys.argv[1:]\n"
    monkeypatch.setattr(worker_process, "_CHILD", paths + begins + worker_process._CHILD)
    process = WorkerProcess(["fastattn.translation.child", str(tmp_path / "none"), "float32", "cpu", 1])
    while process.is_usable:
        time.sleep(0.01)
    answers = Answers()
    process.request((0, 0), answers, "texts", [], 1)
    assert answers.get(timeout=20) is ENDED
    error = process.fail()
    said = str(error)
    assert type(error) is (FastattnError if begins else CheckpointError)
    assert reason in said and "\n" not in said and ("cannot be understood" in said) == bool(begins)


def test_they_are_gone_when_the_translator_is_closed(folder, alone):
    """And one that is closed while they load says so."""
    loading = Translator(folder, threads=1, processes=2)
    future = loading.submit(TEXTS, **SHORT)
    loading.close()
    with Translator(folder, threads=1, processes=2) as translator:
        assert translator.translate(TEXTS, **SHORT) == alone.translate(TEXTS, **SHORT)
        numbers, stream = _numbers(translator), translator.translate_iter(TEXTS * 1000, **SHORT)
        next(stream)
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    for call in (lambda: future.result(60), lambda: list(stream), lambda: translator.translate("w1")):
        with refused(FastattnError, "closed"):
            call()
    translator.close()


def test_they_end_with_the_translator(folder):
    translator = Translator(folder, threads=1, processes=2)
    future, numbers = translator.submit(TEXTS, **SHORT), _numbers(translator)
    del translator
    assert len(future.result()) == len(TEXTS)  # those that it still needs do not
    del future
    gc.collect()
    assert all(map(is_gone, numbers))


def test_numbers_of_processes_that_are_none(folder):
    for processes in (0, -1, 1.5, "2", True):
        with refused(InputError, "processes"):
            Translator(folder, processes=processes)


@pytest.mark.parametrize("made_of", [Translator, Encoder])
def test_in_the_precision_and_on_the_device(made_of, tmp_path, monkeypatch):
    """The device, which only this program knows, is theirs too: they say that they have none of that name."""
    monkeypatch.setitem(ops.BACKENDS, "another", "fastattn.ops.cpu")
    monkeypatch.setattr(ops, "_backends", {})
    checkpoint = random_checkpoint(21) if made_of is Translator else Checkpoint(SPEC, TENSORS, TEXT)
    convert.write(tmp_path, checkpoint, "float32")
    with made_of(tmp_path, "int8", threads=1, processes=2, device="another") as made:
        assert made._pool is not None
        assert made._pool._pool._arguments[1:] == [str(tmp_path), "int8", "another", 1]
        call = made.translate if isinstance(made, Translator) else made.encode
        with pytest.raises(FastattnError, match="^expected device 'cpu' or 'cuda' or 'auto', got 'another'$"):
            call(["w1 w2", "w3"])


SCRIPT = """
import os, sys, threading, time
from fastattn import Translator
translator = Translator(sys.argv[1], threads=1, processes=2)
translator.translate("w1 w2")
processes = list(translator._pool._pool._processes.values())
print(*[process.pid for process in processes], flush=True)
if os.fork() == 0:
    sys.stdin.read()  # longer than the program lives
    os._exit(0)

def tell():
    while not any(process._answer_reader.routes for process in processes):
        time.sleep(0.01)
    print("under way", flush=True)

for _ in range(2):
    threading.Thread(target=tell, daemon=True).start()
    try:
        translator.translate(["w1 " * 200] * 4000, max_decoding_length=200, min_decoding_length=200)
    except KeyboardInterrupt:
        print("interrupted", translator.translate("w1 w2") != "", flush=True)
"""


@POSIX
def test_an_interrupt_ends_the_call_alone_and_nothing_is_left_when_the_program_is_killed(folder, tmp_path):
    """Of a script without a main guard, and even where a child that it forked has copies of its pipes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "json.py").write_text("raise ImportError('of the folder that the script runs in')")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-W", "error", str(script), str(folder)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, cwd=tmp_path, env=environment, **pipes) as program:
        numbers = list(map(int, program.stdout.readline().split()))
        assert len(numbers) == 2 and program.stdout.readline() == "under way\n"
        program.send_signal(signal.SIGINT)
        assert [program.stdout.readline() for _ in range(2)] == ["interrupted True\n", "under way\n"]
        program.kill()
        assert all(map(is_gone, numbers))
        program.stdin.close()
        assert program.stderr.read() == ""


FORKED = """
import os, sys, time
from fastattn import FastattnError, Translator
for processes in (1, 2):
    with Translator(sys.argv[1], threads=1, processes=processes) as translator:
        def texts():
            for n in range(600):
                yield f"w{n % 16} w{n % 7} w{n % 5}"
        expected = translator.translate(["w1 w2"])
        stream = translator.translate_iter(texts(), max_decoding_length=9)
        endless = {"min_decoding_length": 100_000, "max_decoding_length": 100_000, "beam_size": 1}
        future = translator.submit("w1", **endless, caller="other")
        begun = [next(stream) for _ in range(300 if processes == 1 else 1)]  # now some of it is under way
        child = os.fork()
        if child == 0:
            def says_so(ask):
                try:
                    return len(ask())
                except FastattnError as error:
                    return "when it was forked" in str(error)
            ends = says_so(lambda: list(stream)) in (True, 600 - len(begun))  # or nothing was under way just then
            print(processes, ends, says_so(future.result), translator.translate(["w1 w2"]) == expected, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(processes, future.cancel(), len(begun) + len(list(stream)), flush=True)
"""


@POSIX
def test_what_a_process_began_does_not_go_on_in_its_child_which_begins_anew(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["1 True True True", "1 True 600", "2 True True True", "2 True 600"]
