"""``python -m bench ...`` and ``python -m bench.accept ...`` in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bench import __main__, accept


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function of the arguments of ``python -m bench``."""
    return _caller(__main__.main, monkeypatch, capsys)


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function of the arguments of ``python -m bench.accept``."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # which the command sets
    return _caller(accept.main, monkeypatch, capsys)


def _caller(main: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
        capsys.readouterr()
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return call
