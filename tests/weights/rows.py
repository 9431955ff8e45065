"""Tests of tables: one case runs all rows, and names together those that fail; it is skipped where all are."""

import copy
import functools
import inspect
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def rows(names: str | tuple[str, ...], table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test with its table, which reads like pytest.mark.parametrize's but makes one case.

    Each row has a tmp_path of its own, copies of other folders and of the random generator as its fixtures made them,
    and a monkeypatch that is undone after it; what else the fixtures give, a server say, all rows share.
    """
    columns = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    values = [row if len(columns) > 1 else (row,) for row in table]
    assert values and all(len(row) == len(columns) for row in values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[tuple[tuple[Any, ...], BaseException]] = []
            skips: list[BaseException] = []
            for number, row in enumerate(values):
                with pytest.MonkeyPatch.context() as monkeypatch:
                    try:
                        test(**dict(zip(columns, row)), **_own(fixtures, number, monkeypatch))
                    except pytest.skip.Exception as skip:
                        skips.append(skip)
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  each row has its turn
                        failures.append((row, error))
            if failures:
                for row, error in failures[1:]:
                    sys.stderr.write("".join([f"row {row!r:.300}:\n", *traceback.format_exception(error)[-3:]]))
                raise AssertionError(f"{len(failures)} of {len(values)} rows: {failures!r:.2000}") from failures[0][1]
            if len(skips) == len(values):
                raise skips[0]

        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def _own(fixtures: dict[str, Any], number: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The fixtures of one row."""
    own = dict(fixtures)
    for name, value in fixtures.items():
        if name == "monkeypatch":
            own[name] = monkeypatch
        elif name == "rng":
            own[name] = copy.deepcopy(value)
        elif name == "tmp_path":
            own[name] = value / f"row {number}"
            own[name].mkdir()
        elif isinstance(value, Path) and value.is_dir():
            own[name] = value.parent / f"row {number} of {name}" / value.name
            shutil.copytree(value, own[name])
    return own
