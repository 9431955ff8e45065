"""An encoder beside an undamaged copy of itself: what verify finds without a framework."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from fastattn import verification
from fastattn.cli.entry import COMMANDS
from fastattn.verification.encoders import FastattnEncoder
from fastattn.weights import read
from tests.cli.commands import fail, run, succeed
from tests.verification.encoder_folders import LAYERS, TEXTS, damage, write_bert


@pytest.fixture
def itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder; the framework's side is another Encoder, of a copy, made before anything is damaged."""
    undamaged = write_bert(tmp_path / "undamaged")
    source = FastattnEncoder(undamaged, read(undamaged), "float32")
    monkeypatch.setitem(verification.SOURCES, "huggingface", lambda path, checkpoint: source)
    return write_bert(tmp_path / "model")


def lines_of(report: str) -> dict[str, str]:
    """The lines of the comparisons by their names."""
    table = report[report.index("\n\n") :].splitlines()[3:-1]
    return {line[:9].strip(): line[9:] for line in table}


def test_the_same_model(itself: Path) -> None:
    report = succeed("verify", itself, *TEXTS, "--bound", "0")
    lines = lines_of(report)
    assert list(lines) == ["tokens", "embedding", "block 1", "block 2", "output", "vector"]
    assert lines["tokens"].strip() == "the same: 7, 3, 40 ids"
    assert all(line.split()[:3] == ["0.0e+00", "0.0e+00", "1.0000000"] for line in list(lines.values())[1:])
    assert report.endswith("all is within the bound\n")
    top = report[: report.index("\n\n")]
    for told in ("versions       fastattn", "cpu ", "3 layers, width 36", "here           fastattn, float32", "rows 0"):
        assert told in top
    assert all(len(line) == len(line.rstrip()) for line in report.splitlines())


DAMAGED = {
    "embedding": "embedding_norm.weight",
    "block 1": "layers.0.self_attention.qkv.weight",
    "block 2": "layers.1.feed_forward.inner.weight",
    "output": "layers.2.self_attention.output.weight",
}


@pytest.mark.parametrize("first", DAMAGED)
def test_damage_is_found_at_its_layer(itself: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    damage(monkeypatch, itself, f"encoder.{DAMAGED[first]}")
    result = run("verify", itself, *TEXTS)
    assert result.exit_code == 1 and not result.stderr
    lines = lines_of(result.stdout)
    past = [name for name, line in lines.items() if "PAST THE BOUND" in line]
    assert past == list(lines)[list(lines).index(first) :]
    more = f" and {len(past) - 3} more" if len(past) > 3 else ""
    assert result.stdout.endswith(f"past the bound: {', '.join(past[:3])}{more}\n")
    assert run("verify", itself, *TEXTS, "--bound", "100").exit_code == 0


def test_json_says_the_same(itself: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = json.loads(succeed("verify", itself, "w5 né", "--json"))
    assert set(report) == {"machine", "model", "texts", "comparisons", "within"}
    assert report["texts"] == ["w5 né"] and report["within"]
    assert report["model"]["here"] == "fastattn, float32" and "numba" in report["machine"]["versions"]
    names = [line["name"] for line in report["comparisons"]]
    assert names == ["tokens", "embedding", *(f"block {i}" for i in range(1, LAYERS)), "output", "vector"]
    damage(monkeypatch, itself, "encoder.layers.0.self_attention.qkv.weight")
    result = run("verify", itself, "--json")
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert result.exit_code == 1 and not found["within"] and len(found["texts"]) == 3
    assert [line["within"] for line in found["comparisons"]] == [True, True, False, False, False, False]


def test_tokens_that_differ_come_first(itself: Path) -> None:
    tokenizer = itself / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"w7":7', '"w7":8').replace('"w8":8', '"w8":7'))
    result = run("verify", itself, *TEXTS)
    assert result.exit_code == 1
    lines = lines_of(result.stdout)
    told = "PAST THE BOUND  text 1: 7 ids here, 7 there; the first that differs, 3: 'w7' (8) here and 'w8' (7) there"
    assert lines["tokens"].strip() == told
    # both have the layers of the ids from here
    assert [name for name, line in lines.items() if "PAST" in line] == ["tokens", "vector"]


def test_another_precision_has_its_own_bound(itself: Path) -> None:
    for precision in ("bfloat16", "int8"):
        assert f"fastattn, {precision}" in succeed("verify", itself, *TEXTS, "--precision", precision)
        assert run("verify", itself, *TEXTS, "--precision", precision, "--bound", "1e-4").exit_code == 1


def test_special_tokens_are_among_the_texts(itself: Path) -> None:
    tokenizer = Tokenizer.from_file(str(itself / "tokenizer.json"))
    tokenizer.add_special_tokens(["[PAD]", "[MASK]"])
    tokenizer.save(str(itself / "tokenizer.json"))
    texts = json.loads(succeed("verify", itself, "--json"))["texts"]
    assert len(texts) == 4 and texts[3].startswith("[PAD] a [MASK] a The library")


def test_usage() -> None:
    assert "MODEL" in fail(2, "verify")
    assert "--bound" in fail(2, "verify", "x", "--bound", "-1")
    assert "no checkpoint 'nothing'" in fail(3, "verify", "nothing")
    assert "verify" in COMMANDS


def test_a_prompt_comes_before_each_text(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "model")
    checkpoint = read(folder)
    prompts = {"prompts": {"query": "w40 w41 ", "other": "w9 "}, "default_prompt": "query"}
    texts = checkpoint.text, replace(checkpoint.text, **prompts)
    plain, prompted = (FastattnEncoder(folder, replace(checkpoint, input=text), "float32") for text in texts)
    assert prompted.ids("w5") == plain.ids("w40 w41 w5") != plain.ids("w5")
