"""Names that are nearly right, or another program's: the message says the right one."""

import os

import pytest

from fastattn.errors import CheckpointError
from fastattn.translation.translator import Translator
from tests.cli.commands import SHORT, fail, run, succeed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tranlate", "a"], "no command 'tranlate'; did you mean translate?"),
        (["nothing"], "no command 'nothing'"),
        (["translate", "--device", "cpu"], "no option --device; here it is left out: the CPU is the only device"),
        (["translate", "--compute-type", "int8"], "no option --compute-type; here it is --precision"),
        (["translate", "--max-new-tokens", 9], "no option --max-new-tokens; here it is --max-length"),
        (["encode", "--batch-size", 9], "no option --batch-size; here it is left out: batches are made for you"),
    ],
)
def test_commands_and_options(arguments, told):
    assert fail(2, *arguments).partition(" (see ")[0] == told


def test_a_misspelt_option():
    told = fail(2, "encode", "--truncate-dims", 3)
    assert "--truncate-dims" in told and "--truncate-dim'" in told.replace('"', "'")


def test_names_of_the_catalog():
    for arguments in (["pull", "minlm"], ["encode", "-m", "minlm", "a"], ["inspect", "minlm"]):
        assert fail(3, *arguments).endswith("; did you mean minilm?")


@pytest.mark.filterwarnings("default")
def test_a_folder_that_hides_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("zh-en")
    hint = "zh-en here hides the catalog's zh-en and is read instead; ./zh-en does so without a warning"
    result = run("translate", "-m", "zh-en", "a")
    told, failed = result.stderr.splitlines()
    assert result.exit_code == 3 and told == f"fastattn: {hint}" and "not a checkpoint of a known format" in failed
    with pytest.warns(UserWarning, match=hint), pytest.raises(CheckpointError):
        Translator("zh-en")
    assert "not a checkpoint" in fail(3, "translate", "-m", "./zh-en", "a")


def test_languages_in_upper_case(monkeypatch):
    named = []
    monkeypatch.setattr("fastattn.cli.translate.located_name", lambda name, progress: named.append(name) or "nowhere")
    fail(3, "translate", "--from", "EN", "--to", "Pt", "a")
    assert named == ["en-pt"]
    assert "translates from EN to fr; " in fail(2, "translate", "--from", "EN", "--to", "fr", "a")


def test_a_files_name_as_text(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "▁w1").write_text("▁w2\n", encoding="utf-8")
    hint = "fastattn: ▁w1 is the text, and not the file of that name; {} ▁w1 is for its lines"
    result = run("translate", "-m", model, *SHORT, "▁w3", "▁w1")
    assert result.exit_code == 0 and result.stderr.splitlines()[0] == hint.format("-i")
    assert result.stdout_bytes.decode() == succeed("translate", "-m", model, *SHORT, stdin="▁w3\n▁w1\n".encode())
    (tmp_path / "none.npy").write_bytes(b"")
    assert run("search", "▁w1", "-i", "none.npy").stderr.startswith(hint.format("<"))
    assert "the file of that name" not in run("translate", "-m", model, *SHORT, "▁w3", ".").stderr
