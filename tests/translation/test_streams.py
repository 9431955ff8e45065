"""translate_iter and encode_iter when the source or a text fails: what came before is given out first."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fastattn.errors import FastattnError, InputError
from fastattn.translation.translator import Translator
from tests.encoders.test_encoder import _encoder
from tests.models.tiny_models import random_checkpoint, steady_ops, vocabulary

WORDS = vocabulary(19)[3:]
SHORT = {"max_decoding_length": 4}
SHORTEST = {"max_decoding_length": 1, "beam_size": 1}  # where it matters which texts are translated, and not how


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=1)


class Broken(Exception):
    """Of the source's own making."""


def source(count: int, error: Exception) -> Iterator[str]:
    for number in range(count):
        yield f"{WORDS[number % 16]} {WORDS[number // 16 % 16]}"
    raise error


def drain(stream: Iterator[Any]) -> tuple[list[Any], BaseException]:
    """What comes, and the error that ends it; nothing comes after."""
    given: list[Any] = []
    with pytest.raises(Exception) as caught:
        for result in stream:
            given.append(result)
    assert list(stream) == []
    return given, caught.value


@pytest.mark.parametrize(
    ("count", "error"), [(0, Broken("wire")), (1, RuntimeError("odd")), (300, InputError("a fault of the file's"))]
)
def test_texts_before_a_failing_source_are_translated(translator: Translator, count: int, error: Exception):
    texts = [text for text, _ in zip(source(count + 1, error), range(count))]
    given, raised = drain(translator.translate_iter(source(count, error), **SHORTEST))
    assert given == translator.translate(texts, **SHORTEST) and raised is error
    given, raised = drain(translator.translate_iter(source(count, error), return_exceptions=True, **SHORTEST))
    assert len(given) == count and raised is error  # it is no text's


@pytest.mark.parametrize("count", [0, 20])
def test_texts_before_a_failing_source_are_encoded(count: int):
    encoder, error = _encoder(), Broken("wire")
    given, raised = drain(encoder.encode_iter(source(count, error)))
    assert len(given) == count and raised is error
    texts = [text for text, _ in zip(source(count + 1, error), range(count))]
    if texts:
        np.testing.assert_allclose(np.stack(given), encoder.encode(texts), atol=1e-6)
    given, raised = drain(encoder.encode_iter(["a", None, "b"]))  # type: ignore[list-item]
    assert len(given) == 1 and isinstance(raised, InputError)


def test_prefixes_that_fail_and_that_run_out(translator: Translator):
    error = Broken("wire")
    texts = [WORDS[number] for number in range(6)]
    given, raised = drain(translator.translate_iter(texts, target_prefix=source(3, error), **SHORT))
    assert len(given) == 3 and raised is error
    given, raised = drain(translator.translate_iter(texts, target_prefix=[None, "", WORDS[2]], **SHORT))
    assert len(given) == 3 and "3 values, but more texts" in str(raised)


def test_an_interrupt_of_the_source_waits_for_nothing(translator: Translator):
    def interrupted() -> Iterator[str]:
        yield WORDS[0]
        raise KeyboardInterrupt

    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        list(translator.translate_iter(interrupted(), beam_size=1, callback=seen.append, **SHORT))
    assert seen == []


@pytest.fixture
def short_windows(monkeypatch) -> int:
    """The tokens of a window; texts below have two, and one that stands for themselves."""
    for name, size in (("FIRST_WINDOW", 6), ("LAST_WINDOW", 30), ("WINDOW_A_THREAD", 1)):
        monkeypatch.setattr(f"fastattn.decoding.windows.{name}", size)
    return 30


@pytest.mark.parametrize(("count", "threads"), [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (40, 2)])
def test_windows_in_progress_together_give_what_one_call_does(short_windows: int, threads: int, count: int):
    translator = Translator.from_checkpoint(random_checkpoint(seed=21), ops=steady_ops, threads=threads)
    texts, read = [text for text, _ in zip(source(count + 1, Broken()), range(count))], 0

    def counted() -> Iterator[str]:
        nonlocal read
        for text in texts:
            read += 1
            yield text

    given: list[str] = []
    for result in translator.translate_iter(counted(), **SHORT):
        assert read <= len(given) + 3 * short_windows // 3 and (given or read <= 2)
        given.append(result)
    assert given == translator.translate(texts, **SHORT) and read == count


def test_a_stream_that_is_left_ends_its_work(translator: Translator, short_windows: int):
    stream = translator.translate_iter(source(10_000, Broken()), **SHORT)
    for _ in range(20):
        next(stream)
    stream.close()
    assert not translator._service.scheduler()._state.requests
    assert translator.translate(WORDS[0], **SHORT) == next(translator.translate_iter([WORDS[0]], **SHORT))


@pytest.mark.parametrize("number", [1, 5, 30])
def test_a_failing_text_far_into_a_stream_comes_in_its_turn(translator: Translator, short_windows: int, number: int):
    texts: list[Any] = [text for text, _ in zip(source(41, Broken()), range(40))]
    expected = translator.translate(texts, **SHORT)
    texts[number] = None
    given, raised = drain(translator.translate_iter(texts, **SHORT))
    assert given == expected[:number] and isinstance(raised, InputError)
    results = list(translator.translate_iter(texts, return_exceptions=True, **SHORT))
    assert isinstance(results[number], InputError)
    assert results[:number] + results[number + 1 :] == expected[:number] + expected[number + 1 :]


@pytest.mark.parametrize("wrong", [" ".join(WORDS * 4), "\ud800", None])
def test_a_text_that_cannot_be_read(translator: Translator, wrong: Any):
    """Its error comes in its turn, or takes its place."""
    limited = Translator.from_checkpoint(
        random_checkpoint(seed=21, positions="table", max_positions=20), ops=steady_ops, threads=1
    )
    texts: list[Any] = [WORDS[0], "", wrong, WORDS[3]]
    options = SHORT | {"split": "never"}
    expected = limited.translate([WORDS[0], "", WORDS[3]], **options)
    given, raised = drain(limited.translate_iter(texts, **options))
    assert given == expected[:2] and isinstance(raised, InputError)
    seen: list[int] = []
    options |= {"beam_size": 1, "callback": lambda step: seen.append(step.sentence)}
    results = list(limited.translate_iter(texts, return_exceptions=True, **options))
    assert [isinstance(result, FastattnError) for result in results] == [False, False, True, False]
    assert str(results[2]) == str(raised) and {*seen} == {0, 3}, "texts keep their numbers"
