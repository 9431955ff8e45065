"""How an Encoder is called: vectors one after the other, progress, arguments of habit, types, what an import costs."""

import inspect
import io
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count, product
from pathlib import Path
from types import FrameType
from typing import Any, get_type_hints

import numpy as np
import pytest

from fastattn.encoders.encoder import FIRST_WINDOW, Encoder
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.encoders.test_encoder import _encoder, _many_texts
from tests.scheduling.by_hand import ended


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return _encoder()


def test_a_callback_may_wait_for_other_vectors(encoder: Encoder) -> None:
    found: list[np.ndarray] = []
    called_back = threading.Event()
    future = encoder.submit(["the cat"] * 40)
    future.add_done_callback(lambda _: found.append(encoder.submit("the mat").result()))
    future.add_done_callback(lambda _: found.append(encoder.encode("the mat")))
    future.add_done_callback(lambda _: called_back.set())
    assert called_back.wait(60)
    np.testing.assert_array_equal(found[0], found[1])


def test_to_submit_reads_no_text(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is done by the thread that computes."""
    threads: list[int] = []
    encode = encoder._tokenizer.encode

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return encode(*arguments)

    monkeypatch.setattr(encoder._tokenizer, "encode", noted)
    assert len(encoder.submit(["the cat"] * 40).result(60)) == 40
    assert threads and threading.get_ident() not in threads


STRUCK = ("encoder.py", "base.py", "vector_head.py", "scheduler.py", "state.py")


class Interrupt(BaseException):
    pass


def _struck(call: Callable[[], np.ndarray], at: int, strike: Callable[[], None]) -> tuple[np.ndarray, bool]:
    """What the call returns with ``strike`` before the at-th line of these files, and whether there was one."""
    left, before = at, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(STRUCK):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                strike()
        return trace

    sys.settrace(trace)
    try:
        return call(), left <= 0
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_line_of_one_text_keeps_nobody_out(encoder: Encoder) -> None:
    """Other threads' calls neither, which wait for no slot that it left taken."""
    expected, interrupted = encoder.encode("the cat"), 0

    def interrupt() -> None:
        raise Interrupt

    while True:
        try:
            _struck(lambda: encoder.encode("the cat"), interrupted + 1, interrupt)
            break
        except Interrupt:
            interrupted += 1
        np.testing.assert_array_equal(ended(lambda: encoder.encode("the cat")), expected)
    assert interrupted > 50


def test_a_signal_handler_may_encode_at_any_line_of_one_text(encoder: Encoder) -> None:
    """Or a finalizer: whatever Python runs between two lines."""
    expected, inner, at, reached = encoder.encode("the cat"), encoder.encode("a dog"), 0, True
    found: list[np.ndarray] = []
    while reached:
        at += 1
        strike = partial(_struck, lambda: encoder.encode("the cat"), at, lambda: found.append(encoder.encode("a dog")))
        vector, reached = ended(strike)
        np.testing.assert_array_equal(vector, expected)
    assert len(found) == at - 1 > 50
    for vector in found:
        np.testing.assert_array_equal(vector, inner)


OPTIONS = {"prompt_name": "query", "normalize_embeddings": False, "truncate_dim": 5, "pooling": ("cls", "max")}


def test_one_after_the_other_they_are_the_same_vectors() -> None:
    compiled, texts = _encoder(operations), _many_texts(FIRST_WINDOW + 5)
    for number, options in product((0, 1, FIRST_WINDOW, len(texts)), ({}, OPTIONS)):
        vectors = list(compiled.encode_iter(iter(texts[:number]), **options))
        assert len(vectors) == number
        for vector, expected in zip(vectors, compiled.encode(texts[:number], **options), strict=True):
            np.testing.assert_array_equal(vector, expected)
            assert vector.base is None, "a vector that is kept would keep its window"


UNUSED = """
import sys
import threading
from fastattn.encoders.encoder import Encoder
from fastattn.errors import CheckpointError
for path in sys.argv[1:]:
    try: Encoder(path)
    except CheckpointError as error: print(error)
print(*{"numba", "llvmlite", "tokenizers", "fastattn.ops.cpu"} & set(sys.modules))
"""


def test_a_wrong_path_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNUSED, str(tmp_path / "nowhere"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    nowhere, no_checkpoint, imported = done.stdout.splitlines()
    assert "neither an existing path nor" in nowhere and "not a checkpoint" in no_checkpoint
    assert imported == ""


def test_reads_ahead_by_so_much_and_no_more(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastattn.encoders.encoder.LAST_WINDOW", 2 * FIRST_WINDOW)
    monkeypatch.setattr("fastattn.encoders.encoder.WINDOW_CHARACTERS", 1 << 10)
    for text, first, later in (
        ("", FIRST_WINDOW, 2 * FIRST_WINDOW),
        ("the cat", FIRST_WINDOW, 2 * FIRST_WINDOW),
        ("mat " * 64, 4, 4),  # which four of make WINDOW_CHARACTERS
    ):
        read: list[str] = []
        endless = (read.append(text) or text for _ in count())  # type: ignore[func-returns-value]
        vectors = encoder.encode_iter(endless)
        ahead = [len(read) - given_out for given_out, _ in zip(range(5 * first), vectors)]
        assert ahead[0] == max(ahead[:first]) == first and max(ahead) == later


def test_errors_come_where_the_text_is_read(encoder: Encoder) -> None:
    vectors = encoder.encode_iter([*_many_texts(FIRST_WINDOW), None])  # type: ignore[list-item]
    for _ in range(FIRST_WINDOW):
        next(vectors)
    with pytest.raises(InputError, match=f"texts must be str, number {FIRST_WINDOW} is NoneType"):
        next(vectors)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_to_whom_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastattn.system.progress._FIRST_AFTER", 0)
    monkeypatch.setattr("fastattn.system.progress._EVERY", 0)
    encoder, texts = _encoder(operations), _many_texts(400)
    for stream, wish in product((_Terminal, io.StringIO), (None, False, True)):
        monkeypatch.setattr("sys.stderr", shown := stream())
        encoder.encode(texts, show_progress_bar=wish)
        lines = shown.getvalue().split("\r")
        if wish and stream is _Terminal:
            assert "400 of 400 texts" in lines and len(lines) > 4 and lines[-1] == "" == lines[-2].strip()
        else:
            assert lines == [""]


def test_types_of_arguments_and_results_are_told() -> None:
    names = "encode encode_query encode_iter submit count_tokens similarity similarity_pairwise".split()
    for method in (getattr(Encoder, name) for name in names):
        assert set(get_type_hints(method)) == {*inspect.signature(method).parameters, "return"} - {"self"}


def test_similarity_is_the_checkpoints(encoder: Encoder) -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])
    for function, expected in {
        "dot": [11, 25],
        "cosine": [11 / 125**0.5, 1],
        "euclidean": [-(8**0.5), 0],
        "manhattan": [-4, 0],
    }.items():
        of_checkpoint = _encoder(similarity=function)
        found = of_checkpoint.similarity(a, b)
        assert found.dtype == np.float32 and found.shape == (2, 1)
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6, atol=1e-6)
        pairs = of_checkpoint.similarity_pairwise(a, np.concatenate([b, b]))
        np.testing.assert_allclose(pairs, expected, rtol=1e-6, atol=1e-6)
        assert of_checkpoint.similarity(a[0], b).shape == (1, 1)
        assert of_checkpoint.similarity(a, np.zeros((0, 2))).shape == (2, 0)
        with pytest.raises(InputError, match=r"one width are expected, got shapes \(2, 2\) and \(1, 3\)"):
            of_checkpoint.similarity(a, np.zeros((1, 3)))
    for vectors in ("x", [[1.0], [2.0, 3.0]], np.ones(3) * 1j, None):
        with pytest.raises(InputError, match="vectors"):
            encoder.similarity(vectors, np.ones(3))  # type: ignore[arg-type]
    np.testing.assert_array_equal(encoder.similarity(np.zeros(2), np.ones(2)), [[0]])
    # Where |a|^2 + |b|^2 - 2 ab comes out below zero too.
    random = np.random.default_rng(0).standard_normal((200, 384)).astype(np.float32)
    distances = np.diag(_encoder(similarity="euclidean").similarity(random, random))
    np.testing.assert_allclose(distances, 0, atol=1e-5)
