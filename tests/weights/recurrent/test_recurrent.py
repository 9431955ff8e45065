"""Written recurrent models translate as the formulas of their sources do."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import InputError
from fastattn.translation.translator import Translator
from fastattn.weights.native.convert import write
from tests import GOLDENS
from tests.weights.recurrent import oracle, writer
from tests.weights.recurrent.writer import LETTERS, THAI, WORDS


def saved(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def agree(path: Path, source: Sequence[str], target: Sequence[str], step: oracle.Step, start: str, end: str) -> None:
    """The log-probabilities of a target, and greedy search, are those of ``step``, which reads the same source."""
    translator = Translator(path, threads=1)
    vocabulary = weights.read(path).text.target_vocabulary
    ids = [vocabulary.index(token) for token in (*target, end)]
    (found,) = translator.score_tokens([source], [target])
    expected = oracle.log_probs(step(), vocabulary.index(start), ids)
    np.testing.assert_allclose(found.log_probs, expected, rtol=1e-4, atol=1e-4)
    (best,) = translator.translate_tokens([source], beam_size=1, max_decoding_length=9)
    chosen = oracle.greedy(step(), vocabulary.index(start), vocabulary.index(end), 9)
    assert best.hypotheses[0] == [vocabulary[index] for index in chosen]


def test_e2k(tmp_path: Path) -> None:
    net = writer.e2k()
    path = saved(tmp_path, {"model-c2k.safetensors": writer.e2k_bytes(net)})
    ids = [1, *(LETTERS.index(letter) for letter in "a bad"), 2]
    agree(path, list("a bad"), list("カアー"), lambda: oracle.e2k(net, ids), "<sos>", "<eos>")
    assert weights.read(path).format == "e2k"


def test_e2k_of_half_precision(tmp_path: Path) -> None:
    net = {name: value.astype(np.float16) for name, value in writer.e2k().items()}
    path = saved(tmp_path, {"model-c2k-turbo.safetensors": writer.e2k_bytes(net)})
    agree(path, list("bead"), list("オオ"), lambda: oracle.e2k(net, [1, 4, 7, 3, 6, 2]), "<sos>", "<eos>")


def test_e2k_reads_words_in_any_case_without_what_it_does_not_know(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model-c2k.safetensors": writer.e2k_bytes(writer.e2k())})
    translator = Translator(path / "model-c2k.safetensors", threads=1)
    (tokens,) = translator.translate_tokens([list("bad cafe")])
    assert len(tokens.hypotheses[0]) > 1
    joined = "".join(tokens.hypotheses[0])
    assert translator.translate(["bad cafe", "BAD?! Cafe§", "?"]) == [joined, joined, ""]
    assert translator.translate("bad\ncafe") == "\n".join(translator.translate(["bad", "cafe"]))
    with pytest.raises(InputError, match="'§' is no token of the source vocabulary"):
        translator.translate_tokens([["§"]])


def test_e2k_of_phonemes(tmp_path: Path) -> None:
    phonemes = ["<pad>", "<sos>", "<eos>", "HH", "AH0", "L", "OW1", "B", "K", "D", "'", " "]
    net = writer.e2k()
    path = saved(tmp_path, {"model-p2k.safetensors": writer.e2k_bytes(net, phonemes)})
    agree(path, ["HH", "AH0", "L", "OW1"], ["キ"], lambda: oracle.e2k(net, [1, 3, 4, 5, 6, 2]), "<sos>", "<eos>")
    translator = Translator(path, threads=1)
    (tokens,) = translator.translate_tokens([["B", "K"]])
    assert translator.translate("B  K") == "".join(tokens.hypotheses[0])


def test_thai2rom(tmp_path: Path) -> None:
    net = writer.thai2rom()
    path = saved(tmp_path, writer.thai2rom_files(net))
    ids = [*(THAI["char_to_ix"].get(letter, 1) for letter in "กขxงค"), 3]
    agree(path, list("กขxงค"), list("kao"), lambda: oracle.thai2rom(net, ids), "<start>", "<end>")


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_the_tutorial(tmp_path: Path, attention: bool, apart: bool) -> None:
    net = writer.tutorial(attention)
    path = saved(tmp_path, writer.tutorial_files(net, attention, apart))
    ids = [WORDS.index(word) for word in ("w1", "w5", "<unk>", "w2", "</s>")]
    agree(path, ["w1", "w5", "far", "w2"], ["w3", "w8"], lambda: oracle.tutorial(net, ids), "<s>", "</s>")


def test_attention_of_a_decoder_that_has_none(tmp_path: Path) -> None:
    translator = Translator(saved(tmp_path, writer.tutorial_files(writer.tutorial(False), False)), threads=1)
    for options in ({"return_attention": True, "details": True}, {"coverage_penalty": 0.5}, {"replace_unknowns": True}):
        with pytest.raises(InputError, match="need a model with attention to its source"):
            translator.translate("w1 w2", **options)


@pytest.mark.parametrize(
    ("cell", "score", "feeds", "both"),
    [
        ("LSTM", "general", True, True),
        ("LSTM", "dot", False, False),
        ("LSTM", "mlp", True, False),
        ("GRU", "mlp", False, True),
        ("GRU", "general", True, False),
        ("LSTM", "none", False, True),
    ],
)
def test_opennmt(tmp_path: Path, cell: str, score: str, feeds: bool, both: bool) -> None:
    net = writer.opennmt(cell, score, feeds, both)
    path = saved(tmp_path, writer.opennmt_files(cell, score, feeds, both))
    ids = [WORDS.index(word) for word in ("w1", "w5", "<unk>", "w2")]
    agree(path, ["w1", "w5", "far", "w2"], ["w3", "w8"], lambda: oracle.opennmt(net, ids), "<s>", "</s>")
    assert weights.read(path / "model_step_7.pt").spec == weights.read(path).spec


def test_opennmt_of_few_options(tmp_path: Path) -> None:
    """What options are by default, and an older name of an encoder of both directions."""
    net = writer.opennmt("LSTM", "general", True, True)
    path = saved(tmp_path, {"model.pt": writer.opennmt_bytes(net, {"dec_layers": 2, "brnn": True})})
    ids = [WORDS.index(word) for word in ("w1", "w5")]
    agree(path, ["w1", "w5"], ["w3"], lambda: oracle.opennmt(net, ids), "<s>", "</s>")


FILES: dict[str, tuple[Callable[[], writer.Weights], str, int, Callable[[writer.Weights], dict[str, bytes]], str]] = {
    "e2k": (writer.e2k, "fc.bias", 2, lambda net: {"model-c2k.safetensors": writer.e2k_bytes(net)}, "bad"),
    "thai2rom": (writer.thai2rom, "decoder.linear.bias", 2, writer.thai2rom_files, "กข"),
    "tutorial": (
        lambda: writer.tutorial(True), "decoder.out.bias", 3, lambda net: writer.tutorial_files(net, True), "w1 w2"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "longest"), [("e2k", 16), ("thai2rom", 100), ("tutorial", 256)])
def test_a_translation_ends_where_its_program_ends_it(tmp_path: Path, name: str, longest: int) -> None:
    """At once, without a letter, or after as many as there may be."""
    make, bias, end, files, text = FILES[name]
    for favour, length in ((200, 0), (-200, longest)):
        net = make()
        net[bias][end] = favour
        translator = Translator(saved(tmp_path / str(length), files(net)), threads=1)
        (part,) = translator.translate(text, details=True).parts
        assert len(part.hypotheses[0]) == length


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_folder_of_fastattns_own(tmp_path: Path, precision: str) -> None:
    path = saved(tmp_path / "model", {"model-c2k.safetensors": writer.e2k_bytes(writer.e2k())})
    (tmp_path / "own").mkdir()
    original = weights.read(path)
    write(tmp_path / "own", original, precision)
    again = weights.read(tmp_path / "own")
    assert again.spec == original.spec and again.text == original.text
    translators = [Translator(folder, precision, threads=1) for folder in (path, tmp_path / "own")]
    one, other = (translator.translate(["bad cafe", "face"], details=True) for translator in translators)
    assert repr(one) == repr(other)


@pytest.mark.parametrize("name", ["e2k", "thai2rom"])
def test_models_of_the_catalog_write_what_their_own_programs_do(name: str, pulled: Callable[[str], Path]) -> None:
    goldens = json.loads((GOLDENS / "transliteration.json").read_text(encoding="utf-8"))[name]
    found = Translator(pulled(name), threads=1).translate([text for text, _ in goldens])
    assert found == [expected for _, expected in goldens]
