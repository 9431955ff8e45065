"""How an Encoder is called: vectors one after the other, progress, arguments of habit, types, what an import costs."""

import inspect
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, get_type_hints

import numpy as np
import pytest

from fastattn.encoders.encoder import FIRST_WINDOW, WINDOW_CHARACTERS, Encoder
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from tests.encoders.test_encoder import _encoder, _many_texts
from tests.scheduling.test_disturbances import ended


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


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "options"])
def test_one_after_the_other_they_are_the_same_vectors(options: dict) -> None:
    compiled, texts = _encoder(operations), _many_texts(FIRST_WINDOW + 5)
    for count in (0, 1, FIRST_WINDOW, len(texts)):
        vectors = list(compiled.encode_iter(iter(texts[:count]), **options))
        assert len(vectors) == count
        for vector, expected in zip(vectors, compiled.encode(texts[:count], **options), strict=True):
            np.testing.assert_array_equal(vector, expected)
            assert vector.base is None, "a vector that is kept would keep its window"


@pytest.mark.parametrize("text", ["", "the cat", "mat " * (WINDOW_CHARACTERS // 16)], ids=["empty", "short", "long"])
def test_reads_ahead_by_so_much_and_no_more(encoder: Encoder, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("fastattn.encoders.encoder.LAST_WINDOW", 2 * FIRST_WINDOW)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield text

    ahead = []
    for given_out, _ in zip(range(8 * FIRST_WINDOW if len(text) < 99 else 12), encoder.encode_iter(endless())):
        ahead.append(read - given_out)
    assert ahead[0] == max(ahead[:FIRST_WINDOW]) == (FIRST_WINDOW if len(text) < 99 else 4)
    assert max(ahead) == (2 * FIRST_WINDOW if len(text) < 99 else 4)


def test_errors_come_where_the_text_is_read(encoder: Encoder) -> None:
    texts: list = [*_many_texts(FIRST_WINDOW), None]
    vectors = encoder.encode_iter(texts)
    for _ in range(FIRST_WINDOW):
        next(vectors)
    with pytest.raises(InputError, match=f"texts must be str, number {FIRST_WINDOW} is NoneType"):
        next(vectors)
    # Options are looked at before any text is.
    for wrong, message in (({"prompt_name": "passage"}, "unknown prompt_name"), ({"pooling": "best"}, "pooling")):
        with pytest.raises(InputError, match=message):
            encoder.encode_iter(["a"], **wrong)
    for wrong in ("a text", 3):
        with pytest.raises(InputError, match="texts must be an iterable of str, got (str|int)"):
            encoder.encode_iter(wrong)  # type: ignore[arg-type]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [_Terminal, io.StringIO])
def test_progress_is_shown_on_a_terminal_to_whom_asks(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    monkeypatch.setattr("fastattn.system.progress._FIRST_AFTER", 0)
    monkeypatch.setattr("fastattn.system.progress._EVERY", 0)
    encoder, texts = _encoder(operations), _many_texts(400)
    for wish in (None, False, True):
        monkeypatch.setattr("sys.stderr", stream())
        encoder.encode(texts, show_progress_bar=wish)
        shown = sys.stderr.getvalue().split("\r")
        if wish and stream is _Terminal:
            assert "400 of 400 texts" in shown and len(shown) > 4 and shown[-1] == "" == shown[-2].strip()
        else:
            assert shown == [""]


@pytest.mark.parametrize(
    "name", ["encode", "encode_query", "encode_iter", "submit", "count_tokens", "similarity", "similarity_pairwise"]
)
def test_types_of_arguments_and_results_are_told(name: str) -> None:
    hints = get_type_hints(getattr(Encoder, name))
    assert set(hints) == {*inspect.signature(getattr(Encoder, name)).parameters, "return"} - {"self"}


def test_what_users_of_sentence_transformers_pass_by_habit_changes_nothing(encoder: Encoder) -> None:
    texts = ["the cat", "a dog"]
    habits = {"batch_size": 64, "show_progress_bar": False, "convert_to_numpy": True}
    np.testing.assert_array_equal(encoder.encode(texts, **habits), encoder.encode(texts))


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


@pytest.mark.parametrize(
    "function, expected",
    [
        ("dot", [[11, 6], [25, 12]]),
        ("cosine", [[11 / 125**0.5, 6 / 60**0.5], [1, 12 / 300**0.5]]),
        ("euclidean", [[-(8**0.5), -(8**0.5)], [0, -(20**0.5)]]),
        ("manhattan", [[-4, -4], [0, -6]]),
    ],
)
def test_similarity_is_the_checkpoints(function: str, expected: list) -> None:
    encoder = _encoder(similarity=function)
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])
    got = encoder.similarity(a, b)
    assert got.dtype == np.float32 and got.shape == (2, 1)
    np.testing.assert_allclose(got[:, 0], [row[0] for row in expected], rtol=1e-6, atol=1e-6)
    assert encoder.similarity(a[0], b).shape == (1, 1)
    assert encoder.similarity(a, np.zeros((0, 2))).shape == (2, 0)
    with pytest.raises(InputError, match=r"one width are expected, got shapes \(2, 2\) and \(1, 3\)"):
        encoder.similarity(a, np.zeros((1, 3)))


@pytest.mark.parametrize("vectors", ["x", [[1.0], [2.0, 3.0]], np.ones(3) * 1j, None])
def test_similarity_of_what_are_no_vectors(encoder: Encoder, vectors: object) -> None:
    with pytest.raises(InputError, match="vectors"):
        encoder.similarity(vectors, np.ones(3))  # type: ignore[arg-type]


def test_a_vector_is_at_no_distance_from_itself() -> None:
    """Where |a|^2 + |b|^2 - 2 ab comes out below zero too."""
    vectors = np.random.default_rng(0).standard_normal((200, 384)).astype(np.float32)
    distances = np.diag(_encoder(similarity="euclidean").similarity(vectors, vectors))
    np.testing.assert_allclose(distances, 0, atol=1e-5)


def test_similarity_with_a_zero_vector_is_zero(encoder: Encoder) -> None:
    np.testing.assert_array_equal(encoder.similarity(np.zeros(2), np.ones(2)), [[0]])
