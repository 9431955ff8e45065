"""Worker processes: the same results as without, in order; what fails says so; nothing is left behind."""

import gc
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError, FastattnError, InputError, SearchTimeout
from fastattn.processes import worker_process
from fastattn.processes.choice import sharing
from fastattn.processes.worker_process import ENDED, Answers, WorkerProcess
from fastattn.scheduling import scheduler
from fastattn.spec.checkpoint import Checkpoint
from fastattn.translation.translator import Translator
from fastattn.translation.worker_processes import TranslationProcesses
from fastattn.weights.native import convert
from tests.encoders.test_encoder import SPEC, TENSORS, TEXT
from tests.models.tiny_models import random_checkpoint
from tests.processes.served import is_gone

SHORT = {"max_decoding_length": 9}
TEXTS = [" ".join(f"w{(7 * n + k) % 16}" for k in range(1 + n % 9)) for n in range(40)]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder")
    convert.write(path, Checkpoint(SPEC, TENSORS, TEXT), "float32")
    return path


@pytest.fixture(scope="module")
def alone(folder: Path) -> Translator:
    return Translator(folder, threads=1)


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Translator]:
    with Translator(folder, threads=1, processes=2) as translator:
        yield translator


def _numbers(made: Translator) -> list[int]:
    """Of the system, those of its processes."""
    assert made._pool is not None
    return [process.number for process in made._pool._pool._processes.values()]


def test_translations_are_the_same_and_in_order(alone: Translator, shared: Translator) -> None:
    assert shared.translate(TEXTS, **SHORT) == alone.translate(TEXTS, **SHORT)
    assert shared.translate(TEXTS[3], **SHORT) == alone.translate(TEXTS[3], **SHORT)
    assert shared.translate([]) == [] == list(shared.translate_iter([]))
    assert shared.translate("") == ""
    assert list(shared.translate_iter(TEXTS, **SHORT, beam_size=3)) == alone.translate(TEXTS, **SHORT, beam_size=3)
    assert [shared.submit(text, **SHORT).result() for text in TEXTS[:3]] == alone.translate(TEXTS[:3], **SHORT)


def test_details_tokens_and_scores_travel(alone: Translator, shared: Translator) -> None:
    how = {"details": True, "beam_size": 2, "num_hypotheses": 2, "return_attention": True, **SHORT}
    prefixes = [None if n % 2 else "w3" for n in range(len(TEXTS))]
    ours, theirs = (made.translate(TEXTS, target_prefix=prefixes, **how) for made in (shared, alone))
    for our, their in zip(ours, theirs):
        for part, other in zip(our.parts, their.parts):
            np.testing.assert_equal(part.attention, other.attention)
        assert [replace(part, attention=None) for part in our.parts] == [
            replace(part, attention=None) for part in their.parts
        ]
        assert replace(our, parts=[]) == replace(their, parts=[])
    sources = [text.split() for text in TEXTS]
    assert shared.translate_tokens(sources, **SHORT) == alone.translate_tokens(sources, **SHORT)
    for ours, theirs in zip(shared.score(TEXTS, TEXTS), alone.score(TEXTS, TEXTS)):
        assert ours.tokens == theirs.tokens
        np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
    seeded = {"beam_size": 1, "sampling_topk": 4, "seed": 7, "num_hypotheses": np.int64(1)}
    assert shared.translate(TEXTS, **SHORT, **seeded) == alone.translate(TEXTS, **SHORT, **seeded)


def test_a_file_and_a_callback(alone: Translator, shared: Translator, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n".join(TEXTS) + "\n")
    for made, name in ((alone, "alone"), (shared, "shared")):
        made.translate_file(tmp_path / "in", tmp_path / name)
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "alone").read_bytes()
    callers: set[int] = set()
    shared.translate(TEXTS[:3], **SHORT, beam_size=1, callback=lambda step: callers.add(threading.get_ident()))
    assert callers == {threading.get_ident()}  # called here, where it is


