"""A model beside an undamaged copy of itself: what verify finds without a framework, and what it says of frameworks."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from fastattn import verification
from fastattn.errors import CheckpointError, InputError
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.comparison import (
    Bounds,
    Comparison,
    compare_ids,
    compare_rows,
    compare_states,
    name_states,
    worst_of_each,
)
from fastattn.verification.frameworks import framework_errors, import_packages
from fastattn.verification.sides import CTranslate2Translator, FastattnTranslator, _compare_translations
from fastattn.weights import ctranslate2, read
from tests.cli.commands import fail, run, succeed
from tests.encoders.test_encoder import _write_folder
from tests.messages import check, refused
from tests.verification.encoder_folders import TEXTS, damage, write_bert
from tests.weights.ctranslate2.writer import write_tiny
from tests.weights.huggingface.marian_cases import CASES, write_model


@pytest.fixture
def itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder; the framework's side is another Encoder, of a copy, made before anything is damaged."""
    undamaged = write_bert(tmp_path / "undamaged")
    source = verification.FastattnEncoder(undamaged, read(undamaged), "float32")
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
    found = json.loads(succeed("verify", itself, "w5 né", "--json"))
    assert set(found) == {"machine", "model", "texts", "comparisons", "within"}
    assert found["texts"] == ["w5 né"] and found["within"]
    assert found["model"]["here"] == "fastattn, float32" and "numba" in found["machine"]["versions"]
    assert [line["name"] for line in found["comparisons"]] == list(lines)


