"""``fastattn translate`` with a language model: -m with --from and --to."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastattn.errors import WrongModelError
from fastattn.generation.generator import Generator
from fastattn.generation.language_model_translator import LanguageModelTranslator
from tests.cli.commands import fail, run, succeed
from tests.generation.language_models import make

TEXTS = ["the end", "", "an end"]
ASKED = ("translate", "-m", "any", "--from", "en", "--to", "fr", "--prompt", "alma", "--max-length", 6)


@pytest.fixture(scope="module")
def made() -> Generator:
    return make()


@pytest.fixture
def translator(made: Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LanguageModelTranslator:
    """A random language model, which the command gets for the folder "any"."""
    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    place = "fastattn.generation.language_model_translator.LanguageModelTranslator"
    monkeypatch.setattr(place, lambda path, **how: LanguageModelTranslator(made, **how))

    def refuse(path: str, **how: Any) -> None:
        raise WrongModelError("this one is a decoder model's")

    monkeypatch.setattr("fastattn.translation.translator.Translator", refuse)
    return LanguageModelTranslator(made, "en", "fr", prompt="alma")


def test_lines_are_translated_and_those_that_look_wrong_counted(translator: LanguageModelTranslator) -> None:
    found = translator.translate(TEXTS, max_new_tokens=6, details=True)
    done = run(*ASKED, stdin="\n".join(TEXTS).encode())
    assert done.exit_code == 0
    assert done.stdout == "".join(one.text.replace("\n", " ").replace("\r", " ") + "\n" for one in found)
    marked = [number for number, one in enumerate(found, 1) if one.remarks]
    assert (
        f"{len(marked)} of 3 lines may be no translation, the first: standard input, line {marked[0]}: " in done.stderr
    )
    records = [json.loads(line) for line in succeed(*ASKED, "--json", *TEXTS).splitlines()]
    assert [record["remarks"] for record in records] == [list(one.remarks) for one in found]
    assert [record["translation"] for record in records] == [one.text for one in found]


def test_wrong_options_are_told_in_one_line(translator: LanguageModelTranslator) -> None:
    assert "unknown language 'xx'" in fail(2, "translate", "-m", "any", "--from", "xx", "--to", "fr", "a")
    assert "unknown prompt 'none'; known: hy-mt2" in fail(2, *ASKED, "--prompt", "none", "a")
    assert "leave out --processes" in fail(2, *ASKED, "--processes", 2, "a")
    assert "unknown option 'split'" in fail(2, *ASKED, "--split", "long", "a")
    for option, value in (("--prompt", "alma"), ("--cache-precision", "int8")):
        asked = ("translate", "--from", "en", "--to", "pt", option, value, "a")
        assert f"{option} is for a language model" in fail(2, *asked)
    assert "this one is a decoder model's" in fail(3, "translate", "-m", "any", "--to", "fr", "a")
    assert "not known with which prompt" in fail(2, "translate", "-m", "any", "--from", "en", "--to", "fr", "a")
