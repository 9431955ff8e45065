"""Frameworks that are not installed, checkpoints that none reads, what a framework raises."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastattn.errors import CheckpointError, InputError
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.frameworks import blaming, framework
from fastattn.verification.translators import CTranslate2Translator
from fastattn.weights import read
from tests.cli.commands import fail, succeed
from tests.encoders.test_encoder_checkpoints import _write_folder
from tests.verification.encoder_folders import write_bert
from tests.weights.ctranslate2.writer import write_tiny
from tests.weights.huggingface.marian_cases import CASES, write_model


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "transformers", "sentence_transformers", "ctranslate2"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("sentences", "ctranslate2"):
        (tmp_path / name).mkdir()
    _write_folder(tmp_path / "sentences")
    for folder, needed in (
        (write_bert(tmp_path / "bert"), ["transformers", "torch"]),
        (write_model(tmp_path / "marian", CASES["shared"]), ["transformers", "torch"]),
        (tmp_path / "sentences", ["sentence-transformers", "transformers", "torch"]),
        (write_tiny(tmp_path / "ctranslate2"), ["ctranslate2"]),
    ):
        told = f"verify needs {' and '.join(needed)} to compare with: pip install {' '.join(needed)}"
        assert fail(2, "verify", folder) == told


def test_only_what_is_missing_is_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="needs json and torch to compare with: pip install torch$"):
        framework("json", "torch")
    assert framework("json") == [sys.modules["json"]]


def test_a_format_without_a_framework(tmp_path: Path) -> None:
    succeed("convert", write_bert(tmp_path / "bert"), tmp_path / "own", "--precision", "float32")
    line = fail(2, "verify", tmp_path / "own")
    assert f"{tmp_path}/own: no source framework to compare with" in line and "fastattn checkpoints" in line


def test_what_ctranslate2_has_no_side_for(tmp_path: Path) -> None:
    text = read(write_bert(tmp_path / "bert")).text
    folder = tmp_path / "package"
    encoder, translator = SimpleNamespace(text=text), SimpleNamespace(text=TranslationText(("a",), ("b",)))
    with pytest.raises(InputError, match="package: verify compares translation models with CTranslate2"):
        CTranslate2Translator(folder, encoder)  # type: ignore[arg-type]
    folder.write_bytes(b"PK")
    with pytest.raises(InputError, match="package: CTranslate2 reads no archives; unpack it"):
        CTranslate2Translator(folder, translator)  # type: ignore[arg-type]


def test_a_framework_that_fails_is_one_line() -> None:
    with pytest.raises(CheckpointError, match="^it cannot: KeyError: 'a b'$"), blaming("it cannot"):
        raise KeyError("a b")
    with pytest.raises(InputError, match="mine"), blaming("it cannot"):
        raise InputError("mine")
    with pytest.raises(MemoryError), blaming("it cannot"):
        raise MemoryError