def test_vectors_are_the_same(encoder_folder: Path) -> None:
    texts = ["the cat sat on the mat " * (n % 7) for n in range(40)]
    alone, shared = Encoder(encoder_folder, threads=1), Encoder(encoder_folder, threads=1, processes=2)
    for how in ({}, {"long": "mean"}, {"output_dtype": "ubinary"}, {"truncate_dim": 4, "prompt_name": "query"}):
        ours, theirs = shared.encode(texts, **how), alone.encode(texts, **how)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(list(shared.encode_iter(texts)), alone.encode(texts))
    np.testing.assert_array_equal(shared.encode(texts[4]), alone.encode(texts[4]))
    np.testing.assert_array_equal(shared.submit(texts).result(), alone.encode(texts))
    assert shared.encode([]).shape == alone.encode([]).shape
    stream = shared.encode_iter([*texts[:30], "cat " * 99, *texts], long="error")
    np.testing.assert_array_equal(list(islice(stream, 30)), alone.encode(texts[:30]))
    for call in (lambda: next(stream), lambda: shared.encode([*texts[:30], "cat " * 99], long="error")):
        with pytest.raises(InputError, match="text number 30 has 101 tokens"):
            call()
    shared.close()


def test_errors_are_those_of_one_process(alone: Translator, shared: Translator) -> None:
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
        found = []
        for made in (alone, shared):
            try:
                found.append(call(made))
            except FastattnError as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1]
    with pytest.raises(SearchTimeout, match="longer than the timeout"):
        shared.translate(["w1 " * 50] * 40, timeout=1e-9)


def test_a_stream_yields_what_comes_before_an_error(shared: Translator, alone: Translator) -> None:
    def source() -> Iterator[str]:
        yield from TEXTS
        raise KeyError("the source's own")

    found = []
    with pytest.raises(KeyError):
        found.extend(shared.translate_iter(source(), **SHORT))  # extend keeps nothing
    stream = shared.translate_iter(source(), **SHORT)
    assert list(islice(stream, len(TEXTS))) == alone.translate(TEXTS, **SHORT)
    mixed = list(shared.translate_iter(["w1", "\ud800", 5, "w2"], return_exceptions=True))
    assert [type(one) for one in mixed] == [str, InputError, InputError, str]


def test_a_stream_reads_only_ahead(shared: Translator) -> None:
    read = count()
    stream = shared.translate_iter((f"w{next(read) % 16} w1 w2" for _ in count()), **SHORT)
    list(islice(stream, 3))
    assert next(read) < 5_000
    stream.close()


