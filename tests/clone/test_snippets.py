"""Every command and snippet of the documents runs as it is written, in order, in a folder with the files of examples/.

Left out is what SKIPPED names, with the reason; of those the arguments are still read.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
from click.testing import CliRunner

import fastattn
from fastattn.cli.entry import COMMANDS, commands
from fastattn.weights.download.catalog import CATALOG
from tests import ROOT
from tests.cli.commands import run_line, words
from tests.clone.test_docs import FENCE, statements
from tests.conftest import ENVIRONMENT
from tests.encoders.classifiers import LABELS, TOKENS, write_classifier, write_today

DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
# The beginning of a command -> why it is not run here.
SKIPPED = {
    "pip install": "changes the environment; `make dist` tries it",
    "make ": "sets up an environment, or runs this suite",
    ".venv/bin/python -m tests.": "minutes",
    ".venv/bin/python -m bench ": "minutes; tests/bench has its parts",
    ".venv/bin/python bench/": "minutes; tests/bench has its parts",
    "sh bench/card.sh": "a card that is lent",
    "fastattn translate --from de --to fr": "Mozilla's server; tests/weights/download/test_firefox.py",
    "fastattn translate -m Helsinki-NLP/opus-mt-en-de": "the hub",
    "fastattn rerank -m OWNER/NAME": "a model of the reader's; tests/cli/test_cli_classify.py",
    "fastattn classify -m OWNER/NAME": "a model of the reader's; tests/cli has the command's own",
    "fastattn generate -m smollm2": "98 MB to fetch; tests/cli has the command's own",
    "fastattn translate -m ./my-llm": "a model of the reader's; tests/cli/test_cli.py",
    "fastattn generate -m ./my-llm --chat": "a chat template and jinja2; tests/cli/test_cli_generate.py",
    "fastattn translate --from en --to pt -i": "documents of the reader's; tests/documents",
    "fastattn batch": "Ray, and a corpus of the reader's; tests/distributed",
    "fastattn serve": "serves until it is told to end; tests/serve",
    "curl ": "asks that server; tests/serve/test_dialects.py",
    "fastattn verify minilm": "sentence-transformers; tests/verification",
    "fastattn translate -m en-pt --processes 8": "a file of the reader's",
}
# Blocks of Python, by the document and words in them -> why they are not run here.
SKIPPED_PYTHON = {
    ("docs/attention.md", ""): "tests/clone/test_docs.py runs them",
    ("docs/vision.md", 'Encoder("./'): "models of the reader's; tests/images/test_pictures.py",
    ("docs/vision.md", "Captioner("): "a model of the reader's; tests/images/test_captions.py",
    ("README.md", "Generator("): "98 MB to fetch; tests/generation",
    ("docs/generate.md", ""): "language models of the reader's; tests/generation",
    ("docs/translate.md", "LanguageModelTranslator("): "a model of the reader's; tests/generation",
    ("docs/scale.md", "processes=8"): "sixteen cores",
}


class Block(NamedTuple):
    """A block of a document; ``kind`` is sh or python."""

    document: str
    number: int
    kind: str
    text: str


BLOCKS = [
    Block(str(path.relative_to(ROOT)), number, kind or "sh", text)
    for path in DOCUMENTS
    for number, (kind, text) in enumerate(FENCE.findall(path.read_text(encoding="utf-8")))
]


def lines(block: Block) -> list[str]:
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]


def why_not(line: str) -> str | None:
    return next((reason for start, reason in SKIPPED.items() if line.startswith(start)), None)


def shell_lines() -> list[tuple[str, str]]:
    shell = [block for block in BLOCKS if block.kind == "sh"]
    return [(block.document, line) for block in shell for line in lines(block) if not line.startswith("#")]


def fastattn_calls(line: str) -> Iterator[list[str]]:
    """The arguments of each call of fastattn in a line."""
    part: list[str] = []
    for word in [*words(line), "|"]:
        if re.fullmatch(r"[|<>&;]+", word):
            if part[:1] == ["fastattn"]:
                yield part[1:]
            part = []
        else:
            part.append(word)


def check_arguments(arguments: list[str]) -> None:
    """Have click read them, of the command and of those below it; a command alone has only to be there."""
    command: click.Command | None = commands
    context = click.Context(commands)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
    if command is not None and arguments:
        command.make_context(command.name, arguments)


def test_every_call_in_the_documents_and_the_help_has_arguments_that_are_known() -> None:
    seen = 0
    told = [line for _, line in shell_lines()]
    for path in DOCUMENTS:
        told += re.findall(r"`(fastattn [a-z][^`\n]*)`", path.read_text(encoding="utf-8"))
    for name in COMMANDS:
        result = CliRunner().invoke(commands, [name, "--help"], env={"COLUMNS": "200"})
        told += re.findall(r"^ {4}(.*fastattn .*?)(?: {2,}.*)?$", result.stdout.partition("Examples:")[2], re.MULTILINE)
    for line in told:
        for arguments in fastattn_calls(line):
            if "..." not in arguments:
                check_arguments(arguments)
                seen += 1
    assert seen > 80


def test_every_skipped_line_is_there() -> None:
    assert {why_not(line) for _, line in shell_lines()} - {None} == set(SKIPPED.values())
    for start in SKIPPED:
        assert any(line.startswith(start) for _, line in shell_lines()), start
    for (document, text), reason in SKIPPED_PYTHON.items():
        there = [block for block in BLOCKS if block.kind == "python" and block.document == document]
        assert any(text in block.text for block in there), reason
    assert {block.kind for block in BLOCKS} == {"sh", "python"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, pulled: Callable[[str], Path]) -> Iterator[Path]:
    """A copy of examples/, which nothing that is written changes, with models such as a reader may have."""
    for name in CATALOG:
        pulled(name)
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)
    write_classifier(folder / "my-reranker")
    write_classifier(folder / "my-classifier", LABELS)
    write_classifier(folder / "my-tagger", TOKENS)
    write_today(folder / "my-colbert")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("FASTATTN_CACHE", ENVIRONMENT["FASTATTN_CACHE"])
        yield folder
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path.name} was written over"


@pytest.mark.slow  # whole documents are translated
def test_every_command_runs(folder: Path) -> None:
    ran = {}
    for _, line in shell_lines():
        if why_not(line) is None:
            ran[line] = run_line(line)
    assert len(ran) > 10
    for line, output in ran.items():
        if found := re.search(r"# (\w+, \w+!)$", line):
            assert output == f"{found[1]}\n"
    assert len((folder / "translated.txt").read_text(encoding="utf-8").splitlines()) == 4
    assert len(np.load(folder / "vectors.npy")) == 4


def test_every_snippet_runs(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """With what the blocks of its document before it have made."""
    made: dict[str, dict[str, Any]] = {}
    printed: dict[str, list[str]] = {}
    for document in sorted({block.document for block in BLOCKS if block.kind == "python"}):
        made[document] = names = {}
        skipped = [text for where, text in SKIPPED_PYTHON if where == document]
        for block in BLOCKS:
            if block.kind == "python" and block.document == document and not any(map(block.text.count, skipped)):
                list(statements(block.text, f"{document} block {block.number}", names))
        printed[document] = capsys.readouterr().out.splitlines()
    assert printed["README.md"][1:] == (folder / "translated.txt").read_text(encoding="utf-8").splitlines()
    assert made["README.md"]["weights"].shape == (2, 4, 10, 10)
    vectors = made["docs/vectors.md"]
    assert vectors["vectors"].shape == (1, 30522) and vectors["scores"].shape[-1] == 1
    assert vectors["reranker"].num_labels == 1 and len(vectors["classifier"].labels) == 3
    assert (folder / "attention.html").is_file()


def test_every_name_of_the_package_is_there() -> None:
    """What the documents call fastattn.NAME."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    found = set(re.findall(r"[`(]fastattn\.(?!toml`)([a-zA-Z_]+(?:\.[a-zA-Z_]+)*)", text))
    assert len(found) > 20
    for name in found:
        there: Any = fastattn
        for part in name.split("."):
            there = getattr(there, part, None) or import_module(f"{there.__name__}.{part}")