DAMAGED = {
    "embedding": "embedding_norm.weight",
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
    found = run("verify", itself, "--json")
    told = json.loads(found.stdout, parse_constant=pytest.fail)
    assert found.exit_code == 1 and not told["within"] and len(told["texts"]) == 3
    assert [line["name"] for line in told["comparisons"] if not line["within"]] == past


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


def test_a_prompt_comes_before_each_text(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "model")
    checkpoint = read(folder)
    prompts = {"prompts": {"query": "w40 w41 ", "other": "w9 "}, "default_prompt": "query"}
    texts = checkpoint.text, replace(checkpoint.text, **prompts)
    plain, prompted = (
        verification.FastattnEncoder(folder, replace(checkpoint, input=text), "float32") for text in texts
    )
    assert prompted.ids("w5") == plain.ids("w40 w41 w5") != plain.ids("w5")


SENTENCES = ("▁w1 ▁w2", "", "▁w4 ▁w5 ▁w6 ▁w7 ▁w1")


@pytest.fixture
def translating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder; the framework's side is another Translator, of a copy, made before anything is damaged."""
    for name in ("undamaged", "model"):
        (tmp_path / name).mkdir()
    undamaged = write_tiny(tmp_path / "undamaged")
    source = FastattnTranslator(undamaged, read(undamaged), "float32")
    monkeypatch.setitem(verification.SOURCES, "ctranslate2", lambda path, checkpoint: source)
    return write_tiny(tmp_path / "model")


def test_the_same_translator(translating: Path) -> None:
    report = succeed("verify", translating, *SENTENCES, "--bound", "0")
    names = [line[:19].strip() for line in report[report.index("\n\n") :].splitlines()[3:-1]]
    layers = ("embedding", "block 1", "block 2", "output")  # there is a final norm
    stacks = [f"{stack} {layer}" for stack in ("encoder", "decoder") for layer in layers]
    expected = [f"text {text}, {search}" for text in (1, 3) for search in ("greedy", "beam 2")]
    assert [name for name in names if name] == ["tokens", *stacks, "log-probabilities", *expected]
    assert "the same: 2, 0, 5 ids" in report and "bound          rows 0, log-probabilities 0" in report


def test_damage_in_a_translator_is_found_at_its_layer(translating: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_tensors = ctranslate2.read_tensors

    def damaged(*arguments: Any) -> Any:
        tensors = read_tensors(*arguments)
        name = "decoder.layers.0.feed_forward.norm.weight"
        return {**tensors, name: 5 * tensors[name]}

    monkeypatch.setattr(ctranslate2, "read_tensors", damaged)
    result = run("verify", translating, *SENTENCES)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("past the bound: decoder block 1, decoder block 2, decoder output")


# The log-probabilities that the model gives to the tokens of a translation, its end included.
GIVEN = {"ab": [-1.0, -2.0, -0.3], "ac": [-1.0, -2.1, -0.5], "a": [-1.0, -4.0], "abbb": [-1.0, -2.0, -3.0, -3.0, -3.0]}


def compared(here: str, there: str, beam_size: int) -> Comparison:
    ours: Any = SimpleNamespace(lengths=(1, 4), log_probs=lambda source, target: np.array(GIVEN["".join(target)]))
    return _compare_translations("search", ours, ["x"], list(here), list(there), beam_size, Bounds(0.0, 0.15))


def test_translations_may_differ_where_both_are_as_good() -> None:
    for here, there, beam_size, within, largest in (
        ("ab", "ab", 4, True, None),
        ("ab", "ac", 1, True, 0.1),
        ("ab", "ac", 4, True, 0.1),
        ("ab", "a", 1, False, 2.0),
        ("a", "ab", 4, False, 1.4),
        ("ab", "abbb", 4, True, None),  # a hypothesis that was cut off is not compared
        ("ab", "abbb", 1, False, 2.7),
    ):
        found = compared(here, there, beam_size)
        check(found.remark)
        assert (found.within, found.largest) == (within, largest and pytest.approx(largest)), (here, there)
        assert (found.here, found.there) == (list(here), list(there))


def test_ctranslate2(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    report = json.loads(succeed("verify", write_tiny(tmp_path), "▁w1 ▁w2", "▁w3", SENTENCES[2], "--json"))
    found = {line["name"]: line for line in report["comparisons"]}
    assert found["tokens"]["remark"] == "not compared: ctranslate2 gets tokens, not text"
    assert found["layers"]["remark"] == "not compared: ctranslate2 does not show them"
    assert found["log-probabilities"]["largest"] < 1e-4
    assert all(found[f"text {number}, greedy"]["within"] for number in (1, 2, 3))


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "transformers", "sentence_transformers", "ctranslate2"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("sentences", "ctranslate2"):
        (tmp_path / name).mkdir()
    _write_folder(tmp_path / "sentences")
    bert = write_bert(tmp_path / "bert")
    succeed("convert", bert, tmp_path / "own", "--precision", "float32")
    marian, ours = write_model(tmp_path / "marian", CASES["shared"]), write_tiny(tmp_path / "ctranslate2")
    for folder in (bert, marian, tmp_path / "sentences", ours, tmp_path / "own"):
        check(fail(2, "verify", folder))
    with refused(InputError, "pip install torch"):
        import_packages("json", "torch")
    assert import_packages("json") == [sys.modules["json"]]


def test_what_ctranslate2_has_no_side_for(tmp_path: Path) -> None:
    text = read(write_bert(tmp_path / "bert")).text
    folder = tmp_path / "package"
    encoder, translator = SimpleNamespace(text=text), SimpleNamespace(text=TranslationText(("a",), ("b",)))
    with refused(InputError, "package"):
        CTranslate2Translator(folder, encoder)  # type: ignore[arg-type]
    folder.write_bytes(b"PK")
    with refused(InputError, "package"):
        CTranslate2Translator(folder, translator)  # type: ignore[arg-type]


def test_a_framework_that_fails_is_one_line() -> None:
    with refused(CheckpointError, "it cannot"), framework_errors("it cannot"):
        raise KeyError("a b")
    for error in (InputError("mine"), MemoryError()):
        with pytest.raises(type(error)) as caught, framework_errors("it cannot"):
            raise error
        assert caught.value is error


ROWS = np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 1.0]], np.float32)


