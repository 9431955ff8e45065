"""Ctrl-C while the card works, and several threads on one Translator or several: afterwards everything is as before."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastattn import Translator
from fastattn.ops import cuda
from fastattn.ops.cuda import card
from tests.models.tiny_models import random_checkpoint

GREEDY, BEAMS = {"beam_size": 1, "max_decoding_length": 4}, {"beam_size": 2, "max_decoding_length": 2}
LINES = ["▁w1 ▁w2 ▁w9 ▁w4", "▁w7"]


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with Translator.from_checkpoint(random_checkpoint(layers=1), ops=cuda) as made:
        yield made


class Driver:
    """Counts what the card is asked for; the call of number ``at`` is interrupted, once it has begun."""

    def __init__(self, at: int = 0):
        self.calls, self.at, self.guarded = 0, at, card._guarded

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return self.guarded(self.interrupted if self.calls == self.at else call, *arguments)

    def interrupted(self, *arguments: Any) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("options", [GREEDY, BEAMS], ids=["recorded", "beams"])
def test_an_interrupt_stops_at_once(options: Any, translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = translator.translate(LINES, **options)

    def run(at: int = 0) -> int:
        driver = Driver(at)
        with monkeypatch.context() as patch:
            patch.setattr(card, "_guarded", driver)
            if at:
                with pytest.raises(KeyboardInterrupt):
                    translator.translate(LINES, **options)
            else:
                assert translator.translate(LINES, **options) == expected
        return driver.calls

    whole = run()  # a greedy search asks more or less, by the time that steps take
    for at in (1, whole // 2):
        assert run(at) == at
        assert card.recording.program is None
    assert run() > 0


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_threads_on_translators(several: bool, translator: Translator) -> None:
    """Several Translators share the card, as they share its context."""
    other = Translator.from_checkpoint(random_checkpoint(seed=5, layers=1), ops=cuda) if several else translator
    texts, using = [[LINES[0], "▁w3"], ["▁w5 ▁w6", LINES[1]]], [translator, other]
    expected = [using[n].translate(texts[n], **GREEDY) for n in (0, 1)]
    found: dict[int, list[str]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: using[n].translate(texts[n], **GREEDY)})) for n in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == expected
