"""What comes from outside reaches no terminal raw, and secrets none at all: on stderr, in listings, in tracebacks."""

import json
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastattn.cli.entry import commands
from fastattn.errors import CheckpointError, InputError
from fastattn.printable import escape_controls, json_line, printable, without_secrets
from tests.children import run_python
from tests.weights.containers.safetensors_writer import random_bert, write_sentence_transformer
from tests.weights.ctranslate2.writer import (
    random_transformer,
    vocabulary,
    write_config,
    write_model,
    write_vocabularies,
)
from tests.weights.download.hub_server import HubServer
from tests.weights.download.index_server import isolate

HOSTILE = "\x1b[2J\x9b1m\u202eevil\u2066\u2028\x85\u200f\u061c\x7f\r\nfastattn: all is well\a"
ACTED_ON = set("\x1b\x9b\u202e\u2066\u2028\x85\u200f\u061c\x7f\r\a\b\0")


def is_fit(text: str) -> bool:
    return not ACTED_ON & set(text)


def test_only_what_a_terminal_acts_on_is_made_visible() -> None:
    kept = "Olá 你好 שלום سلام \u200d🙂 C:\\new\\x1b"
    assert escape_controls(kept) == kept
    assert escape_controls("a\x1b[1m\u202eb\n\x9b\ud800\x00") == r"a\x1b[1m\u202eb\n\x9b\ud800\x00"
    escaped = escape_controls(HOSTILE)
    assert escape_controls(escaped) == escaped and is_fit(escaped) and "\n" not in escaped


def test_json_stays_json() -> None:
    line = json_line({"path": HOSTILE, "name": "你好"})
    assert json.loads(line) == {"path": HOSTILE, "name": "你好"} and is_fit(line) and "你好" in line


def test_secrets_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret\x01hf_third\nhf_other")
    text = "https://me:pass@host/x@y, b'Bearer hf_secretsecret\\x01hf_third\\nhf_other', Basic bWU6cGFzc3dvcmQ=, "
    text += "http://host/a"
    expected = "https://host/x@y, b'Bearer ***\\x01***\\n***', Basic ***, http://host/a"
    assert without_secrets(text) == expected
    assert str(CheckpointError(text)) == expected
    monkeypatch.setenv("HF_TOKEN", "")
    assert printable("a basic text: x@y") == "a basic text: x@y"


def test_an_errors_message_is_fit_to_be_shown_whoever_shows_it() -> None:
    error = InputError(f"{HOSTILE}: no such file")
    assert is_fit(str(error)) and str(error).startswith(r"\x1b[2J\x9b1m\u202eevil") and "\n" not in str(error)
    assert error.args == (f"{HOSTILE}: no such file",)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(commands, arguments, prog_name="fastattn")
    assert is_fit(result.output)
    return result.exit_code, result.output


def test_what_the_command_line_was_given() -> None:
    for arguments in (
        ("translate", "-m", HOSTILE, "x"),
        ("translate", "-i", HOSTILE, "-m", "."),
        ("inspect", HOSTILE),
        ("pull", HOSTILE),
        ("translate", "--from", HOSTILE, "x"),
        ("encode", "-o", f"{HOSTILE}/x", "x"),
        (HOSTILE,),
        ("translate", f"--{HOSTILE}"),
        ("encode", "--format", HOSTILE, "x"),
    ):
        code, output = run(*arguments)
        assert code and "fastattn: all is well" not in output.split("\n"), arguments


def skip_where_names_are_ascii() -> None:
    try:
        os.fsencode(HOSTILE)
    except UnicodeEncodeError:
        pytest.skip("this locale has no such names of files")


def test_names_in_a_folder_and_in_an_archive(tmp_path: Path) -> None:
    skip_where_names_are_ascii()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / HOSTILE.replace("/", "")).write_bytes(b"")
    assert run("inspect", str(tmp_path / "folder"))[0] == 3
    with zipfile.ZipFile(tmp_path / "x.argosmodel", "w") as archive:
        archive.writestr(f"{HOSTILE}/metadata.json", "{}")
        archive.writestr(f"{HOSTILE}/model/model.bin", "")
    assert run("inspect", str(tmp_path / "x.argosmodel"))[0] == 3


