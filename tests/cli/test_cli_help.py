"""What --help tells: every command and every default, whole, on a terminal of 80 columns."""

import os
import re
import sys
from dataclasses import fields
from unittest.mock import Mock, call

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import fastattn
from fastattn.cli import batch
from fastattn.cli import translate as translating
from fastattn.cli.entry import COMMANDS, commands
from fastattn.cli.printing import Progress
from fastattn.cli.translate import WRAPPER_OPTIONS, translate
from fastattn.decoding.options import DecodingOptions
from fastattn.errors import CheckpointError
from fastattn.spec.text_spec import DecodingSettings
from fastattn.translation.translator import Translator
from fastattn.weights.download.catalog import CATALOG
from tests.cli.commands import SHORT, fail, refuse, run, succeed
from tests.messages import refused


def help_of(*command):
    """The lines of --help on a terminal of 80 columns."""
    result = CliRunner().invoke(commands, [*command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_the_tab_key_completes_commands_options_and_models() -> None:
    def completions(*words: str) -> set[str]:
        shell = ShellComplete(commands, {}, "fastattn", "_FASTATTN_COMPLETE")
        return {item.value for item in shell.get_completions(list(words[:-1]), words[-1])}

    assert completions("tra") == {"translate"}
    assert "--beam-size" in completions("translate", "--beam")
    assert completions("encode", "-m", "zh") == {"zh", "zh-en"}  # a folder, or a name of the catalog


def test_help_of_all_commands_is_whole_and_has_examples():
    assert CliRunner().invoke(commands, ["--version"]).stdout == f"fastattn {fastattn.__version__}\n"
    assert CliRunner().invoke(commands, [], env={"COLUMNS": "80"}).stdout.splitlines() == help_of()
    text = " ".join(" ".join(help_of()).split())
    for name in COMMANDS:
        command = commands.get_command(None, name)
        assert f"{name} {command.help.split(chr(10))[0].strip()}" in text  # not cut short
        lines = help_of(name)
        assert any(line.startswith(f"    fastattn {name}") for line in lines)
        assert not [line for line in lines if len(line) > 80]
    assert list(COMMANDS)[:2] == ["translate", "encode"]
    for code in ("0 done", "2 wrong usage", "3 a checkpoint", "4 a download", "130 interrupted", "141 whoever read"):
        assert code in text


def test_help_of_translate_puts_the_common_options_first():
    text, section = "\n".join(help_of("translate")), r"(.*?\n)"
    sections = re.search(rf"\nOptions:{section}\nSearch options:{section}\nSampling options:(.*)", text, re.DOTALL)
    for option, there in (("-m, --model", 0), ("--json", 0), ("-h, --help", 0), ("-b, --beam", 1), ("--seed", 2)):
        assert [f"\n  {option}" in part for part in sections.groups()] == [there == number for number in range(3)]
    assert '"source", "translation", "hypotheses": [{"text", "score"}]' in " ".join(text.split())


def test_help_of_translate_tells_the_defaults():
    own = {field.name for field in fields(DecodingSettings)}
    for option in translate.params:
        default = DecodingOptions.__dataclass_fields__.get(option.name)
        if default is None or option.is_flag or option.multiple:
            continue
        assert "(default: " in option.help
        assert ("default: the checkpoint's own, else " in option.help) == (option.name in own)
        if default.default is not None:
            assert f" {default.default:g}" in option.help.partition("(default:")[2]


@pytest.mark.parametrize("kind, code", [("translate", "translation"), ("encode", "embedding")])
def test_help_of_batch_jobs(kind, code):
    lines = help_of("batch", kind)
    assert not [line for line in lines if len(line) > 80]
    assert sum(line.startswith(f"    fastattn batch {kind} ") for line in lines) >= 3
    assert lines.index("Options:") < lines.index("Cluster options:")
    told = " ".join(" ".join(lines).split())
    for option, default in (("--output-column", code), ("--column", "text"), ("--format", "parquet")):
        assert f"[default: {default}]" in told.partition(f" {option} ")[2][:200]


def test_a_batch_without_the_extra_says_what_to_install_before_a_model_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for kind in ("translate", "encode"):
        refuse(1, "batch", kind, "in.txt", "--out", tmp_path / "out", "-m", "no/such-model")


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
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    named = []
    monkeypatch.setattr("fastattn.cli.translate.find_entry", lambda entry, _: named.append(entry.name) or "nowhere")
    fail(3, "translate", "--from", "EN", "--to", "Pt", "a")
    assert named == ["en-pt"]
    told = "no model of the catalog translates from {}; there are: from en to pt (en-pt), "
    assert fail(2, "translate", "--from", "EN", "--to", "fr", "a").startswith(told.format("en to fr"))
    wrong = fail(2, "translate", "--from", "fr", "--to", "de", "▁w1")
    assert wrong.startswith(told.format("fr to de")) and "; the Hugging Face hub may have one, try -m Helsinki" in wrong


def test_options_come_to_every_model_of_translate(monkeypatch):
    made, asked = Mock(chain=lambda first, second: first), Mock(return_value=[CATALOG["zh-en"], CATALOG["en-pt"]])
    monkeypatch.setattr(translating, "models_between", asked)
    monkeypatch.setattr(translating, "find_entry", lambda entry, _: entry.name)
    monkeypatch.setattr("fastattn.translation.translator.Translator", made)
    search = {"beam_size": 3, "timeout": 5.0}
    told = dict.fromkeys((*WRAPPER_OPTIONS, "documents"))
    translating._open_detecting_translator("pt", "tiny", {"precision": "int8"}, search, Progress(), told)._open_from(
        "zh"
    )
    asked.assert_called_once_with("zh", "pt", "tiny")
    assert made.call_args_list == [call(name, precision="int8") for name in ("zh-en", "en-pt")]
    made.return_value.translate_iter.assert_called_once_with((), **search)
    # compiling is no part of a text's time
    made.return_value.translate.assert_called_once_with("a", **search | {"timeout": None})


def test_a_batch_has_one_model():
    for source in ("auto", "zh"):
        with refused(click.UsageError):
            batch._model_between(source, "pt", Progress())


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
