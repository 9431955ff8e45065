"""The line of progress: when it is drawn, what it leaves on the terminal, and what a log gets."""

import io
import sys
from types import SimpleNamespace

import pytest

from fastattn.system import progress


class Screen(io.StringIO):
    """Standard error, a terminal or a log."""

    def __init__(self, is_terminal: bool):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def drawn(self) -> str:
        """What was written since this was last asked."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only a test lets pass."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setenv("COLUMNS", "31")
    return now


def test_a_terminals_line_is_redrawn_ten_times_a_second(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.Progress() as line:
        for seconds, text, drawn in (
            (0.0, "quick work shows nothing", ""),
            (0.4, "nor this", ""),
            (0.2, "a line", "\ra line"),
            (0.05, "too soon", ""),
            (0.1, "shorter" * 9, "\r" + ("shorter" * 9)[:30]),
            (0.1, "\x1b", "\r\\x1b".ljust(31)),
        ):
            clock[0] += seconds
            line.show(text)
            assert screen.drawn() == drawn
        line.show("at once", at_once=True)
        assert screen.drawn() == "\rat once"
    assert screen.drawn() == "\r       \r"
    line.clear()
    assert screen.drawn() == ""


def test_a_log_gets_a_line_a_minute_where_it_is_asked_for(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(False)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.Progress() as silent, progress.Progress(log=True) as logged:
        told = []
        for _ in range(13):
            clock[0] += 10
            for line in (silent, logged):
                line.show(f"at {clock[0]:.0f}", at_once=True)
            told.append(screen.drawn())
        assert [text for text in told if text] == ["fastattn: at 160\n", "fastattn: at 220\n"]
    assert screen.drawn() == ""
    monkeypatch.setattr(sys, "stderr", None)  # of a program without a console
    progress.Progress(log=True).show("nothing", at_once=True)