def test_rows() -> None:
    theirs, zeros = ROWS.copy(), np.zeros((1, 2), np.float32)
    theirs[1] = [0.5, 2.0]
    cosine = pytest.approx(2 / 4.25**0.5)
    for bound, within in ((0.13, True), (0.12, False)):
        expected = Comparison("block 1", within, 0.5, 0.125, cosine, "text 1, token 2")
        assert compare_rows("block 1", ROWS, theirs, bound, "text 1") == expected
    same = Comparison("vector", True, 0.0, 0.0, 1.0, "text 1")
    assert compare_rows("vector", ROWS[:1], ROWS[:1], 0.0, "text 1") == same
    assert compare_rows("vector", zeros, zeros, 0.0, "text 1") == same
    assert compare_rows("vector", ROWS[:1], zeros, 0.1, "") == Comparison("vector", False, 4.0, 4.0, 0.0, "")
    for damaged in (np.nan, np.inf):
        theirs[2, 1] = damaged
        for pair in ((theirs, ROWS), (ROWS, theirs)):
            assert not compare_rows("block 1", *pair, 1e30, "").within
    remark = "text 2: shape (3, 2) here, (2, 2) there"
    assert compare_rows("block 1", ROWS, ROWS[:2], 1.0, "text 2") == Comparison("block 1", False, remark=remark)
    for row_D in np.random.default_rng(0).standard_normal((200, 1, 3)).astype(np.float32):  # which rounding may exceed
        assert compare_rows("vector", row_D, np.float32(3) * row_D, 9.0, "").cosine <= 1.0


def test_states_have_names() -> None:
    assert list(name_states([ROWS, 2 * ROWS, 3 * ROWS], 4 * ROWS)) == ["embedding", "block 1", "block 2", "output"]
    assert list(name_states([ROWS, 2 * ROWS, 3 * ROWS], 3 * ROWS, "a ")) == ["a embedding", "a block 1", "a output"]


def test_layers_that_one_side_alone_has_are_told() -> None:
    ours = name_states([ROWS[:, :1], ROWS, ROWS + 1], ROWS)
    theirs = name_states([ROWS, 2 * ROWS, ROWS, ROWS], ROWS)
    found = list(compare_states(ours, theirs, 0.1, "text 1", "there"))
    within = {"embedding": True, "block 1": False, "block 2": False, "output": True}
    assert {line.name: line.within for line in found} == within
    shorter = compare_states(ours, name_states([ROWS], ROWS), 0.1, "text 1", "there")
    longer = compare_states(name_states([ROWS], ROWS), theirs, 0.1, "text 1", "there")
    check("; ".join(f"{line.name}: {line.remark}" for line in (*found, *shorter, *longer)))


def test_ids() -> None:
    for ours, theirs in (
        ([[0, 1], [2] * 1200], [[0, 1], [2] * 1200]),
        ([[0], [0, 1, 2]], [[0], [0, 2]]),
        ([[0, 1]], [[0]]),
    ):
        found = compare_ids(ours, theirs, ["a", "b", "c"].__getitem__)
        check(found.remark)
        assert found.within is (ours == theirs)


def test_of_several_texts_the_worst_is_kept() -> None:
    lines = [
        [Comparison("a", relative=0.1, largest=9.0), Comparison("b", largest=0.5)],
        [Comparison("b", False, remark="shapes"), Comparison("c", remark="not compared")],
        [Comparison("a", relative=0.2, largest=1.0), Comparison("b", largest=0.7), Comparison("c", largest=0.0)],
        [Comparison("a", False, relative=float("nan")), Comparison("a", False, relative=3.0)],
    ]
    worst = worst_of_each(comparison for comparisons in lines for comparison in comparisons)
    assert [line.name for line in worst] == ["a", "b", "c"]
    assert np.isnan(worst[0].relative or 0.0) and worst[1].remark == "shapes" and worst[2].largest == 0.0


def test_bounds() -> None:
    exact, rounded = Bounds.of_precision("float32", None), Bounds.of_precision("int8", None)
    assert exact.rows == 1e-4 < rounded.rows and exact.log_probs < rounded.log_probs
    assert Bounds.of_precision("int8", 0.5) == Bounds(0.5, 0.5)