def test_a_stream_goes_on_however_much_others_wait(
    alone: Translator, shared: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for no more before a result has come."""
    monkeypatch.setattr(scheduler, "MOST_WAITING", 0)
    assert list(shared.translate_iter(TEXTS, **SHORT)) == alone.translate(TEXTS, **SHORT)


def test_many_callers(alone: Translator, shared: Translator) -> None:
    futures = [shared.submit(text, **SHORT, caller=n % 5) for n, text in enumerate(TEXTS * 3)]
    kept = shared.submit(TEXTS, **SHORT, caller="other")
    long = {"max_decoding_length": 200, "min_decoding_length": 200}
    dropped = [shared.submit(["w1 " * 200] * 2000, **long, caller="other") for _ in range(3)]
    assert all(future.cancel() and future.cancelled() for future in dropped)
    assert [future.result() for future in futures] == alone.translate(TEXTS, **SHORT) * 3
    assert kept.result() == alone.translate(TEXTS, **SHORT)


def test_a_call_when_another_is_done(alone: Translator, shared: Translator) -> None:
    """By the thread that serves a process: it does not wait for itself, and what others wait for goes on."""
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    first = shared.submit(TEXTS[1], **SHORT)
    others = [shared.submit(TEXTS, **SHORT) for _ in range(3)]
    first.add_done_callback(lambda _: found.put(shared.translate(TEXTS[2], **SHORT)))
    assert found.get(timeout=60) == alone.translate(TEXTS[2], **SHORT)
    assert [other.result(60) for other in others] == [alone.translate(TEXTS, **SHORT)] * 3


@POSIX
def test_a_killed_process_is_replaced_and_nobody_notices(alone: Translator, shared: Translator) -> None:
    shared.translate(TEXTS, **SHORT)
    first = _numbers(shared)
    future = shared.submit(TEXTS * 20, **SHORT)
    os.kill(first[1], signal.SIGKILL)
    assert future.result(60) == alone.translate(TEXTS, **SHORT) * 20
    second = _numbers(shared)
    assert second[0] == first[0] and second[1] != first[1]


@pytest.mark.parametrize(
    ("begins", "reason"),
    [
        ("", "none"),
        (
            "print('hello from a start-up file of this machine', flush=True)\n",
            "a worker process cannot be understood: something else than a message came: b'hello fr'...",
        ),
        (
            "from fastattn.processes import messages; messages.VERSION = 7\n",
            "a worker process cannot be understood: a message of another fastattn came: version 7, not 1",
        ),
    ],
)
def test_a_process_that_is_of_no_use_before_it_is_asked_says_so(
    begins: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = "import sys; sys.path[:] = sys.argv[1:]\n"
    monkeypatch.setattr(worker_process, "_BEGIN", paths + begins + worker_process._BEGIN)
    process = WorkerProcess(["fastattn.translation.child", str(tmp_path / "none"), "float32", "cpu", 1])
    while process.is_usable:
        time.sleep(0.01)
    answers: Answers[list[object]] = Answers()
    process.ask((0, 0), answers, "texts", [], 1)
    assert answers.get(timeout=20) is ENDED
    assert reason in str(process.fail()) and "\n" not in str(process.fail())


def test_a_process_that_cannot_load_says_why(tmp_path: Path) -> None:
    convert.write(tmp_path, random_checkpoint(3), "float32")
    translator = Translator(tmp_path, threads=1)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(CheckpointError):
        Translator(tmp_path, threads=1)
    translator._pool = TranslationProcesses(sharing(2, 1, 1, 1), tmp_path, "float32")
    with pytest.raises(CheckpointError):
        translator.translate("w1")
    translator.close()


def test_they_are_gone_when_the_translator_is_closed(folder: Path, alone: Translator) -> None:
    with Translator(folder, threads=1, processes=2) as translator:
        assert translator.translate(TEXTS, **SHORT) == alone.translate(TEXTS, **SHORT)
        numbers, stream = _numbers(translator), translator.translate_iter(TEXTS * 1000, **SHORT)
        next(stream)
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    with pytest.raises(FastattnError, match="the worker processes are closed"):
        list(stream)
    with pytest.raises(FastattnError, match="this Translator is closed"):
        translator.translate("w1")
    translator.close()


def test_one_closed_while_its_processes_load_says_so(folder: Path) -> None:
    translator = Translator(folder, threads=1, processes=2)
    future = translator.submit(TEXTS, **SHORT)
    translator.close()
    with pytest.raises(FastattnError, match="the worker processes are closed"):
        future.result(60)


def test_they_end_with_the_translator(folder: Path) -> None:
    translator = Translator(folder, threads=1, processes=2)
    future, numbers = translator.submit(TEXTS, **SHORT), _numbers(translator)
    del translator
    assert len(future.result()) == len(TEXTS)  # those that it still needs do not
    del future
    gc.collect()
    assert all(map(is_gone, numbers))


def test_numbers_of_processes_that_are_none(folder: Path) -> None:
    for processes in (0, -1, 1.5, "2", True):
        with pytest.raises(InputError, match="processes must be"):
            Translator(folder, processes=processes)  # type: ignore[arg-type]
