"""Each option of each command arrives in the call, or the output, that it is for: what option_cases.py says."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

from fastattn.cli.entry import COMMANDS, commands
from fastattn.system.cache_folder import CacheEntry
from tests.cli.commands import run
from tests.cli.option_cases import BEFORE, CASES, RANGES, Expected
from tests.cli.recorders import BAD, WIDTH, record_all
from tests.weights.ctranslate2.writer import write_tiny

FILES = {
    "two.txt": b"one\ntwo\n", "terms.tsv": b"y\tT\n", "terms.txt": b"y\n", "table.csv": b"a,b\nx,y\n",
    "front.md": b"---\ntitle: a\n---\n", "bad.txt": BAD.encode(), "bytes.txt": b"\xff\n",
    "directive.txt": b"%s\n", "a.po": b'msgid "a"\nmsgstr ""\n',
}  # fmt: skip
ELSEWHERE = ("batch", "serve")  # their options have tests of their own


def parameters(command: click.Command, name: str) -> Iterator[tuple[str, str, list[str]]]:
    """(command, the name of a parameter in CASES, all the ways to write it) of a command and those below it."""
    if isinstance(command, click.Group):
        for below in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), below)
            assert found is not None
            yield from parameters(found, f"{name} {below}")
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield name, str(parameter.name).upper(), [""]
            continue
        for ways in filter(None, (parameter.opts, parameter.secondary_opts)):
            yield name, max(ways, key=len), ways


def all_parameters() -> list[tuple[str, str, list[str]]]:
    context = click.Context(commands)
    found = {name: commands.get_command(context, name) for name in COMMANDS if name not in ELSEWHERE}
    return [entry for name, command in found.items() if command is not None for entry in parameters(command, name)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "tiny").mkdir()
    write_tiny(folder / "tiny")
    (folder / "other").mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    Image.new("RGB", (4, 4)).save(folder / "one.png")
    np.save(folder / "rows.npy", np.array(RANGES, np.float32))
    np.save(folder / "three.npy", np.zeros((3, WIDTH), np.float32))
    np.save(folder / "integers.npy", np.zeros((3, WIDTH), np.int8))
    return folder


@pytest.fixture
def here(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with links to the files."""
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def see(here: Path, command: str, *arguments: Any) -> dict[str, Any]:
    """Run a command; what its recorders noted, what it wrote, its exit code."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        seen = record_all(monkeypatch)
        removed: list[str] = []
        kinds = ("kernels", "packed", "checkpoints")
        monkeypatch.setattr(
            "fastattn.system.cache_folder.cache_contents",
            lambda: ([CacheEntry(kind, here / kind / "named-int8-code", 9, 1e6, False) for kind in kinds], []),
        )
        monkeypatch.setattr(CacheEntry, "remove", lambda entry: removed.append(entry.kind))
        before = set(here.iterdir())
        result = run(*command.split(), *arguments, stdin=b"line\n")
    written: dict[str, Any] = {}
    for path in set(here.iterdir()) - before:
        written[path.name] = path.read_bytes() if path.is_file() else True
        path.unlink() if path.is_file() else shutil.rmtree(path)
    outcome = {"stdout": result.stdout, "stderr": result.stderr, "code": result.exit_code, "removed": removed}
    assert "Traceback" not in result.stderr
    return {**seen, **written, **outcome}


def agrees(seen: dict[str, Any], expected: Expected) -> bool:
    missing = object()
    return all(
        (key in seen and bool(value(seen[key]))) if callable(value) else seen.get(key, missing) == value
        for key, value in expected.items()
    )


def test_every_parameter_has_a_case():
    assert {(command, name) for command, name, _ in all_parameters()} == {
        (command, name) for command, cases in CASES.items() for name in cases
    }
    assert {*CASES} - {"cache clear"} == {*COMMANDS} - {*ELSEWHERE}


@pytest.mark.parametrize("command", [command for command in CASES if CASES[command]])
def test_every_parameter_arrives(here: Path, command: str) -> None:
    for name, ways in ((name, ways) for of, name, ways in all_parameters() if of == command):
        check_parameter(here, command, name, ways)


def check_parameter(here: Path, command: str, name: str, ways: list[str]) -> None:
    case, before = CASES[command][name], BEFORE.get(command, ())
    needed = name in ("QUERY", "MODEL", "OUT") and not case.value  # which stands among those before
    for way in ways:
        seen = see(here, command, *before, *case.beside, *filter(None, [way]), *case.value)
        assert agrees(seen, case.expected), (way, {key: seen.get(key) for key in (*case.expected, "code", "stderr")})
        assert seen["code"] == case.expected.get("code", 0), (way, seen["stderr"])
    if not needed and not (command, name) == ("cache clear", "--packed"):
        assert not agrees(see(here, command, *before, *case.beside), case.expected), f"also without {name}"


# What is given of a model, and what it is made with.
GIVEN: list[tuple[str, str, tuple[Any, ...], Expected]] = [
    ("translate", "Translator", (), {}),
    ("generate", "Generator", ("--precision", "int4", "-t", 1), {"precision": "int4", "threads": 1}),
    ("encode", "Encoder", ("--precision", "auto", "-t", 2), {"precision": "auto", "threads": 2}),
    ("encode", "Encoder", ("--processes", 3), {"processes": 3}),
    ("search", "Encoder", ("--precision", "int8"), {"precision": "int8"}),
    ("search", "Encoder", ("-t", 1), {"threads": 1}),
    ("rerank", "CrossEncoder", (), {}),
    ("classify", "TextClassifier", ("--precision", "int8", "-t", 1), {"precision": "int8", "threads": 1}),
]


def test_what_is_not_given_is_left_to_the_class(here: Path) -> None:
    for command, kind, options, expected in GIVEN:
        seen = see(here, command, "-m", "tiny", *BEFORE.get(command, ()), *options, "a")
        found = {key.removeprefix(f"{kind}."): value for key, value in seen.items() if key.startswith(f"{kind}.")}
        assert str(found.pop("path")) == "tiny" and found == expected, (command, options)
        assert command != "search" or seen["semantic_search.threads"] == expected.get("threads")
    searched = {key: value for key, value in see(here, "translate", "-m", "tiny", "a").items() if "_iter." in key}
    del searched["translate_iter.texts"]
    assert searched.pop("translate_iter.return_scores") is False
    assert searched == dict.fromkeys(["translate_iter.details", "translate_iter.return_exceptions"], True)