def test_a_model_card_and_its_metadata(tmp_path: Path) -> None:
    pooling = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True}
    modules = {"sentence_transformers.models.Pooling": pooling}
    folder = write_sentence_transformer(tmp_path / "bert", random_bert(np.random.default_rng(1)), modules)
    (folder / "README.md").write_text("---\nlicense: \x1b[31mmit\u202e\n---\n", encoding="utf-8")
    prompts = {"prompts": {"\x1b]0;query\a": "\u202e: "}, "default_prompt_name": "\x1b]0;query\a"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    code, output = run("inspect", str(folder))
    assert code == 0, output
    assert r"\x1b[31mmit\u202e" in output and r"\x1b]0;query" in output


def test_the_cache_lists_what_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_where_names_are_ascii()
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    (tmp_path / HOSTILE.replace("/", "")).write_bytes(b"")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / f"{'0' * 40}-int8\x1b\u202e-4.packed").write_bytes(b"")
    for arguments in (("cache",), ("cache", "--entries"), ("cache", "--json"), ("cache", "clear", "--all")):
        code, output = run(*arguments)
        assert code == 0 and r"\u202e" in output, output


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> None:
        warnings.warn(HOSTILE, stacklevel=1)
        raise CheckpointError("x")

    monkeypatch.setattr("fastattn.weights.download.resolve", warn)
    code, output = run("inspect", "x")
    assert code == 3 and len(output.splitlines()) == 2


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_traceback_holds_neither(debug: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With those that led to an error, and of faults that nobody expected."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("FASTATTN_DEBUG", debug)
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")

    def fail(*_: object) -> None:
        try:
            raise ValueError(f"Illegal header value b'Bearer hf_secretsecret' of http://me:pass@host {HOSTILE}")
        except ValueError as error:
            raise KeyError("hf_secretsecret") from error

    monkeypatch.setattr("fastattn.weights.download.resolve", fail)
    code, output = run("inspect", "x")
    assert code == 1 and "Traceback" in output and "KeyError" in output and "ValueError" in output
    assert "secretsecret" not in output and "pass@" not in output


def test_a_hubs_words_and_the_token(tmp_path: Path) -> None:
    """A token that no header can carry, an endpoint with a password, a warning in a header."""
    names = [name for name in os.environ if name.startswith(("HF_", "FASTATTN_OFFLINE"))]
    names += [name for name in os.environ if name.lower().endswith("_proxy")]
    kept = dict.fromkeys(names) | {"HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    pull = "import sys; sys.argv[1:] = ['pull', 'some-lab/model']; from fastattn.cli import main; main()"
    token = "hf_secretsecret\x01other"
    with HubServer({"some-lab/model": {"config.json": b"{}"}}) as server:
        server.headers = {"X-HF-Warning": "topic; \x1b[2J\x9b from outside"}
        with_password = server.url.replace("://", "://me:pass@")
        for url, secret, debug in ((server.url, token, "1"), (with_password, None, ""), (server.url, None, "1")):
            done = run_python(pull, **kept | {"HF_ENDPOINT": url, "HF_TOKEN": secret, "FASTATTN_DEBUG": debug})
            output = done.stdout + done.stderr
            assert done.returncode in (3, 4) and is_fit(output), output
            assert "secretsecret" not in output and "pass@" not in output
    assert "from outside" in output and r"\x1b[2J" in output


def test_translations_stay_as_they_are(tmp_path: Path) -> None:
    """Results are bytes for whoever reads them; a token of the vocabulary may be anything."""
    words = vocabulary(19)
    words[3:] = [f"▁\x1b[3{n}m\u202e" for n in range(len(words) - 3)]
    write_model(tmp_path, random_transformer(np.random.default_rng(3), source_vocabulary=19, target_vocabulary=19))
    write_vocabularies(tmp_path, words, words)
    write_config(tmp_path)
    command = "translate", "-m", str(tmp_path), "--max-length", "3"
    result = CliRunner().invoke(commands, command, words[5].encode(), prog_name="fastattn")
    assert result.exit_code == 0 and "\x1b[3" in result.stdout, result.output
