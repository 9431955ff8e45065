"""The acceptance checks' harness: every check is listed, and a figure that misses what is wanted fails its check."""

import argparse
import sys

import pytest

from tests import ROOT


def test_checks_have_names_of_their_own_and_are_listed_without_corpora(accepted):
    done = accepted("--list")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert len(names) == len(set(names)) > 20 and {"attention-peers", "zh-en-beam", "start-cold"} <= set(names)
    chosen = accepted("--list", "two-threads").stdout.splitlines()
    assert [line.split()[0] for line in chosen] == [name for name in names if "two-threads" in name] != []


def test_what_cannot_be_checked_is_refused(accepted):
    for arguments, message in (
        ((), "--data should name the folder"),
        (("--data", ROOT, "nothing"), "no check is named like nothing"),
    ):
        done = accepted(*arguments)
        assert done.returncode == 2 and message in done.stderr


def test_one_figure_that_misses_fails_all():
    from bench.checks import Findings

    findings = Findings()
    findings.at_least("speed", 1.8, "x NumPy", 1.8, "20 ms")
    findings.at_most("memory", 4, "MB", 4)
    findings.say("by itself")
    assert findings.verdict == (True, "speed 1.8 x NumPy >= 1.8 (20 ms); memory 4 MB <= 4; by itself")
    findings.at_most("start", 1.5, "s", 1.3)
    findings.at_least("speed", 2, "x", 1)
    passed, said = findings.verdict
    assert not passed and "start 1.5 s > 1.3" in said


def test_what_has_nothing_to_compare_with_is_skipped(monkeypatch, capsys, tmp_path):
    from bench import checks
    from bench.accept import run

    def absent(data):
        raise checks.Absent("no such program")

    alone = [checks.Check("alone", "nothing", absent), checks.Check("fails", "nothing", lambda data: (False, "0 of 1"))]
    monkeypatch.setattr(checks, "CHECKS", alone)
    assert run(argparse.ArgumentParser(), argparse.Namespace(names=[], list=False, data=tmp_path)) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "SKIP  alone: no such program" and said[1].startswith("FAIL  fails: 0 of 1")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the program")
def test_translate_locally_gets_models_and_settings_in_a_folder_of_its_own(monkeypatch, tmp_path):
    from bench import translate_locally

    monkeypatch.setenv(translate_locally.VARIABLE, str(tmp_path / "nothing"))
    assert translate_locally.program() is None
    program, model, source, target = (tmp_path / name for name in ("program", "model", "source", "target"))
    program.write_text(  # what it found takes the place of translations
        """#!/bin/sh
data="$XDG_DATA_HOME/translateLocally/$2"
head -1 "$4" > "$6"
cat "$data/model.bin" "$XDG_CONFIG_HOME/translateLocally/translateLocally.conf" >> "$6"
grep -c "\\"shortName\\": \\"$2\\"" "$data/model_info.json" >> "$6"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv(translate_locally.VARIABLE, str(program))
    model.mkdir()
    for file, text in (
        (model / "model.bin", "weights\n"),
        (model / "model_info.json", "its own"),
        (source, "hello\nx"),
    ):
        file.write_text(text)
    given = translate_locally.program(), tmp_path / "home", {"en-xx": model}
    with pytest.raises(FileNotFoundError, match="config.intgemm8bitalpha.yml"):
        translate_locally.TranslateLocally(*given)
    (model / translate_locally.CONFIG).touch()
    peer = translate_locally.TranslateLocally(*given)
    peer.translate("en-xx", source, target, 2)
    settings = ["[General]", "cpu_cores=2", "cache_translations=false"]
    assert target.read_text().splitlines() == ["hello", "weights", *settings, "1"]
    assert (model / "model_info.json").read_text() == "its own"
    program.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    with pytest.raises(RuntimeError, match="no such model"):
        peer.translate("en-xx", source, target, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="in kB elsewhere, or not told")
def test_the_peak_of_a_command_is_its_own():
    from bench.memory import peak_of_command

    held = bytearray(b"x") * (200 << 20)  # this process is large
    small, large = (peak_of_command([sys.executable, "-S", "-c", f"b'x' * ({size} << 20)"]) for size in (1, 100))
    assert small < 50 << 20 and 100 << 20 < large < 200 << 20 < len(held) + 1
    with pytest.raises(RuntimeError, match="ended with 3"):
        peak_of_command([sys.executable, "-S", "-c", "import sys; sys.exit(3)"])
