"""``python -m bench ...`` and ``python -m bench.accept ...`` in this process; documents with the marks of a command."""

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


# Between whose marks a command writes.
MARKED = "before\n<!-- some: written by python -m bench work -->\nto be replaced\n<!-- end of some -->\nafter\n"


@pytest.fixture
def marked(tmp_path):
    """A function from a section's name and its command to a document that has its marks."""

    def write(name, command):
        document = tmp_path / "some.md"
        document.write_text(MARKED.replace("some", name).replace("work", command))
        return document

    return write
